import { describe, expect, it } from "vitest";
import { listTasks } from "../../src/cli/lib/list-tasks.js";
import { until } from "../support/wait.js";
import { openCliBroker, sh } from "./support/cli.js";

/** Exits with the number that its entry has; "sleep" runs until it is stopped. */
const EXITS = {
  kind: "command",
  argv: ["case {} in sleep) exec sleep 60;; *) echo {}; exit {/};; esac"],
  shell: true,
  placeholders: true,
} as const;

/** Start times differ each time. */
const columns = (text: string): string[][] =>
  text
    .trimEnd()
    .split("\n")
    .map((line) =>
      line
        .replaceAll(/\d+(\.\d)?m?s( ago)?/g, "TIME")
        .split(/ {2,}/)
        .filter((cell) => cell !== ""),
    );

describe("laboro tasks", () => {
  it("lists each task with its entry, state, outcome, attempts, worker, start, duration and output", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1", slots: 1 });
    const entries = ["a/0", "a/3", "sleep", "b/0"];
    const job = await setup.client.submit({ recipe: EXITS, entries });
    await until(
      "the third runs",
      async () => (await setup.client.ask("running", { job: job.id })).tasks[0]?.index === 2,
    );
    const { stdout, stderr, code } = await setup.laboro(["tasks", "last"], { process: true });
    expect([stderr, code]).toEqual(["", 0]);
    expect(columns(stdout)).toEqual([
      ["TASK", "ENTRY", "STATE", "OUTCOME", "WORKER", "STARTED", "DURATION", "OUTPUT"],
      ["1", "a/0", "succeeded", "w1", "TIME", "TIME", "4 B"],
      ["2", "a/3", "failed", "exit code 3", "w1", "TIME", "TIME", "4 B"],
      ["3", "sleep", "running", "w1", "TIME", "TIME"],
      ["1 task waits; --state waiting lists them"],
    ]);
    const waiting = await setup.laboro(["tasks", "last", "--state", "waiting"]);
    expect(columns(waiting.stdout)).toEqual([
      ["TASK", "ENTRY", "STATE"],
      ["4", "b/0", "waiting"],
    ]);
    await setup.laboro(["cancel", "last.4"]);
    expect((await setup.laboro(["tasks", "last", "--state", "cancelled", "--ids"])).stdout).toBe(`${job.id}.4\n`);
    const { tasks } = JSON.parse((await setup.laboro(["tasks", "last.2-3", "--json"])).stdout);
    expect(tasks).toMatchObject([
      { index: 1, number: 2, entry: "a/3", state: "failed", code: 3, attempt: 1, worker: "w1", outputBytes: 4 },
      { index: 2, number: 3, entry: "sleep", state: "running", attempt: 1, worker: "w1" },
    ]);
  });

  it("filters by state, worker and entry, sorts, limits, and prints a selector for other verbs", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1" });
    const recipe = {
      kind: "command",
      argv: ["printf '%*s\\n' {} x; test {} != 30"],
      shell: true,
      placeholders: true,
    } as const;
    const job = await setup.client.submit({ recipe: { ...recipe }, entries: ["10", "30", "20", "5", "30"] });
    await job.wait();
    const ids = async (...args: string[]): Promise<string> =>
      (await setup.laboro(["tasks", "1", "--ids", ...args])).stdout;
    expect(await ids()).toBe("1.1-5\n");
    expect(await ids("--state", "failed")).toBe("1.2,5\n");
    expect(await ids("--entry", "?0")).toBe("1.1-3,5\n");
    expect(await ids("--entry", "*0", "--state", "succeeded")).toBe("1.1,3\n");
    expect(await ids("--entry", "3")).toBe("");
    expect(await ids("--entry", "3*", "--worker", "w1")).toBe("1.2,5\n");
    expect(await ids("--worker", "other")).toBe("");
    const sorted = await setup.laboro(["tasks", "1", "--sort", "output", "--limit", "3", "--json"]);
    expect(JSON.parse(sorted.stdout).tasks.map((task: { number: number }) => task.number)).toEqual([2, 5, 3]);
    const limited = await setup.laboro(["tasks", "1", "--limit", "2"]);
    expect(limited.stdout.trimEnd().split("\n").at(-1)).toBe("and 3 more tasks");
    const some = await setup.laboro(["tasks", "1", "--entry", "*0", "--limit", "2", "--ids"]);
    expect(some.stdout).toBe("1.1-2\n");
    expect((await setup.laboro(["tasks", "1", "--entry", "*0", "--limit", "2"])).stdout).toContain(
      "\nand more tasks\n",
    );
    expect((await setup.laboro(["tasks", "1", "--worker", "other"])).stdout).toBe("no task of job 1 matches\n");
    const { stdout } = await setup.laboro(["logs", (await ids("--state", "failed")).trim()]);
    expect(stdout).toBe(`${"x".padStart(30)}\n`.repeat(2));
  });

  it("reads no more results than --limit shows, and lets the broker compare entries", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 4 });
    const recipe = { kind: "command", argv: ["true", "{}"], placeholders: true } as const;
    const entries = Array.from({ length: 2_500 }, (_, at) => `e${at + 1}`);
    const job = await setup.client.submit({ recipe, entries });
    await job.wait();
    const asked: unknown[] = [];
    const client = Object.assign(Object.create(setup.client), {
      ask: (...given: Parameters<typeof setup.client.ask>) => {
        asked.push(given[1]);
        return setup.client.ask(...given);
      },
    });
    const first = await listTasks(client, await job.info(), { states: ["succeeded"], limit: 3 });
    expect(first.map(({ number }) => number)).toEqual([1, 2, 3]);
    expect(asked).toEqual([{ job: 1, entries: true, state: ["succeeded"], from: 0, limit: 3 }]);
    expect((await setup.laboro(["tasks", "1", "--limit", "3", "--ids"])).stdout).toBe("1.1-3\n");
    expect((await setup.laboro(["tasks", "1", "--entry", "e249?", "--ids"])).stdout).toBe("1.2490-2499\n");
    expect((await setup.laboro(["tasks", "1.2000-2100", "--entry", "*9", "--limit", "2", "--ids"])).stdout).toBe(
      "1.2009,2019\n",
    );
    expect((await setup.laboro(["tasks", "1", "--ids"])).stdout).toBe("1.1-2500\n");
  });

  it("uses the numbers of an array, also in the selector", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1" });
    const array = [{ first: 5, last: 11, step: 2 }];
    const recipe = { kind: "command", argv: ["test {} -gt 7"], shell: true, placeholders: true, array } as const;
    await (await setup.client.submit({ recipe })).wait();
    expect((await setup.laboro(["tasks", "last", "--state", "failed", "--ids"])).stdout).toBe("1.5-7\n");
    expect((await setup.laboro(["tasks", "last.7-9", "--ids", "--state", "succeeded"])).stdout).toBe("1.9\n");
  });

  it("shows the CPU time of a task, and of all tasks together", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1" });
    const busy = { kind: "command", argv: ["i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"], shell: true } as const;
    await (await setup.client.submit({ recipe: busy, count: 2 })).wait();
    const { tasks } = JSON.parse((await setup.laboro(["tasks", "last", "--json", "--sort", "cpu"])).stdout);
    const [first, second] = tasks.map(({ cpuMs }: { cpuMs: number }) => cpuMs);
    expect(second).toBeGreaterThan(0);
    expect(first).toBeGreaterThanOrEqual(second);
    expect((await setup.laboro(["tasks", "last"])).stdout).toMatch(/DURATION +CPU( +MEMORY)?\n/);
    expect((await setup.client.ask("usage", { job: 1 })).cpuMs).toBe(first + second);
    expect((await setup.laboro(["status", "last"])).stdout).toMatch(/^used: \S+ run time, \S+ CPU/m);
  });

  it("shows the peak memory of a task, in text, JSON, REST and the usage of its job", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1" });
    // Longer than a second: what is shorter is not sampled.
    await (await setup.client.submit({ recipe: sh("exec sleep 1.2") })).wait();
    const { tasks } = JSON.parse((await setup.laboro(["tasks", "last", "--json"])).stdout);
    const { peakMemory } = tasks[0];
    expect(peakMemory).toBeGreaterThan(100_000);
    expect(peakMemory).toBeLessThan(100_000_000);
    const rest = async (path: string) => {
      const headers = { authorization: `Bearer ${setup.broker.token}` };
      return (await fetch(`${setup.broker.url}/api/v1/jobs/1/${path}`, { headers })).json();
    };
    expect(await rest("tasks")).toMatchObject({ tasks: [{ peakMemory }] });
    expect(await rest("usage")).toMatchObject({ tasks: 1, peakMemory });
    expect((await setup.laboro(["tasks", "last"])).stdout).toMatch(/MEMORY\n.* [\d.]+ [KM]iB\n/);
    expect((await setup.laboro(["status", "last"])).stdout).toMatch(/^used: .*at most [\d.]+ [KM]iB in a task$/m);
  });

  it("sorts by duration, start, memory and attempts", async () => {
    const setup = await openCliBroker({ settings: { retryBackoffMs: 1 } });
    setup.worker({ slots: 1 });
    const line = "sleep 0.{}; test {} != 2 || test $LABORO_ATTEMPT = 3";
    const recipe = { kind: "command", argv: [line], shell: true, placeholders: true } as const;
    await (await setup.client.submit({ recipe, entries: ["1", "4", "2"], retries: 2 })).wait();
    const sorted = async (order: string): Promise<Record<string, number>[]> =>
      JSON.parse((await setup.laboro(["tasks", "1", "--sort", order, "--json"])).stdout).tasks;
    const numbers = async (order: string) => (await sorted(order)).map(({ number }) => number);
    expect(await numbers("duration")).toEqual([2, 3, 1]);
    expect((await numbers("attempts"))[0]).toBe(3);
    const starts = (await sorted("started")).map(({ started = 0 }) => started);
    expect(starts).toEqual([...starts].sort((a, b) => a - b));
    const longer = { ...recipe, argv: ["[ {} = no ] || { head -c 30M /dev/zero | tail -c 30M | sleep 1.3; }"] };
    await (await setup.client.submit({ recipe: longer, entries: ["no", "yes"] })).wait();
    const [first, second] = JSON.parse((await setup.laboro(["tasks", "2", "--sort", "memory", "--json"])).stdout).tasks;
    expect([first.number, second.number]).toEqual([2, 1]);
    expect(first.peakMemory).toBeGreaterThan(0);
  });

  it("refuses bad values with the option, the value and what there is", async () => {
    const setup = await openCliBroker();
    const said = async (...args: string[]): Promise<[number | null, string]> => {
      const { code, stderr } = await setup.laboro(["tasks", ...args]);
      return [code, stderr];
    };
    expect(await said("last", "--state", "faild")).toEqual([2, expect.stringContaining('no state "faild"')]);
    expect(await said("last", "--sort", "size")).toEqual([2, expect.stringMatching(/no order "size".*duration/s)]);
    expect(await said("last", "--ids", "--json")).toEqual([2, expect.stringContaining("--ids and --json")]);
    expect(await said("1-3")).toEqual([2, expect.stringContaining("one job")]);
    expect(await said("last")).toEqual([1, expect.stringContaining("there is no job yet")]);
  });
});
