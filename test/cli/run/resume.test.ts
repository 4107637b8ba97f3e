import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { startOrResume } from "../../../src/cli/lib/batch/resume.js";
import { LABORO } from "../../support/launched.js";
import { isRunning } from "../../support/process-table.js";
import { SeededRandom } from "../../support/random.js";
import { openTestBroker } from "../../support/test-broker.js";
import { until } from "../../support/wait.js";
import { openCliBroker } from "../support/cli.js";
import { openPlace } from "./place.js";

/** Each task leaves a line when it begins and one when it is done. */
const LINE = 'echo "{}" >> begun; sleep 0.2; echo "{}" >> done; echo "shown {}"';
const ENTRIES = Array.from({ length: 12 }, (_, i) => `e${i}`);

describe("laboro run, killed and started again", () => {
  it("shows each output over all of its starts", async () => {
    const place = openPlace();
    const random = new SeededRandom();
    const entries = Array.from({ length: 40 }, (_, i) => `e${i}`);
    const SLOTS = 3;
    const words = ["run", "--jobs", String(SLOTS), "sleep 0.1; echo shown {}", ":::", ...entries];
    const lines: string[] = [];
    const KILLS = 5;
    for (let start = 0; start <= KILLS; start++) {
      const run = place.begin(words);
      const wanted = start === KILLS ? Number.POSITIVE_INFINITY : 1 + Math.floor(random.next() * 5);
      const over = (): boolean => run.child.exitCode !== null;
      await until("some are shown", () => over() || run.output().split("shown").length > wanted, 60_000);
      if (!over()) run.child.kill("SIGKILL");
      const { code, stdout } = await run.said;
      lines.push(...stdout.split("\n").slice(0, -1));
      // On a slow machine all may have ended before the last kill.
      if (code === 0) break;
    }
    const missing = entries.filter((entry) => !lines.includes(`shown ${entry}`));
    const again = lines.length - new Set(lines).size;
    console.log(
      `run killed ${KILLS} times (seed ${random.seed}): outputs lost: ${missing.length}, shown again: ${again}`,
    );
    expect(missing).toEqual([]);
    // Killed after outputs were written, and before that was recorded: those of tasks that ended together.
    expect(again).toBeLessThanOrEqual(KILLS * SLOTS);
    // Nothing is left of the record, and the batch is finished.
    expect((await place.laboro(...words)).stderr).not.toContain("resuming");
  });

  it.each([
    ["while a task still runs", "go"],
    ["after all have ended", ""],
  ])("shows what ended when nobody could read its output, %s, and runs nothing again", async (_when, waiting) => {
    const setup = await openCliBroker();
    setup.worker({ slots: 3 });
    const log = join(setup.dir, "ran");
    const go = join(setup.dir, "go");
    const last = waiting === "" ? "" : `[ {} != c ] || while [ ! -e ${go} ]; do sleep 0.02; done; `;
    // More than a pipe holds.
    const LINES = 200_000;
    const command = `echo {} >>${log}; ${last}yes {} | head -n ${LINES}`;
    const words = ["run", command, ":::", "a", "b", "c"];
    const env = { PATH: process.env.PATH, LABORO_DATA: setup.data, HOME: setup.dir };
    const first = spawn(process.execPath, [LABORO, ...words], { env, stdio: ["ignore", "pipe", "ignore"] });
    const ended = waiting === "" ? 3 : 2;
    await until("tasks have ended", async () => {
      const [job] = (await setup.client.ask("jobs", {})).jobs;
      return job?.counters.succeeded === ended;
    });
    first.kill("SIGKILL");
    await once(first, "exit");
    const before = await text(first.stdout);
    let shown: () => string = () => "";
    const second = setup.laboro(words, {
      started: (_child, output) => {
        shown = output;
      },
    });
    await until("it shows what ended before", () => shown() !== "");
    writeFileSync(go, "");
    const { code, stdout, stderr } = await second;
    expect([code, stderr]).toEqual([0, expect.stringContaining(`resuming job 1: ${ended} of 3 tasks are done`)]);
    // One that is in the pipe whole was shown; all others come now.
    const countIn = (shownText: string, entry: string): number =>
      shownText.split("\n").filter((line) => line === entry).length;
    for (const entry of ["a", "b", "c"])
      expect(countIn(stdout, entry), entry).toBe(countIn(before, entry) === LINES ? 0 : LINES);
    expect(before.length).toBeLessThan(3 * 2 * LINES);
    expect(readFileSync(log, "utf8").split("\n").sort()).toEqual(["", "a", "b", "c"]);
  });

  it("shows what was not shown of a batch that goes on with other entries", async () => {
    const place = openPlace();
    const line = "echo shown {}; echo {} >>done; [ {} != c ] || sleep 60";
    const first = place.begin(["run", "--jobs", "3", "--keep-order", line, ":::", "c", "a", "b"]);
    await until("two have ended", () => place.lines("done").length === 3);
    await until("they are recorded", async () => {
      const { jobs } = JSON.parse((await place.laboro("status", "--all", "--json")).stdout);
      return jobs[0].counters.succeeded === 2;
    });
    first.child.kill("SIGKILL");
    // They come after c, which has not ended.
    expect((await first.said).stdout).toBe("");
    const { stdout } = await place.laboro("run", "--jobs", "3", "--keep-order", line, ":::", "a", "b", "d");
    expect(stdout.split("\n").sort()).toEqual(["", "shown a", "shown b", "shown d"]);
  });
});

