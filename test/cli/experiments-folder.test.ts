/** What counts as an experiment, what is done already, and what is said about it. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ResFile } from "../../src/protocols/runexp/broker/incoming-result.js";
import { ProgressOutput, progressOptions } from "../../src/protocols/runexp/experiments/experiment-jobs.js";
import { Aftermath, findExperiments } from "../../src/protocols/runexp/experiments/folder.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "laboro-folder-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function write(path: string, text = ""): void {
  mkdirSync(join(dir, path, ".."), { recursive: true });
  writeFileSync(join(dir, path), text);
}

describe("the folder of scripts", () => {
  it("gives .sh and .m with their sub-folders, and nothing else", () => {
    for (const path of ["b.sh", "a.m", "sub dir/c.v1.sh", "notes.txt", "sub dir/x.sh~", ".sh/d.sh"]) write(path);
    // What laboro itself keeps below a folder of results.
    for (const path of [".laboro/runner/jobs/runexp_x.sh", "outputs/.laboro/e.m"]) write(path);
    symlinkSync("..", join(dir, "sub dir", "loop"));
    const { experiments, notices: remarks } = findExperiments(dir);
    expect(experiments.map(({ name, kind }) => `${name} ${kind}`)).toEqual([
      ".sh/d .sh",
      "a .m",
      "b .sh",
      "sub dir/c.v1 .sh",
    ]);
    expect(remarks).toEqual([]);
  });

  it("does not let two scripts write one result", () => {
    for (const path of ["x.sh", "x.m", "y.m", "z.m", "z.sh", "z.m.sh"]) write(path);
    const { experiments, notices: remarks } = findExperiments(dir);
    expect(experiments.map(({ path, name }) => `${path}: ${name}`)).toEqual([
      "x.m: x.m",
      "x.sh: x",
      "y.m: y",
      "z.m: z.m.m",
      "z.m.sh: z.m",
      "z.sh: z",
    ]);
    expect(remarks).toEqual([
      "x.sh and x.m have one name: the second writes x.m.res",
      "z.sh and z.m have one name: the second writes z.m.m.res",
    ]);
  });

  it("leaves out a name that cannot be sent", () => {
    for (const path of ["a\nb.sh", ".sh", "sub/.m"]) write(path);
    const { experiments, notices: remarks } = findExperiments(dir);
    expect(experiments).toEqual([]);
    expect(remarks).toEqual([
      '".sh" is left out: it has no name but its extension',
      '"a\\nb.sh" is left out: a name with a line break cannot be sent to a runner',
      '"sub/.m" is left out: it has no name but its extension',
    ]);
  });
});

describe("what is done", () => {
  it("is said by the table, else by the first line, else by the last RES:, and never without a result", () => {
    writeFileSync(join(dir, "runexp.am"), "t1\n1\nt0\n0\ngone\n1");
    write("t1.res", "runexp summary: failure\n");
    write("t0.res", "runexp summary: success\n");
    write("s.res", "runexp summary: success\n\nRES:failed\n");
    write("f.res", "runexp summary: failure\n\nRES:done\n");
    write("old.res", "something\nRES:done\nmore\n");
    write("older.res", "RES:done\nRES: failed\n");
    write("empty.res", "");
    const aftermath = new Aftermath(dir);
    const done = ["t1", "t0", "gone", "s", "f", "old", "older", "empty", "none"].filter((name) =>
      aftermath.isDone(name),
    );
    expect(done).toEqual(["t1", "s", "old"]);
  });

  it("is kept in the original's form", () => {
    const aftermath = new Aftermath(dir);
    aftermath.set("sub dir/my job", true);
    aftermath.set("b", false);
    aftermath.set("c", true);
    aftermath.forget("c");
    aftermath.save();
    expect(readFileSync(join(dir, "runexp.am"), "utf8")).toBe("sub dir/my job\n1\nb\n0");
    write("sub dir/my job.res", "x");
    expect(new Aftermath(dir).isDone("sub dir/my job")).toBe(true);
  });

  it("is not guessed from a table that is broken", () => {
    writeFileSync(join(dir, "runexp.am"), "a\nyes\n");
    expect(() => new Aftermath(dir)).toThrow(/expected 0 or 1/);
  });
});

describe("a result", () => {
  const place = (): { readonly outputs: string; readonly drafts: string } => {
    mkdirSync(join(dir, "drafts"));
    return { outputs: dir, drafts: join(dir, "drafts") };
  };

  it("appears whole, in a folder that is made for it, or not at all", async () => {
    const options = place();
    const file = new ResFile("sub/a", options);
    file.write(Buffer.alloc(300_000, "a"));
    file.write(Buffer.from("end"));
    expect(findExperiments(dir).experiments).toEqual([]);
    await file.sync();
    expect(() => readFileSync(join(dir, "sub", "a.res"))).toThrow();
    file.publish();
    await file.syncName();
    expect(readFileSync(join(dir, "sub", "a.res"), "latin1")).toBe(`${"a".repeat(300_000)}end`);
    const other = new ResFile("b", options);
    other.write(Buffer.alloc(300_000, "b"));
    other.abandon();
    expect(() => readFileSync(join(dir, "b.res"))).toThrow();
    expect(readdirSync(join(dir, "drafts"))).toEqual([]);
  });

  it("that cannot be written says which, and leaves nothing", async () => {
    const file = new ResFile("a", { outputs: dir, drafts: join(dir, "nowhere") });
    expect(() => file.write(Buffer.from("text"))).toThrow(/cannot write .*a\.res: ENOENT/);
    await expect(file.sync()).rejects.toThrow(/cannot write/);
    file.abandon();
    expect(readdirSync(dir)).toEqual([]);
  });

  it("that is empty is there too", async () => {
    const file = new ResFile("empty", place());
    await file.sync();
    file.publish();
    await file.syncName();
    expect(readFileSync(join(dir, "empty.res"), "latin1")).toBe("");
  });
});

describe("the lines", () => {
  it("are those of queueexp", () => {
    let said = "";
    const screen = (options: Parameters<typeof progressOptions>[0]) =>
      new ProgressOutput(progressOptions(options), (text) => (said += text));
    screen({}).assigned("vm", "a", 6, 20);
    expect(said).toBe("[ 30.0%] 6/20\r");
    said = "";
    screen({ shownames: true }).assigned("vm", "a", 1, 3);
    expect(said).toMatch(/^[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \[ 33\.3%\] vm: a\n$/);
    said = "";
    screen({}).ended("vm", "a", "success");
    screen({ quiet: true }).ended("vm", "a", "failure");
    screen({ quiet: true }).assigned("vm", "a", 1, 3);
    expect(said).toBe("");
    screen({}).ended("vm", "a", "failure");
    expect(said).toMatch(/ \[RESULT\] vm: finished a with failure\n$/);
  });

  it.each([
    [{}, { progress: true, assignments: false, ends: "failure" }],
    [{ progress: true }, { progress: true, assignments: false, ends: "none" }],
    [{ shownames: true }, { progress: false, assignments: true, ends: "none" }],
    [
      { shownames: true, failure: true },
      { progress: false, assignments: true, ends: "failure" },
    ],
    [{ aftermath: true }, { progress: true, assignments: false, ends: "all" }],
    [{ success: true }, { progress: true, assignments: false, ends: "success" }],
    [
      { success: true, failure: true },
      { progress: true, assignments: false, ends: "all" },
    ],
    [{ quiet: true }, { progress: false, assignments: false, ends: "none" }],
    [
      { quiet: true, aftermath: true },
      { progress: false, assignments: false, ends: "all" },
    ],
  ])("of %j are %j", (given, expected) => {
    expect(progressOptions(given)).toEqual(expected);
  });
});
