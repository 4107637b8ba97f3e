// biome-ignore-all lint/suspicious/noTemplateCurlyInString: ${ is the shell's
/** Lines for the shell with placeholders, run by a real dash and a real bash. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { expandLine } from "../../src/model/placeholders.js";
import { scaled } from "../support/scale.js";

const SHELLS = ["dash", "bash"].filter((shell) => spawnSync(shell, ["-c", ":"]).status === 0);
const RUNS = scaled(100);
const dir = mkdtempSync(join(tmpdir(), "laboro-line-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** Prints its arguments so that each is told apart. A value that is run creates a file PWN. */
const PRELUDE = `p() { printf '<%s>' "$@"; }\n`;

function run(shell: string, line: Uint8Array): string {
  const word = `'${Buffer.from(line).toString("latin1").replaceAll("'", "'\\''")}'`;
  const input = Buffer.from(`ulimit -t 2; exec ${shell} -c ${word} </dev/null 2>/dev/null\n`, "latin1");
  const env = { PATH: process.env.PATH, LC_ALL: "C.UTF-8" };
  const options = { input, cwd: dir, env, timeout: 5_000, killSignal: "SIGKILL", detached: true } as const;
  const { stdout, pid } = spawnSync("/bin/sh", [], options);
  endGroup(pid);
  return stdout.toString("latin1");
}

/** What a line left running in the background, or had not ended in time. */
function endGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // Usually nothing is left.
  }
}

/** The line as it is run, or the reason why it is refused. */
function expanded(line: string, entry: string): Uint8Array | string {
  try {
    return Buffer.from(
      expandLine(Buffer.from(PRELUDE + line, "latin1"), { number: 3, entry: Buffer.from(entry, "latin1"), slot: 2 }),
    );
  } catch (cause) {
    return String(cause);
  }
}

function expectNothingRan(line: string, entry: string): void {
  const files = readdirSync(dir);
  for (const file of files) rmSync(join(dir, file), { recursive: true, force: true });
  if (files.includes("PWN")) throw new Error(`the entry ${JSON.stringify(entry)} was run by ${JSON.stringify(line)}`);
}

const HOSTILE = ["$(touch PWN)", "`touch PWN`", "; touch PWN;", "'; touch PWN; '", '"; touch PWN; "', "\n touch PWN\n"];
const entries = fc.oneof(
  fc
    .array(
      fc.constantFrom(
        ...HOSTILE,
        ...["a[$(touch PWN)]", "$((a[$(touch PWN)]))", "E\ntouch PWN\n", "\nE\ntouch PWN\n", ")touch PWN;(", "${x:=y}"],
        ...[" ", "\n", "*", "?", "[a]", "~", "-n", "--", "-", "\\", "'", '"', "$x", "#", "!", "&", "|", "{}", "{#}"],
        ...["\x80", "\xff", "\xc3\xa9", "\x81", "\x88", "=", "A=1", "%s", "\r", "esac", ";;", "a", "5"],
      ),
      { maxLength: 6 },
    )
    .map((parts) => parts.join("")),
  fc.uint8Array({ maxLength: 12 }).map((bytes) => Buffer.from(bytes.filter((byte) => byte !== 0)).toString("latin1")),
);

/** A command, and what it prints for a value. */
interface Sample {
  readonly line: string;
  readonly prints: (value: string) => string;
}
const sample = (line: string, prints: Sample["prints"]): Sample => ({ line, prints });
const text = (line: string, printed: string): Sample => sample(line, () => printed);

