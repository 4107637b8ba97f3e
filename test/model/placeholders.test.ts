// biome-ignore-all lint/suspicious/noTemplateCurlyInString: ${ is the shell's
import { describe, expect, it } from "vitest";
import { checkPlaceholders, expandLine, expandWords, taskCommand } from "../../src/model/placeholders.js";
import type { Bytes } from "../../src/model/recipe.js";

const text = (bytes: Bytes): string => Buffer.from(bytes).toString();
const words = (argv: readonly string[], entry?: string): string[] =>
  expandWords(argv, { number: 8, entry, slot: 2 }).map(text);
const line = (template: string, entry: string): string => text(expandLine(template, { number: 8, entry, slot: 2 }));
const shown = (template: string, entry: string): string =>
  taskCommand({ kind: "command", argv: [template], shell: true, placeholders: true }, { number: 8, entry });

describe("placeholders", () => {
  it("stand for the entry, its parts, the task's number and its slot", () => {
    const parts = ["{}", "{.}.png", "{/}", "{//}", "{/.}", "n{#}", "{%}", "{x}", "{0}"];
    expect(words(parts, "dir/a.b.jpg")).toEqual([
      ...["dir/a.b.jpg", "dir/a.b.png", "a.b.jpg", "dir", "a.b", "n8", "2", "{x}", "{0}"],
    ]);
    expect(words(["{.}", "{/}", "{//}", "{/.}"], "dir.d/.hidden")).toEqual([
      ...["dir.d/.hidden", ".hidden", "dir.d", ".hidden"],
    ]);
    const folders = ["x", "/r", "q/", "a//b", "/", "a/b/", "///a", ""].map((entry) => words(["{//}"], entry)[0]);
    expect(folders).toEqual([".", "/", ".", "a", "/", "a", "/", "."]);
  });

  it("stand for one column, and for nothing where the entry has none", () => {
    const entry = "dir/a.jpg\t2 b\tit's";
    expect(words(["{2}", "{1/}", "{1.}.{3}", "{1//}", "{1/.}", "{4}"], entry)).toEqual([
      ...["2 b", "a.jpg", "dir/a.it's", "dir", "a", "{4}"],
    ]);
    expect(words(["{1}", "{1/.}", "{2}"], "d/a.b")).toEqual(["d/a.b", "a", "{2}"]);
    expect(line("grep -E 'a{2}' {}", "file")).toBe("laboro_1='file'; grep -E 'a{2}' \"$laboro_1\"");
  });

  it("stay as they are where there is no entry: a task's number never stands for it", () => {
    expect(words(["{}", "{1}", "{#}"])).toEqual(["{}", "{1}", "8"]);
  });

  it("are variables in a line for the shell, one for each kind", () => {
    expect(line("cp {} out/{.}.txt; echo \"$x{}\" '{}'", "it's")).toBe(
      `laboro_1='it'\\''s' laboro_2='it'\\''s'; cp "$laboro_1" out/"$laboro_2".txt; echo "$x\${laboro_1}" ''"$laboro_1"''`,
    );
  });

  it("are shown to people as they would be typed", () => {
    expect(shown("cat {} {/}", "dir/a.txt")).toBe("cat dir/a.txt a.txt");
    expect(shown("cat {} '{}' \"{}\"", "it's $x")).toBe(`cat 'it'\\''s $x' 'it'\\''s $x' "it's \\$x"`);
  });

  it("are refused at submission, with the reason and the way out", () => {
    const check = (argv: string, entries?: readonly string[]) => (): void =>
      checkPlaceholders({ kind: "command", argv: [argv], placeholders: true, shell: true }, entries);
    expect(check("echo `cat {}`", ["a"])).toThrow(
      "{} at character 11 of the line stands inside backquotes; write $(…)",
    );
    expect(check("echo ${x:-{.}}", ["a"])).toThrow("{.} at character 11 of the line stands inside ${…}");
    expect(check("cat <<'E'\n{}\nE", ["a"])).toThrow(/quoted delimiter.*"\$LABORO_ENTRY"/);
    expect(check("echo $(({}+1))", ["4", "x"])).toThrow('whole numbers only, not "x"');
    expect(check("echo $(({}+1))", ["4", "-5"])).not.toThrow();
    expect(check("echo `cat a{2}` {}", ["a"])).not.toThrow();
    expect(check("echo `cat a{2}` {1}", ["a\tb"])).toThrow("{2} at character 12");
    expect(check("echo {}")).toThrow("{} stands for an entry, and the job has no entries");
    expect(check("echo {#} ${1} ${#}; grep 'a{2}'")).not.toThrow();
  });
});