describe("laboro run, interrupted", () => {
  it("goes on after kill -9 with the same command, and runs nothing again that was done", async () => {
    const place = openPlace();
    const words = ["run", "--jobs", "2", "--joblog", "log", LINE, ":::", ...ENTRIES];
    const first = place.begin(words);
    await until("some tasks are done", () => place.lines("done").length >= 4);
    first.child.kill("SIGKILL");
    await first.said;
    const done = new Set(place.lines("done"));
    const { code, stderr } = await place.laboro(...words);
    expect(code).toBe(0);
    expect(stderr).toMatch(/^resuming job 1: \d+ of 12 tasks are done\n/);
    expect(new Set(place.lines("done"))).toEqual(new Set(ENTRIES));
    const begun = place.lines("begun");
    // What had run to its end and was recorded is not begun again; at most what was under way at the kill is.
    const twice = ENTRIES.filter((entry) => begun.filter((line) => line === entry).length > 1);
    expect(twice.length).toBeLessThanOrEqual(4);
    expect(done.size).toBeGreaterThanOrEqual(4);
    const [head, ...logged] = place.lines("log").map((row) => row.split("\t")[0]);
    expect(head).toBe("Seq");
    expect(logged.map(Number).sort((a, b) => a - b)).toEqual(ENTRIES.map((_, i) => i + 1));
    console.log(`killed at ${done.size} of 12, lost: 0, run twice: ${twice.length}`);
  });

  it("matches what is done by entry when the list has changed", async () => {
    const place = openPlace();
    const first = place.begin(["run", "--jobs", "1", LINE, ":::", "a", "b", "c", "d"]);
    await until("two are done", () => place.lines("done").length >= 2);
    first.child.kill("SIGKILL");
    await first.said;
    const { code, stderr } = await place.laboro("run", "--jobs", "1", LINE, ":::", "d", "c", "b", "a", "new");
    expect(code).toBe(0);
    expect(stderr).toMatch(/resuming job 2: [1-3] of 5 tasks are done/);
    expect(new Set(place.lines("done"))).toEqual(new Set(["a", "b", "c", "d", "new"]));
    expect(place.lines("done").filter((line) => line === "a")).toHaveLength(1);
  });

  it("begins again with --fresh, and after a batch that has ended", async () => {
    const place = openPlace();
    const words = ["run", "echo x >> ran", ":::", "1", "2"];
    expect((await place.laboro(...words)).stderr).not.toContain("resuming");
    expect((await place.laboro(...words)).stderr).not.toContain("resuming");
    expect(place.lines("ran")).toHaveLength(4);
    const first = place.begin(["run", "--jobs", "1", LINE, ":::", "a", "b"]);
    await until("it runs", () => place.lines("begun").length > 0);
    first.child.kill("SIGKILL");
    await first.said;
    const { stderr, code } = await place.laboro("run", "--fresh", "--jobs", "1", LINE, ":::", "a", "b");
    expect(code).toBe(0);
    expect(stderr).toMatch(/^2 tasks: 2 succeeded/);
  });

  it("lets tasks end at the first Ctrl-C, starts no other, and says how to go on", async () => {
    const place = openPlace();
    const words = ["run", "--jobs", "2", LINE, ":::", ...ENTRIES];
    const first = place.begin(words);
    await until("two run", () => place.lines("begun").length >= 2);
    first.child.kill("SIGINT");
    const { code, stdout, stderr } = await first.said;
    expect(code).toBe(130);
    // What ended after the interrupt is shown as well.
    expect(stdout.trimEnd().split("\n").sort()).toEqual(
      [...place.lines("done")].map((entry) => `shown ${entry}`).sort(),
    );
    expect(stderr).toContain("running tasks may finish");
    expect(stderr).toContain("the same command resumes");
    // All that was begun has ended, and much was not begun.
    expect([...place.lines("begun")].sort()).toEqual([...place.lines("done")].sort());
    expect(place.lines("begun").length).toBeLessThan(12);
    const second = await place.laboro(...words);
    expect(second.code).toBe(0);
    expect([...place.lines("done")].sort()).toEqual([...ENTRIES].sort());
  });

  it("stops tasks at the second Ctrl-C, on a terminal, where it draws a bar", async () => {
    const place = openPlace();
    const terminal = place.begin(["run", "--jobs", "2", ": {}; echo $$ >> pids; sleep 60", ":::", "a", "b", "c"], true);
    await until("two run", () => place.lines("pids").length >= 2);
    terminal.child.stdin?.write("\x03");
    await until("the first is heard", () => terminal.output().includes("running tasks may finish"));
    terminal.child.stdin?.write("\x03");
    const { code } = await terminal.said;
    expect(code).toBe(130);
    await until("the tasks are gone", () => place.lines("pids").every((pid) => !isRunning(Number(pid))));
  });

  it("stops at once at the second signal, with tasks that would run for long", async () => {
    const place = openPlace();
    const first = place.begin(["run", "--jobs", "2", "echo {} >> begun; exec sleep 60", ":::", "a", "b", "c"]);
    await until("two run", () => place.lines("begun").length >= 2);
    first.child.kill("SIGINT");
    await until("the first is heard", () => first.output().includes("running tasks may finish"));
    const at = Date.now();
    first.child.kill("SIGINT");
    expect(await first.said).toMatchObject({ code: 130 });
    // Far from the five seconds for which news are waited for.
    expect(Date.now() - at).toBeLessThan(4_000);
  });

  it("says what is different when it goes on with other options", async () => {
    const place = openPlace();
    const first = place.begin([
      "run",
      "--jobs",
      "50",
      "--slots",
      "50",
      "--resource",
      "gpu=50",
      "echo {}",
      ":::",
      "1",
      "2",
    ]);
    await until("it says why nothing runs", () => first.output().includes("nothing runs yet: it needs 50 gpu"));
    first.child.kill("SIGKILL");
    await first.said;
    const second = place.begin(["run", "echo {}", ":::", "1", "2"]);
    await until("the difference is said", () => second.output().includes("which differ in --slots"));
    second.child.kill("SIGKILL");
    await second.said;
    expect((await place.run("--fresh", "echo {}", ":::", "1", "2")).code).toBe(0);
  });

  it("draws a bar on a terminal only", async () => {
    const place = openPlace();
    const terminal = place.begin(["run", "--jobs", "1", "sleep 0.2; echo {}", ":::", "a", "b", "c"], true);
    const { stdout, code } = await terminal.said;
    expect(code).toBe(0);
    expect(stdout).toMatch(/█+░* \d\/3/);
    expect((await place.run("sleep 0.2; echo {}", ":::", "a", "b")).stderr).not.toMatch(/[█░]/);
  });

  const CLEAR = "\r\x1b[K";
  const isBar = (text: string): boolean => /^[█░]/.test(text);

  it("keeps the bar under output that comes all the time, and does not touch it for output to a file", async () => {
    const place = openPlace();
    const line = "run --jobs 1 'sleep 0.05; echo {}' ::: $(seq 20)";
    const drawn = (await place.shell(`laboro ${line}`, true).said).stdout.split(CLEAR);
    expect(drawn.filter((text, i) => isBar(text) && /\d\r\n$/.test(drawn[i - 1] ?? "")).length).toBeGreaterThan(12);
    const redirected = (await place.shell(`laboro ${line} >out`, true).said).stdout.split(CLEAR);
    expect(place.lines("out")).toHaveLength(20);
    // Only the end removes it.
    expect(redirected.slice(1).map(isBar).lastIndexOf(false)).toBe(redirected.length - 2);
    expect(redirected.slice(1, -1).every(isBar)).toBe(true);
  });

  it("does not draw the bar over a line that has not ended", async () => {
    const place = openPlace();
    const line = "run --jobs 1 --lb 'printf %01100000d 0; sleep 0.5; echo' ::: 1 2";
    const drawn = (await place.shell(`laboro ${line}`, true).said).stdout.split(CLEAR);
    expect(drawn.some((text) => text.endsWith("00"))).toBe(false);
  });

  it("joins the broker of another run in the same directory, and takes over when that one ends", async () => {
    const place = openPlace();
    const first = place.begin(["run", "--jobs", "1", "echo {} >> first; sleep 0.5", ":::", "a", "b"]);
    await until("the first runs", () => place.lines("first").length >= 1);
    const second = place.begin([
      "run",
      "--jobs",
      "1",
      "sleep 0.3; echo {} >> second; echo {}",
      ":::",
      "c",
      "d",
      "e",
      "f",
    ]);
    expect(await first.said).toMatchObject({ code: 0 });
    const { code, stdout, stderr } = await second.said;
    expect(code).toBe(0);
    expect(stdout.trimEnd().split("\n").sort()).toEqual(["c", "d", "e", "f"]);
    expect(stderr).toMatch(/4 tasks: 4 succeeded/);
    expect(new Set(place.lines("second"))).toEqual(new Set(["c", "d", "e", "f"]));
  });
});