const SIMPLE: readonly Sample[] = [
  sample("p {}", (v) => `<${v}>`),
  sample('p "{}" {}', (v) => `<${v}><${v}>`),
  sample("p '{}' a{}b", (v) => `<${v}><a${v}b>`),
  sample(`p "it's {}" 'say "{}"'`, (v) => `<it's ${v}><say "${v}">`),
  sample('p "\\{}" "\\\\{}" "\\"{}" "\\${}"', (v) => `<\\${v}><\\${v}><"${v}><$${v}>`),
  sample("p \\'{} \\\"{} \\\\{} \\# {}", (v) => `<'${v}><"${v}><\\${v}><#><${v}>`),
  sample("p '\\'{}", (v) => `<\\${v}>`),
  text("p \\{} \\{\\}", "<{}><{}>"),
  sample("p {}{} {#}{%} '{#}'x", (v) => `<${v}${v}><32><3x>`),
  sample("p a#{} # it's {} `\np {}", (v) => `<a#${v}><${v}>`),
  sample('p "$(printf %s. {})"', (v) => `<${v}.>`),
  sample(`p "$(printf %s. "{}" '{}')"`, (v) => `<${v}.${v}.>`),
  sample(`p "$(printf %s. "$(printf %s. {})")"`, (v) => `<${v}..>`),
  sample('p "$(case x in x) printf %s. {};; esac)"', (v) => `<${v}.>`),
  sample('p "$(case {} in (y) :;; {}) printf %s. {}; esac # )\n)"', (v) => (v === "y" ? "<>" : `<${v}.>`)),
  sample("case {} in a) p no;; {}) p {};; esac", (v) => (v === "a" ? "<no>" : `<${v}>`)),
  sample("case x in (y) p no;; *) case y in y) p {};; esac esac", (v) => `<${v}>`),
  sample("f() { p {} \"$1\"; }; f '{}'", (v) => `<${v}><${v}>`),
  sample('set -- {} "b{}"; p "$@" ${#} ${1:+set}', (v) => `<${v}><b${v}><2>${v === "" ? "" : "<set>"}`),
  sample('X={}; Y=a{}b; p "$X" "$Y" "${X}"', (v) => `<${v}><a${v}b><${v}>`),
  sample('X=$(printf %s. {}) && p "$X"', (v) => `<${v}.>`),
  sample("for x in {} '{}'; do p \"$x\"; done", (v) => `<${v}><${v}>`),
  sample("if p {}; then p '{}'; else p no; fi", (v) => `<${v}><${v}>`),
  sample("while p {}; do break; done", (v) => `<${v}>`),
  sample("{ p {}; }; (p {}); p {} | cat", (v) => `<${v}><${v}><${v}>`),
  sample("cat <<E; p {}\nit's {} \"{}\" \\{} $(printf %s. '{}')\nE\n", (v) => `it's ${v} "${v}" \\${v} ${v}.\n<${v}>`),
  sample("cat <<A; cat <<-B\n{}\nA\n\t({}\n\tB\np {}", (v) => `${v}\n(${v}\n<${v}>`),
  sample("cat <<'E'; p {}\nit's \"$( ` \\\nE\n", (v) => `it's "$( \` \\\n<${v}>`),
  sample('cat <<\\E "-"; p {}\nit\'s\nE\n', (v) => `it's\n<${v}>`),
  sample("cat <<E\na\\\nE\n{}\nE\np {}", (v) => `aE\n${v}\n<${v}>`),
  sample('p "$(cat <<E\n) {}.\nE\n)" {}', (v) => `<) ${v}.><${v}>`),
  sample("p $((1 + (2 * 3))) ${unset:-a} ${unset:-'}'} {}", (v) => `<7><a><}><${v}>`),
  sample('p "${x:-a}{}" "$x{}" "$1{}" $$$$ >/dev/null; p {}', (v) => `<${v}>`),
  sample("p {} >/dev/null 2>&1; p {} 2>/dev/null", (v) => `<${v}>`),
  sample('p `printf "it\'s" \\`echo\\`` {}', (v) => `<it's><${v}>`),
];

/** Lines that are refused, or right where the value is a whole number. */
const REFUSED: readonly Sample[] = [
  sample("p $(({} + 0))", (v) => `<${v}>`),
  sample("p $(( $(printf %s {}) * 1 ))", (v) => `<${v}>`),
  sample("p `printf %s {}`", (v) => `<${v}>`),
  sample('p "`printf %s {}`"', (v) => `<${v}>`),
  sample("p ${x:-{}}", (v) => `<${v}>`),
  sample('p "${x:-{}}"', (v) => `<${v}>`),
  sample("cat <<'E'\n{}\nE\n", (v) => `${v}\n`),
  sample("cat <<{}\n{}\n{}\n", (v) => v),
  sample("p $'{}'", (v) => `<${v}>`),
  sample('p $"{}"', (v) => `<${v}>`),
  sample("[[ {} -eq 5 ]]; (( {} )); a[{}]=1", () => ""),
];

