import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { expandLine, expandWords } from "../../src/model/placeholders.js";

const text = (bytes: string | Uint8Array): string => Buffer.from(bytes).toString();
const line = (template: string, entry: string | Uint8Array): string => text(expandLine(template, 7, entry));

describe("placeholders", () => {
  it("stand for the entry, its parts, and the task's number", () => {
    expect(expandWords(["{}", "{.}.png", "{/}", "n{#}", "{x}"], 7, "dir/a.b.jpg").map(text)).toEqual([
      "dir/a.b.jpg",
      "dir/a.b.png",
      "a.b.jpg",
      "n7",
      "{x}",
    ]);
    expect(expandWords(["{.}", "{/}"], 0, "dir.d/.hidden").map(text)).toEqual(["dir.d/.hidden", ".hidden"]);
  });

  it("stand for one column, where the entry has several, and for nothing where it has none", () => {
    const entry = "dir/a.jpg\t2 b\tit's";
    expect(expandWords(["{2}", "{1/}", "{1.}.{3}", "{4}", "{0}"], 0, entry).map(text)).toEqual([
      "2 b",
      "a.jpg",
      "dir/a.it's",
      "{4}",
      "{0}",
    ]);
    expect(line("f {2} '{3}'", entry)).toBe("f '2 b' 'it'\\''s'");
    expect(text(expandLine("grep -E 'a{2}' {}", 0, "file"))).toBe("grep -E 'a{2}' file");
  });

  it("stand for the number where there is no entry", () => {
    expect(expandWords(["{}"], 7, undefined).map(text)).toEqual(["7"]);
  });

  it("leave plain entries in a line as they are, and quote others", () => {
    expect(line("cat {} {/}", "dir/a.txt")).toBe("cat dir/a.txt a.txt");
    expect(line("cat {}", "a b")).toBe("cat 'a b'");
    expect(line("cat {}", "it's")).toBe("cat 'it'\\''s'");
  });

  it("mean the same between quotes of either kind", () => {
    expect(line('cat "{}.txt"', "a b")).toBe('cat "a b.txt"');
    expect(line("cat '{}.txt'", "it's")).toBe("cat 'it'\\''s.txt'");
    expect(line('echo \\"{} "$HOME {}" {}', "$x")).toBe(`echo \\"'$x' "$HOME \\$x" '$x'`);
  });

  it("never let an entry out of its place, whatever is in it and around it", () => {
    const entry = fc.uint8Array({ maxLength: 30 }).filter((bytes) => !bytes.includes(0));
    fc.assert(
      fc.property(entry, (bytes) => {
        for (const template of ["printf %s {}", 'printf %s "{}"', "printf %s '{}'"]) {
          const script = Buffer.from(expandLine(template, 0, bytes));
          const found = execFileSync("/bin/sh", [], { input: script });
          expect(found.equals(Buffer.from(bytes))).toBe(true);
        }
      }),
      { numRuns: 60 },
    );
  });
});