describe("laboro run of the same command with other entries", () => {
  const line = "echo {} >>begun; echo $$ >>pids; until test -e go; do sleep 0.05; done; echo {} >>done";

  it("runs beside the first, and cancels nothing of it", async () => {
    const place = openPlace();
    const first = place.begin(["run", "-j", "1", line, ":::", "a", "b"]);
    await until("the first runs", () => place.lines("begun").length > 0);
    const second = place.begin(["run", "-j", "1", line, ":::", "c", "d"]);
    // A third with the list of the first is the same batch.
    const third = place.begin(["run", "-j", "1", line, ":::", "b", "a"]);
    await until("the third has found it", () => third.output().includes("job 1"));
    await place.shell("until laboro status --json | grep -q '\"id\": *2'; do sleep 0.1; done; touch go").said;
    const ends = await Promise.all([first, second, third].map(({ said }) => said));
    expect(ends.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect([...place.lines("done")].sort()).toEqual(["a", "b", "c", "d"]);
  });

  it("leaves what an interrupted one has left to its own list, also with --fresh", async () => {
    const place = openPlace();
    const first = place.begin(["run", "-j", "1", line, ":::", "a", "b"]);
    await until("the first runs", () => place.lines("begun").length > 0);
    first.child.kill("SIGKILL");
    await first.said;
    await until("its task is gone", () => place.lines("pids").every((pid) => !isRunning(Number(pid))));
    writeFileSync(place.file("go"), "");
    const other = await place.run("-j", "1", line, ":::", "c");
    expect(other.stderr).toMatch(/^laboro: job 1 .* is unfinished and stays held.*\n1 task: 1 succeeded/);
    expect((await place.run("-j", "1", "--fresh", line, ":::", "c")).stderr).toMatch(/1 task: 1 succeeded/);
    expect(place.lines("done")).toEqual(["c", "c"]);
    expect((await place.run("-j", "1", line, ":::", "a", "b")).stderr).toMatch(
      /^resuming job 1: 0 of 2 tasks are done/,
    );
    expect(place.lines("done")).toEqual(["c", "c", "a", "b"]);
  });
});

describe("a batch that goes on with other entries", () => {
  const recipe = { kind: "call", service: "step" } as const;
  const twoEnded = async (entries: readonly string[], first: "succeeds" | "fails") => {
    const { client, worker } = await openTestBroker();
    let calls = 0;
    const step = async (): Promise<string> => {
      calls++;
      if (calls === 1 && first === "fails") throw new Error("it fails");
      return calls <= 2 ? "" : new Promise(() => {});
    };
    worker({ slots: 1, services: { step } });
    const { job } = await startOrResume(client, { recipe, entries }, false, []);
    await until("two have ended", async () => {
      const { succeeded, failed } = (await client.job(job).info()).counters;
      return succeeded + failed === 2;
    });
    return client;
  };

  it("has an entry of theirs that has succeeded, where it has failed as well", async () => {
    const client = await twoEnded(["a", "a", "b"], "fails");
    const next = await startOrResume(client, { recipe, entries: ["a", "b"] }, false, []);
    expect(next).toMatchObject({ doneBefore: 1, remaining: 1 });
  });

  it("gives a new entry a number of its own, where that of its place in the list is taken", async () => {
    const client = await twoEnded(["a", "b", "c"], "succeeds");
    const numbers = [{ first: 1, last: 3, step: 1 }];
    const next = await startOrResume(client, { recipe, entries: ["a", "new", "c"], numbers }, false, []);
    expect(next).toMatchObject({ doneBefore: 1, remaining: 2 });
    expect((await client.job(next.job).info()).numbers).toEqual([{ first: 3, last: 4, step: 1 }]);
  });
});