const wrapped: readonly ((inner: Sample) => Sample)[] = [
  (inner) => inner,
  ({ line, prints }) => sample(`( ${line}\n)`, prints),
  ({ line, prints }) => sample(`{ ${line}\n}`, prints),
  ({ line, prints }) => sample(`p "$( ${line}\nprintf .)"`, (v) => `<${prints(v)}.>`),
  ({ line, prints }) => sample(`g() {\n${line}\n}; g`, prints),
  ({ line, prints }) => sample(`case a in\na) ${line}\n;; esac`, prints),
  ({ line, prints }) => sample(`# it's a "$(\n${line}`, prints),
  ({ line, prints }) => sample(`cat >/dev/null <<'X'\nit's "\nX\n${line}`, prints),
];

const samples = fc
  .array(fc.tuple(fc.constantFrom(...SIMPLE), fc.constantFrom(...wrapped), fc.constantFrom(...wrapped)), {
    minLength: 1,
    maxLength: 3,
  })
  .map((all) => all.map(([inner, one, two]) => two(one(inner))))
  .map((all) =>
    sample(all.map(({ line }) => line).join("\n"), (value) => all.map(({ prints }) => prints(value)).join("")),
  );

/** Lines of any structure. Each command that prints a value prints something after it, as $( ) cuts line breaks at the end. */
const { lines } = fc.letrec<Record<"word" | "quoted" | "body" | "command" | "lines", string>>((tie) => {
  const joined = (parts: fc.Arbitrary<string>, minLength = 0): fc.Arbitrary<string> =>
    fc.array(parts, { minLength, maxLength: 3 }).map((all) => all.join(""));
  const around = (before: string, inner: fc.Arbitrary<string>, after: string): fc.Arbitrary<string> =>
    inner.map((text) => before + text + after);
  const single = joined(fc.constantFrom("{}", "a", '"', "$(", "`", "\\", "#", " ", "\n", ")", "E"));
  const subjects = ["a in a)", "a in (a)", "{} in {})", "'{}' in \"{}\")", '"$(p a)" in "<a>")', "a in b|a)"];
  return {
    word: joined(
      fc.oneof(
        { maxDepth: 2 },
        fc.constantFrom(
          "{}",
          "{}",
          "a",
          "#",
          "\\'",
          "\\\\",
          '\\"',
          "$#",
          "${#}",
          "\\{\\}",
          "=",
          "~",
          "${unset:-b}",
          "$((2*(1+2)))",
        ),
        around("'", single, "'"),
        around('"', tie("quoted"), '"'),
        around("$({ ", tie("lines"), "\n} >/dev/null)"),
      ),
      1,
    ),
    quoted: joined(
      fc.oneof(
        { maxDepth: 2 },
        fc.constantFrom("{}", "{}", "a", "'", '\\"', "\\\\", "\\{}", "\\$", "\\`", "$x", "#", " ", "\n", "(", ")", "$"),
        around("$( ", tie("lines"), "\nprintf .)"),
        around("${unset:-", fc.constantFrom("a", "\\}"), "}"),
      ),
    ),
    body: joined(
      fc.oneof(
        { maxDepth: 2 },
        fc.constantFrom(
          "{}",
          "{}",
          "a",
          "'",
          '"',
          "\\\\",
          "\\{}",
          "\\$",
          "$x",
          "#",
          "\n",
          "\\\n",
          ")",
          "\nE ",
          "\n\tE",
        ),
        around("$( ", tie("lines"), "\nprintf .)"),
      ),
    ),
    command: fc.oneof(
      { maxDepth: 3 },
      around("p ", tie("word"), ""),
      fc.tuple(tie("word"), tie("word")).map(([one, two]) => `p ${one} ${two}`),
      around("x=", tie("word"), '; p "$x"'),
      around("set -- ", tie("word"), '; p "$@"'),
      around("for x in ", tie("word"), '; do p "$x"; done'),
      around("# ", single, "\np end"),
      fc.tuple(fc.constantFrom(...subjects), tie("lines")).map(([subject, list]) => `case ${subject} ${list}\n;; esac`),
      around("( ", tie("lines"), "\n)"),
      around("{ ", tie("lines"), "\n}"),
      around("if ", tie("lines"), "\nthen p ok; fi"),
      around("p a | cat; cat <<E; p {}\n", tie("body"), ".\nE"),
      around("cat <<-E\n\t", tie("body"), ".\n\tE"),
      around("cat <<'E'; p {}\n", single, ".\nE"),
    ),
    lines: fc.array(tie("command"), { minLength: 1, maxLength: 2 }).map((all) => all.join("\n")),
  };
});

