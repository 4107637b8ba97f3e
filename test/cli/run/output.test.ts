import { existsSync, statSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { openCliBroker } from "../support/cli.js";
import { openPlace } from "./place.js";

/** 22.9 MB: more than the 16 MiB that are kept of a task. */
const LARGE = "seq 3000000 >big";
/** 3.4 MB. */
const MEDIUM = "seq 500000 >big";

/** Writes how many bytes the buffers of the run have, without garbage, once there is a file "measure". */
const BUFFERS = `
  if (process.argv[2] === "run") {
    require("node:v8").setFlagsFromString("--expose-gc");
    const collect = require("node:vm").runInNewContext("gc");
    const write = () => require("node:fs").writeFileSync("buffers", process.memoryUsage().arrayBuffers + "\\n");
    setInterval(() => require("node:fs").existsSync("measure") && [collect(), write()], 100).unref();
  }`;

describe("the output of laboro run", () => {
  it("is all that a task writes, however much is kept of it, and says how much that is", async () => {
    const place = openPlace();
    const { code, stdout, stderr } = await place.shell(`${LARGE}; laboro run -k 'cat {}' ::: big | cmp - big`).said;
    expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
    expect(stderr).toContain(
      "task 1 (big): only 16.0 MiB of its 21.8 MiB of output are kept for laboro logs; --output-cap",
    );
    const logs = await place.laboro("logs", "last", "--stream", "stderr");
    expect(logs.stderr).toContain("were not kept");
  });

  it("is that of each task in turn, with both streams apart, where several write more than is kept", async () => {
    const place = openPlace();
    const line =
      `${MEDIUM}; laboro run -k -j 3 --output-cap 1000000 'cat {} | tee /dev/stderr' ::: big big big >out 2>err; echo $?; ` +
      "cat big big big | cmp - out; grep -av '^laboro: task \\|^3 tasks' err | cmp - out";
    expect(await place.shell(line).said).toMatchObject({ code: 0, stdout: "0\n" });
  });

  it("is all there with a cap of none, and later in logs as well; sizes have units", async () => {
    const place = openPlace();
    const line = `${MEDIUM}; laboro run --output-cap none 'cat big' | cmp - big && laboro logs last | cmp - big`;
    const { code, stderr } = await place.shell(line).said;
    expect(code).toBe(0);
    expect(stderr).not.toContain("kept");
    expect((await place.run("--output-cap", "500M", "true")).code).toBe(0);
    expect(JSON.parse((await place.laboro("status", "last", "--json")).stdout).limits.outputCap).toBe(500 * 2 ** 20);
    expect((await place.run("--output-cap", "much", "true")).code).toBe(2);
  });

  it("is not kept in memory once it is printed", async () => {
    const place = openPlace();
    writeFileSync(place.file("buffers.cjs"), BUFFERS);
    const command = "head -c 12000000 /dev/zero; until test -e go; do sleep 0.05; done";
    const run = place.shell(
      `NODE_OPTIONS='--require ./buffers.cjs' laboro run --output-cap none '${command}' | tee out | wc -c`,
    );
    await until(
      "it is printed",
      () => existsSync(place.file("out")) && statSync(place.file("out")).size === 12_000_000,
    );
    writeFileSync(place.file("measure"), "");
    await until("its memory is free", () => Number(place.lines("buffers")[0] ?? 1e9) < 8_000_000);
    writeFileSync(place.file("go"), "");
    expect(await run.said).toMatchObject({ code: 0, stdout: "12000000\n" });
  });

  it("is that of the last attempt, however much the one before wrote", async () => {
    const place = openPlace();
    const line =
      `${MEDIUM}; laboro run --retries 1 --output-cap 10000 'cat {}; test {} = small || test $LABORO_ATTEMPT = 2' ` +
      "::: big small >out 2>err; echo $?; (cat big; echo x) | wc -c; wc -c <out";
    const { stdout } = await place.shell(`echo x >small; ${line}`).said;
    const [code, expected, printed] = stdout.trim().split("\n");
    expect(code).toBe("0");
    expect(printed).toBe(expected);
  });

  it("comes whole from a worker elsewhere, over a broker that is named", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 2 });
    const run = (...words: string[]) =>
      setup.laboro(["run", "--output-cap", "1000000", ...words], { pipe: "md5sum", process: true });
    const one = await run("--", "seq", "1000000");
    expect(one).toMatchObject({ code: 0, stdout: "8a7095c1c23bfadc311fe6b16d950582  -\n" });
    const two = await run("-k", "--", "seq", ":::", "1000000", "1000000");
    expect(two).toMatchObject({ code: 0, stdout: "d3a7d000e73de8c92da44debeb99d5f4  -\n" });
  });

  it("that finds no room until its turn is lost, which is said and fails the run", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 2 });
    const line = "test {} = 1 && sleep 0.5; seq 100000";
    const env = { LABORO_DATA: setup.data, TMPDIR: "/nonexistent" };
    const { code, stderr } = await openPlace(env).begin(["run", "-k", "--output-cap", "1000", line, ":::", "1", "2"])
      .said;
    expect(code).toBe(1);
    expect(stderr).toContain(
      "task 2 (2): 574 KiB of its 575 KiB of output are lost (temporary files cannot be made in /nonexistent " +
        "(there is no such folder); set TMPDIR to a folder where you may write)",
    );
    expect(stderr).toContain("2 tasks: 2 succeeded");
  });

  it("is byte for byte what the tasks wrote, without a newline added", async () => {
    const place = openPlace();
    const line =
      "head -c 100000 /dev/urandom >whole; split -b 30000 whole part.; printf '' >part.zz; " +
      "laboro run -k -- cat {} ::: part.* | cmp - whole";
    expect(await place.shell(line).said).toMatchObject({ code: 0, stdout: "" });
    expect((await place.run("-k", "--tag-output", "printf {}", ":::", "a", "b")).stdout).toBe("a\ta\nb\tb\n");
  });

  it("on a terminal, is followed by a summary on a line of its own", async () => {
    const place = openPlace();
    const one = await place.begin(["run", "--", "printf", "no newline"], true).said;
    expect(one.stdout).toMatch(/no newline\r\n1 task: 1 succeeded/);
  });

  it("that is taken slowly slows down its own task, and no other run in the same directory", async () => {
    const place = openPlace();
    const steps = "for i in $(seq 60); do head -c 1000000 /dev/zero; echo $i >>steps; done";
    const slow = place.shell(
      `laboro run -j 2 --output-cap 2000000 -- sh -c '${steps}' | (until test -e go; do sleep 0.1; done; wc -c)`,
    );
    await until("the task has begun", () => place.lines("steps").length > 0);
    expect((await place.run("echo", "other")).stdout).toBe("other\n");
    expect((await place.run("sleep", "1")).code).toBe(0);
    // The head of 1 MB, windows and pipes: the rest waits for the reader.
    expect(place.lines("steps").length).toBeLessThan(10);
    await place.shell("touch go").said;
    expect(await slow.said).toMatchObject({ code: 0, stdout: "60000000\n" });
  });

  it("with --line-buffer is whole lines of running tasks as they come, and a last line that is not mixed", async () => {
    const place = openPlace();
    const task = "echo {} first; printf half; until test -e go; do sleep 0.05; done; echo +; printf 'end {}'";
    const run = place.begin(["run", "-j2", "--line-buffer", "--tag-output", task, ":::", "a", "b"]);
    await until("both tasks show a line", () => /a\ta first\n/.test(run.output()) && /b\tb first\n/.test(run.output()));
    expect(run.output()).not.toContain("half");
    writeFileSync(place.file("go"), "");
    const { stdout } = await run.said;
    const linesOf = (tag: string): readonly string[] =>
      stdout.split("\n").filter((line) => line.startsWith(`${tag}\t`));
    for (const tag of ["a", "b"])
      expect(linesOf(tag)).toEqual([`${tag}\t${tag} first`, `${tag}\thalf+`, `${tag}\tend ${tag}`]);
    expect(stdout).toHaveLength(2 * "a\ta first\na\thalf+\na\tend a\n".length);
    const retried = "printf $LABORO_ATTEMPT; test $LABORO_ATTEMPT = 2";
    const both = await place.run("-u", "--retries", "1", "--retry-wait", "0.01", `: {}; ${retried}`, ":::", "a", "b");
    expect(both.stdout.replaceAll("1\n", "")).toBe("2\n2\n");
    const ordered = await place.run("--lb", "-k", "echo", ":::", "a");
    expect(ordered).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("--keep-order and --line-buffer exclude"),
    });
  });

  it("with --line-buffer has every byte, in order, also beyond the cap and in long lines", async () => {
    const place = openPlace();
    const line =
      `seq 100000 >big; (head -c 300000 /dev/zero | tr '\\0' x; echo) >>big; for cap in 0 100000 none; do ` +
      "laboro run -j2 --lb --tag-output --output-cap $cap ': {}; cat big | tee /dev/stderr' ::: a b >out 2>err; " +
      "for tag in a b; do for file in out err; do grep -a ^$tag$'\\t' $file | cut -c3- | cmp - big; done; done; done";
    expect(await place.shell(line).said).toMatchObject({ code: 0, stdout: "", stderr: "" });
  });

  it("with --line-buffer is complete once the same command resumes what lost its reader", async () => {
    const place = openPlace();
    const line =
      `${MEDIUM}; again() { laboro run -j2 --lb ': {}; cat big; test -e go || sleep 60' ::: a b; }; again 2>err | head -1; touch go; ` +
      "again 2>>err | sort | cmp - <(cat big big | sort); grep resuming err";
    expect((await place.shell(line).said).stdout).toBe("1\nresuming job 1: 0 of 2 tasks are done\n");
  });
});
