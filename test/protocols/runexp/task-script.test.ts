/** What is shipped to a runner, run by the bash that a runner would use. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Recipe } from "../../../src/model/recipe.js";
import {
  makeTaskScript,
  type TaskParameters,
  type TaskReport,
  TaskReportReader,
} from "../../../src/protocols/runexp/broker/task-script.js";
import { resStatusOf, writeResHeader } from "../../../src/protocols/runexp/res-text.js";

const MARK = "0123456789abcdef";
let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "laboro-script-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

interface Ran extends TaskReport {
  readonly output: string;
  readonly raw: Buffer;
}

type ProcessRecipe = Extract<Recipe, { kind: "command" | "script" }>;

function run(recipe: ProcessRecipe, task: Partial<TaskParameters> = {}, pieces = 1): Ran {
  const { content, kind } = makeTaskScript(recipe, { job: 7, index: 2, number: 3, attempt: 1, ...task }, MARK);
  expect(kind).toBe(".sh");
  const script = join(dir, "runexp_x.sh");
  writeFileSync(script, content);
  const env = { ...process.env, TMPDIR: dir };
  const { stdout, status } = spawnSync("bash", [script], { env, cwd: dir, input: "not for the task\n" });
  const header = writeResHeader({
    ...{ name: "laboro-7.3", host: "h", command: `bash '${script}'`, started: "a", ended: "b" },
    ...{ waitStatus: (status ?? 1) * 256, status: resStatusOf(stdout) },
  });
  const text = Buffer.concat([Buffer.from(header), stdout]);
  const parts: Buffer[] = [];
  const reader = new TaskReportReader(MARK, (bytes) => void parts.push(Buffer.from(bytes)));
  const size = Math.ceil(text.length / pieces);
  for (let at = 0; at < text.length; at += size) reader.push(text.subarray(at, at + size));
  return { ...reader.end(), output: Buffer.concat(parts).toString(), raw: stdout };
}

describe("a task as a script for a runner", () => {
  it("says what its command said, and how it ended", () => {
    const good = run({ kind: "command", argv: ["sh", "-c", "printf hello; echo oops >&2"] });
    expect(good).toMatchObject({ output: "hellooops\n", exit: 0, completed: true });
    expect(resStatusOf(good.raw)).toBe("success");
    const bad = run({ kind: "command", argv: ["sh", "-c", "echo no; exit 3"] });
    expect(bad).toMatchObject({ output: "no\n", exit: 3, completed: true });
    expect(resStatusOf(bad.raw)).toBe("failure");
  });

  it("writes its output to the files that it names", () => {
    const files = { stdout: "{job}/{#}-{}", stderr: "err.{attempt}" };
    const shell = ["echo {}; echo oops >&2; exit 4"];
    const task = { entry: "it's", attempt: 2 };
    writeFileSync(join(dir, "err.2"), "before");
    const line = run({ kind: "command", argv: shell, shell: true, placeholders: true, dir, ...files }, task);
    expect(line).toMatchObject({ output: "", exit: 4, completed: true });
    const read = (name: string) => readFileSync(join(dir, name), "utf8");
    expect([read("7/3-it's"), read("err.2"), read("err.2~1")]).toEqual(["it's\n", "oops\n", "before"]);
    const content = Buffer.from("echo $1; echo oops >&2");
    const script = run({ kind: "script", content, type: ".sh", args: ["{}"], output: "both", dir }, task);
    expect([script.exit, script.output, read("both")]).toEqual([0, "", "it's\noops\n"]);
  });

  it("is read the same in pieces of any size", () => {
    const recipe: ProcessRecipe = { kind: "command", argv: ["sh", "-c", "echo RES:failed; echo; exit 4"] };
    for (const pieces of [1, 2, 3, 7, 50, 10_000]) {
      expect(run(recipe, {}, pieces)).toMatchObject({ output: "RES:failed\n\n", exit: 4 });
    }
  });

  it("gives the command its words untouched, and no builtin in the place of a program", () => {
    const odd = ["a b", "'", '"', "$HOME", "`id`", "\\", "*", "new\nline", "ç", ""];
    const { output } = run({ kind: "command", argv: ["printf", "%s|", ...odd] });
    expect(output).toBe(odd.map((word) => `${word}|`).join(""));
    expect(run({ kind: "command", argv: ["laboro_end", "x", "0"] })).toMatchObject({ exit: 127 });
  });

  it("gives nothing of the runner's input to the command", () => {
    expect(run({ kind: "command", argv: ["cat"] })).toMatchObject({ output: "", exit: 0 });
    const stdin = Buffer.from([0, 1, 255, 10, 65]);
    const { raw } = run({ kind: "command", argv: ["od", "-An", "-tu1"], stdin });
    expect(raw.toString()).toMatch(/^\s+0\s+1\s+255\s+10\s+65\n/);
  });

  it("puts in what belongs to the task: entry, number, variables, directory", () => {
    const recipe: ProcessRecipe = {
      kind: "command",
      argv: [
        "sh",
        "-c",
        'echo "$1 $2 $LABORO_JOB.$LABORO_TASK $LABORO_ATTEMPT $LABORO_ENTRY $A $UID"; pwd',
        "sh",
        "{}",
        "{#}",
      ],
      placeholders: true,
      env: { A: "it's", UID: "77" },
      dir: "/tmp",
    };
    expect(run(recipe, { entry: "x y.txt" }).output).toBe("x y.txt 3 7.3 1 x y.txt it's 77\n/tmp\n");
    const line: ProcessRecipe = { kind: "command", argv: ["echo {.} '{}'"], placeholders: true, shell: true };
    expect(run(line, { entry: "x y.txt" }).output).toBe("x y x y.txt\n");
    const nested: ProcessRecipe = { ...line, argv: ['echo "$(printf %s {})" # it\'s\necho {}'] };
    expect(run(nested, { entry: "a; echo PWN" }).output).toBe("a; echo PWN\na; echo PWN\n");
    expect(() => run({ ...line, argv: ["echo {%}"] }, { entry: "a" })).toThrow("{%} cannot be used");
    const array = [{ first: 10, last: 30, step: 10 }];
    expect(run({ kind: "command", argv: ["echo", "{}"], placeholders: true, array }).output).toBe("30\n");
  });

  it("runs a script with what its first line or its extension says", () => {
    const content = Buffer.from('#!/usr/bin/env bash\necho "$BASH_VERSION $# $1"\nexit 5\n');
    expect(run({ kind: "script", type: ".sh", content, args: ["{}"] }, { entry: "e" })).toMatchObject({
      output: expect.stringMatching(/^\d+\..* 1 e\n$/),
      exit: 5,
    });
    expect(run({ kind: "script", type: ".sh", content: Buffer.from("echo plain") }).output).toBe("plain\n");
    expect(readdirSync(dir)).toEqual(["runexp_x.sh"]);
  });

  it("says what became of a task that could not begin", () => {
    expect(run({ kind: "command", argv: ["true"], dir: "/nowhere" })).toMatchObject({ exit: 1, reason: "directory" });
    expect(run({ kind: "command", argv: ["/nowhere/x"] })).toMatchObject({ exit: 127, completed: true });
    const log = "/nowhere/x.log";
    expect(run({ kind: "command", argv: ["true"], log })).toMatchObject({ reason: "log" });
  });

  it("ends a task at its time limit, with all that it has started", () => {
    const late = run({ kind: "command", argv: ["sh", "-c", "echo begun; sleep 60; echo never"] }, { timeLimitMs: 200 });
    expect(late).toMatchObject({ output: "begun\n", exit: 143, reason: "timeout", completed: true });
    expect(run({ kind: "command", argv: ["sh", "-c", "echo soon; exit 6"] }, { timeLimitMs: 60_000 })).toMatchObject({
      output: "soon\n",
      exit: 6,
    });
  });

  it("writes a log beside, always a new one", () => {
    const recipe: ProcessRecipe = { kind: "command", argv: ["sh", "-c", "echo one; exit 2"], log: "out_{#}.log", dir };
    expect(run(recipe)).toMatchObject({ output: "one\n", exit: 2 });
    expect(run(recipe, { timeLimitMs: 60_000 })).toMatchObject({ output: "one\n", exit: 2 });
    expect(readFileSync(join(dir, "out_3.log"), "utf8")).toBe("one\n");
    expect(readFileSync(join(dir, "out_3-1.log"), "utf8")).toBe("one\n");
  });

  it("is told by the runner how it ended, where it did not come to say it", () => {
    const killed = run({ kind: "command", argv: ["sh", "-c", "echo x; kill -9 $PPID"] });
    expect(killed).toMatchObject({ output: "x\n", completed: false });
  });

  it("is not fooled by a task that prints its own script", () => {
    const recipe: ProcessRecipe = { kind: "command", argv: ["cat", join(dir, "runexp_x.sh")] };
    const { output, exit } = run(recipe);
    expect(exit).toBe(0);
    expect(output).toContain("laboro_end()");
    expect(output.endsWith('"$laboro_status"\n')).toBe(true);
  });

  it("passes on what something left behind says after the end", () => {
    const left = run({ kind: "command", argv: ["sh", "-c", "(sleep 0.3; echo later) & echo now"] });
    expect(left).toMatchObject({ output: "now\nlater\n", exit: 0 });
  });

  it("goes to MATLAB as it is, with its directory and variables before it", () => {
    const content = Buffer.from("disp(1)\n");
    const made = makeTaskScript({ kind: "script", type: ".m", content, dir: "/it's", env: { A: "b" } }, task(), MARK);
    expect(made).toMatchObject({ kind: ".m", reportsOutcome: false });
    expect(made.content.toString()).toBe("setenv('A', 'b'); cd('/it''s'); disp(1)\n");
    expect(() => makeTaskScript({ kind: "script", type: ".m", content, args: ["x"] }, task(), MARK)).toThrow(
      /no arguments/,
    );
  });

  it("refuses a word that no command can have", () => {
    expect(() => makeTaskScript({ kind: "command", argv: ["echo", "a\0b"] }, task(), MARK)).toThrow(/NUL/);
  });
});

const task = (): TaskParameters => ({ job: 1, index: 0, number: 1, attempt: 1 });