/** With something out of place in some of them. */
const noisyLines = fc
  .tuple(
    lines,
    fc.nat(),
    fc.oneof(
      fc.constant(""),
      fc.constantFrom(..."'\"`\\\n#;|(){}<$[", "{}", "$(", "${", "((", "<<E", ";;", "esac", "case ", "[[ "),
    ),
  )
  .map(([line, at, noise]) => ({
    line: line.slice(0, at % line.length) + noise + line.slice(at % line.length),
    noise,
  }))
  // The number of a process is another one each time, `set` alone prints all variables, and {#} stands for a number.
  .filter(
    ({ line }) =>
      line.includes("{}") && !/(?<!\$)\{#\}|\$\{?\$|set(?! -- \w*[^\s;&|()<>`])/.test(line.replaceAll("unset", "")),
  );

describe("a placeholder in a line for the shell", () => {
  it("gives the value as it is, wherever it stands, and runs nothing of it", () => {
    fc.assert(
      fc.property(samples, entries, fc.constantFrom(...SHELLS), ({ line, prints }, entry, shell) => {
        const script = expanded(line, entry);
        if (typeof script === "string") throw new Error(script);
        // bash 5.2 loses a `;` after a here-document within $( ), whatever it is given.
        fc.pre(shell !== "bash" || !/\$\( .*<</s.test(line));
        expect(run(shell, script)).toBe(prints(entry));
        expectNothingRan(line, entry);
      }),
      { numRuns: RUNS },
    );
  });

  it("is refused where a value could be evaluated or would be changed, unless it is a whole number in arithmetic", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...REFUSED),
        fc.constantFrom(...wrapped),
        fc.oneof(entries, fc.integer().map(String)),
        fc.constantFrom(...SHELLS),
        (refused, wrap, entry, shell) => {
          const { line, prints } = wrap(refused);
          const script = expanded(line, entry);
          if (typeof script === "string") expect(script).toContain("stands");
          else {
            expect(entry).toMatch(/^-?\d+$/);
            if (!refused.line.includes("[[")) expect(run(shell, script)).toBe(prints(entry));
            else run(shell, script);
          }
          expectNothingRan(line, entry);
        },
      ),
      { numRuns: RUNS },
    );
    for (const { line } of REFUSED) expect(expanded(line, "x")).toContain("LaboroError: {} at character");
  });

  it("means in any line what its text would mean, or is refused", () => {
    const plain = "zQz";
    const values = fc.constantFrom(
      ...HOSTILE,
      "a[$(touch PWN)]",
      "a  *",
      "",
      "-x\n",
      "it's",
      '"',
      "\\",
      ";>PWN;",
      "$(>PWN)",
      "`>PWN`",
    );
    fc.assert(
      fc.property(noisyLines, values, fc.constantFrom(...SHELLS), ({ line, noise }, entry, shell) => {
        const [script, safe] = [expanded(line, entry), expanded(line, plain)];
        if (typeof script === "string" || typeof safe === "string") return;
        const printed = run(shell, script);
        expectNothingRan(line, entry);
        // As a name of a command, a function or a variable, values differ.
        if (noise === "{}") return;
        const printedSafe = run(shell, safe);
        expectNothingRan(line, plain);
        // With something out of place, the line itself may split a value, as in p $(p {}).
        if (noise === "" || !/[\s*?[]/.test(entry)) expect(printed).toBe(printedSafe.replaceAll(plain, entry));
        const asText = PRELUDE + line.replaceAll("{}", plain);
        // After a variable's name the text means another variable, and a backslash keeps the braces: the noise may be one, or part two.
        // Where `$` is text, as in a quoted here-document, {#} after it stands for a number.
        const keepsBraces = noise === "\\" || /(?<!\\)(\\\\)*\\\{\}/.test(line);
        if (!keepsBraces && !/\$[A-Za-z_0]\w*\{|\$\{#?\}/.test(line))
          expect(printedSafe).toBe(run(shell, Buffer.from(asText, "latin1")));
        expectNothingRan(line, plain);
      }),
      { numRuns: RUNS },
    );
  });
});
