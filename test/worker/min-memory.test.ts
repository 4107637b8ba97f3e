import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openTestBroker, resultsOf, type TestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

/** A worker that is short of memory until `available` says otherwise. */
function shortWorker({ dir, worker }: TestBroker) {
  const memoryFile = join(dir, "meminfo");
  const available = (kilobytes: number): void =>
    writeFileSync(memoryFile, `MemTotal: 9000 kB\nMemFree: 9000 kB\nMemAvailable:    ${kilobytes} kB\n`);
  const said: string[] = [];
  const say = (_fields: object, text: string): void => void said.push(text);
  available(1024);
  worker({ name: "short", minMemory: 2 * 1024 * 1024, memoryFile, log: { info: say, warn: say, error: say } });
  return { available, said };
}

it("no task starts while less memory is available than asked for, and the log says so", async () => {
  const setup = await openTestBroker();
  const { available, said } = shortWorker(setup);
  const job = await setup.client.submit({ recipe: { kind: "command", argv: ["true"] }, count: 3 });
  await until("the log says why tasks wait", () => said.some((text) => text.startsWith("only 1 MiB of memory")));
  expect((await job.info()).counters.succeeded).toBe(0);
  available(4096);
  expect(await job.wait()).toBe("succeeded");
  expect(said.filter((text) => text.includes("memory"))).toHaveLength(2);
});

it("a worker that is short of memory returns its tasks and gets none, and others take them", async () => {
  const setup = await openTestBroker();
  const { available, said } = shortWorker(setup);
  const { client } = setup;
  const job = await client.submit({ recipe: { kind: "command", argv: ["sleep", "0.1"] }, count: 6 });
  await until("it notices", () => said.some((text) => text.startsWith("only 1 MiB of memory")));
  await until("it returns what it holds", async () => (await client.workers())[0]?.tasks === 0);
  expect(await job.explain(0)).toBe("short could take it, but takes no tasks: less than 2 MiB of memory are available");
  expect((await client.workers())[0]?.paused).toBe("less than 2 MiB of memory are available");
  setup.worker({ name: "other" });
  expect(await job.wait()).toBe("succeeded");
  expect(new Set((await resultsOf(job)).map(({ worker }) => worker))).toEqual(new Set(["other"]));
  available(4096);
  await until("it takes tasks again", async () => (await client.workers()).every(({ paused }) => paused === undefined));
});

it("a worker that is short of memory answers requests", async () => {
  const setup = await openTestBroker();
  const { client } = setup;
  const memoryFile = join(setup.dir, "meminfo");
  writeFileSync(memoryFile, "MemAvailable:    1024 kB\n");
  setup.worker({ minMemory: 2 * 1024 * 1024, memoryFile, services: { echo: (body) => body } });
  await client.submit({ recipe: { kind: "command", argv: ["true"] } });
  await until("it notices", async () => (await client.workers())[0]?.paused !== undefined);
  expect(Buffer.from(await client.request("echo", "x")).toString()).toBe("x");
});

it("no task starts while the load is higher than asked for, and one more a second counts at once", async () => {
  const setup = await openTestBroker();
  const loadFile = join(setup.dir, "loadavg");
  // Of the running processes one is the worker itself.
  writeFileSync(loadFile, "9.00 9.00 9.00 4/500 123\n");
  setup.worker({ name: "loaded", slots: 8, maxLoad: 3, loadFile });
  const job = await setup.client.submit({ recipe: { kind: "command", argv: ["sleep", "60"] }, count: 8 });
  await until("it says why", async () => (await setup.client.workers())[0]?.paused === "the load is 3 or more");
  expect((await job.info()).counters.running).toBe(0);
  writeFileSync(loadFile, "9.00 9.00 9.00 2/500 123\n");
  await until("tasks start", async () => (await job.info()).counters.running > 0);
  // The file still says 1: the two that were started count until they are seen.
  expect((await job.info()).counters.running).toBeLessThan(8);
  await job.cancel();
  await job.wait();
});
