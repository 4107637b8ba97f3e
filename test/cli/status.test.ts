import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startBroker } from "../../src/server.js";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { laboro, openCliBroker, sh, steady } from "./support/cli.js";

describe("laboro status", () => {
  it("of an empty broker says so, and laboro alone is the same", async () => {
    const setup = await openCliBroker();
    const { code, stdout, stderr } = await setup.laboro(["status"], { process: true });
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatchInlineSnapshot(`
      "no worker is connected; 0 tasks running, 0 waiting

      there is no job yet; laboro run or laboro submit gives one
      "
    `);
    expect((await setup.laboro([])).stdout).toBe(stdout);
  });

  it("of a job that takes more tasks names no remaining time where none of its tasks is left", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const job = await setup.client.submit({ recipe: TRUE, entries: ["a"], open: true });
    await until("it has run", async () => (await job.info()).counters.succeeded === 1);
    expect((await setup.laboro(["status", "1"])).stdout).toMatch(/1 of 1 task done: 1 succeeded\n/);
  });

  it("lists open jobs first, then the few that ended last, and says how many are hidden", async () => {
    const setup = await openCliBroker();
    const worker = setup.worker();
    for (let i = 0; i < 8; i++) await (await setup.client.submit({ name: `done-${i}`, recipe: TRUE })).wait();
    await worker.stop({ graceMs: 0 });
    await setup.client.submit({ name: "later", recipe: TRUE, count: 12_000, held: true, pool: "big" });
    const { stdout } = await setup.laboro(["status"]);
    expect(steady(stdout, setup)).toMatchInlineSnapshot(`
      "no worker is connected; 0 tasks running, 12_000 waiting

      JOB  NAME  STATE  DONE  POOL  AGE  ELAPSED
        9  later  held  0/12_000  big  TIME
        8  done-7  succeeded  1/1  TIME  TIME
        7  done-6  succeeded  1/1  TIME  TIME
        6  done-5  succeeded  1/1  TIME  TIME
        5  done-4  succeeded  1/1  TIME  TIME
        4  done-3  succeeded  1/1  TIME  TIME

      3 other jobs are not shown; laboro status --all shows every one"
    `);
    expect((await setup.laboro(["status", "--all"])).stdout).toContain("done-0");
    const filtered = await setup.laboro(["status", "--all", "--name", "done-*", "--state", "succeeded"]);
    expect(filtered.stdout.match(/done-\d/g)).toHaveLength(8);
    expect((await setup.laboro(["status", "--pool", "big"])).stdout).not.toContain("done");
    expect((await setup.laboro(["status", "--name", "nothing"])).stdout).toContain("no job matches");
  });

  it("of one job shows its progress, what failed and why", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1" });
    const job = await setup.client.submit({
      name: "mixed",
      recipe: { ...sh("case $LABORO_TASK in 2) exit 3;; 3) kill -9 $$;; esac"), dir: setup.dir },
      count: 4,
      priority: 2,
      timeLimitMs: 90_000,
    });
    await job.wait();
    const never = await setup.client.submit({ recipe: { kind: "command", argv: ["no-such-program", "a b"] } });
    await never.wait();
    const { code, stdout } = await setup.laboro(["status", "1"]);
    expect(code).toBe(0);
    // The CPU time of short tasks is now and then a clock tick, mostly none.
    const shown = (text: string): string => steady(text, setup).replace("run time, TIME CPU", "run time");
    expect(shown(stdout)).toMatchInlineSnapshot(`
      "job 1  mixed  failed, ended TIME ago
        command  case $LABORO_TASK in 2) exit 3;; 3) kill -9 $$;; esac
        dir  DIR
        priority  2
        limits  TIME a task

      4 of 4 tasks done: 2 succeeded, 2 failed
      used: TIME run time

      1.2 failed: exit code 3, after TIME on w1
      1.3 failed: killed by signal 9 (SIGKILL), after TIME on w1"
    `);
    expect(shown((await setup.laboro(["status", "last"])).stdout)).toMatchInlineSnapshot(`
      "job 2  no-such-program  failed, ended TIME ago
        command  no-such-program 'a b'

      1 of 1 task done: 1 failed
      used: TIME run time

      2.1 failed: cannot start "no-such-program": command not found, after TIME on w1"
    `);
  });

  it("of one job shows what runs, where, and for how long", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1", slots: 2, cancelGraceMs: 100 });
    await setup.client.submit({ name: "sleepers", recipe: { kind: "command", argv: ["sleep", "60"] }, count: 5 });
    const shown = async () => steady((await setup.laboro(["status", "last"])).stdout, setup);
    await until("two tasks run", async () => ((await shown()).match(/ running TIME$/gm) ?? []).length === 2);
    expect(await shown()).toMatchInlineSnapshot(`
      "job 1  sleepers  running, submitted TIME ago
        command  sleep 60

      0 of 5 tasks done: 2 running, 3 waiting

      TASK  WORKER  STATE
      1.1  w1  running TIME
      1.2  w1  running TIME"
    `);
  });

  it("fits a narrow terminal, with colours unless NO_COLOR says no", async () => {
    const setup = await openCliBroker();
    const name = "a job with quite a long name for so narrow a terminal";
    await setup.client.submit({ name, recipe: TRUE, count: 3 });
    const wide = await setup.laboro(["status"]);
    expect(wide.stdout).toContain(name);
    expect(wide.stdout).not.toContain("\u001b");
    const narrow = await setup.laboro(["status"], { columns: 40 });
    expect(narrow.stdout).toContain("\u001b[");
    const plain = await setup.laboro(["status"], { columns: 40, env: { NO_COLOR: "1" } });
    expect(
      steady(plain.stdout.slice(plain.stdout.indexOf("JOB"))).replace(/with \w*…/, "with …"),
    ).toMatchInlineSnapshot(`
      "JOB  NAME  STATE  DONE  AGE
        1  a job with …  waiting  0/3  TIME"
    `);
    for (const line of plain.stdout.slice(plain.stdout.indexOf("JOB")).split("\n"))
      expect(line.length).toBeLessThanOrEqual(40);
    const ascii = await setup.laboro(["status"], { columns: 40, env: { LANG: "C" } });
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours begin with one
    expect(ascii.stdout).toMatch(/^[\n\u001b -~]*$/);
  });

  it("is one JSON document with --json", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ name: "one", recipe: TRUE, count: 2 });
    const list = JSON.parse((await setup.laboro(["status", "--json"])).stdout);
    expect(list).toMatchObject({
      broker: { slots: { total: 0 } },
      jobs: [{ id: 1, name: "one", state: "waiting" }],
      hidden: 0,
    });
    const { usage, ...one } = JSON.parse((await setup.laboro(["status", "1", "--json"])).stdout);
    expect(one).toEqual(list.jobs[0]);
    expect(usage).toMatchObject({ tasks: 0, cpuMs: 0, peakMemory: 0 });
    expect(JSON.parse((await setup.laboro(["status", "all", "--json"])).stdout)).toEqual({ jobs: [one] });
  });

  it("has bytes as text in JSON, or as base64 where they are none", async () => {
    const setup = await openCliBroker();
    const argv = ["echo", new Uint8Array([0x61, 0x62]), new Uint8Array([0xff])];
    await setup.client.submit({ recipe: { kind: "command", argv } });
    const { recipe } = JSON.parse((await setup.laboro(["status", "1", "--json"])).stdout);
    expect(recipe.argv).toEqual(["echo", "ab", { base64: "/w==" }]);
  });

  it("of a job that is not there is exit code 1", async () => {
    const setup = await openCliBroker();
    expect(await setup.laboro(["status", "7"])).toMatchInlineSnapshot(`
      {
        "code": 1,
        "stderr": "laboro: there is no job 7 (LABORO_NO_SUCH_JOB)
        laboro status --all lists all jobs
      ",
        "stdout": "",
      }
    `);
    expect((await setup.laboro(["status", "last"])).stderr).toContain("there is no job yet");
  });

  it("waits for a broker that is just starting", async () => {
    const { data, broker } = await openCliBroker();
    await broker.stop();
    const asked = laboro(["status", "--wait", "10s"], { env: { LABORO_DATA: data } });
    const again = await startBroker({ dir: data, port: 0 });
    try {
      expect((await asked).code).toBe(0);
    } finally {
      await again.stop();
    }
    expect((await laboro(["status", "--wait", "300ms"], { env: { LABORO_DATA: data } })).code).toBe(3);
  });

  it("ends quietly when its reader has seen enough", async () => {
    const setup = await openCliBroker();
    for (let i = 0; i < 100; i++) await setup.client.submit({ name: "x".repeat(900), recipe: TRUE });
    const { code, stderr } = await setup.laboro(["status", "--all"], { pipe: "head -1" });
    expect([code, stderr]).toEqual([0, ""]);
  });

  it("with --watch redraws a job until it has ended, with its rate, also in the list, and wants a terminal", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 1 });
    const open = (task: number): void => writeFileSync(join(setup.dir, `open${task}`), "");
    const waits = sh("until [ -e open$LABORO_TASK ]; do sleep 0.02; done");
    await setup.client.submit({ recipe: { ...waits, dir: setup.dir }, count: 3 });
    let shown = (): string => "";
    const watching = setup.laboro(["status", "last", "--watch"], {
      columns: 100,
      started: (_, stdout) => {
        shown = stdout;
      },
    });
    let listed = (): string => "";
    let endList = (): void => {};
    const listing = setup.laboro(["status", "--watch"], {
      columns: 120,
      env: { NO_COLOR: "1" },
      started: (child, stdout) => {
        listed = stdout;
        endList = () => child.kill();
      },
    });
    await until("it is there", () => shown().includes("0 of 3 tasks done: 1 running, 2 waiting"));
    await until("it is listed", () => listed().includes(" 0/3 "));
    expect(listed()).not.toContain("RATE");
    open(1);
    await until("the list has its rate", () => /RATE +LEFT +AGE[\s\S]*? 1\/3 +1 +\d+(\.\d)?\/s +\S+ +/.test(listed()));
    endList();
    await listing;
    await until("it moves", () => /1 of 3 tasks done: .* 1 waiting, \d+(\.\d)?\/s, \S+ left/.test(shown()));
    const plain = (await setup.laboro(["status", "last"])).stdout;
    expect(plain).toMatch(/1 of 3 tasks done: .* 1 waiting, \d+(\.\d)?\/s, \S+ left\n/);
    const json = JSON.parse((await setup.laboro(["status", "last", "--json"])).stdout);
    expect(json.usage).toMatchObject({ tasks: 1, cpuMs: expect.any(Number) });
    // One task has run, two are left.
    expect(json.leftMs).toBeCloseTo(2_000 / json.perSecond, -1);
    open(2);
    open(3);
    const { code, stdout } = await watching;
    expect(code).toBe(0);
    expect(stdout.split("\u001b[H").at(-1)).toContain("3 of 3 tasks done: 3 succeeded");
    expect(JSON.parse((await setup.laboro(["status", "1", "--json"])).stdout)).not.toHaveProperty("leftMs");
    const piped = await setup.laboro(["status", "--watch"]);
    expect([piped.code, piped.stderr]).toEqual([2, expect.stringContaining("--watch needs a terminal")]);
    expect((await setup.laboro(["status", "--watch", "--json"])).stderr).toContain("--watch and --json");
  });
});
