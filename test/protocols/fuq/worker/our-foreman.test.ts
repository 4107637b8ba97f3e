import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { ListenerRequest } from "../../../../src/broker/listeners/listener.js";
import type { ForemanEndpoint } from "../../../../src/protocols/fuq/worker/index.js";
import { freePort } from "../../../support/free-port.js";
import { until } from "../../../support/wait.js";
import { type Listener, openListener } from "../http/kit.js";
import { cuttableLine, type Started, Yard } from "./kit.js";

const WAYS = ["websocket", "polling", "raw", "v1"] as const;
type By = (typeof WAYS)[number];

/** The same ones after a restart. */
async function listeners(): Promise<ListenerRequest[]> {
  const [fuq, fuq1] = [await freePort(), await freePort()];
  return [
    { name: "fuq", host: "127.0.0.1", ports: [fuq] },
    { name: "fuq1", host: "127.0.0.1", ports: [fuq1] },
  ];
}

/** The port at which the foreman is spoken to in this way. */
function portOf({ broker }: Listener, by: By): number {
  const name = by === "raw" ? "fuq" : by === "v1" ? "fuq1" : undefined;
  const url = name === undefined ? broker.url : broker.listeners.find((listener) => listener.name === name)?.urls[0];
  return Number(new URL(url ?? "").port);
}

function placeAt(listener: Listener, by: By, port = portOf(listener, by)): ForemanEndpoint {
  if (by === "raw" || by === "v1") return { by, address: { host: "127.0.0.1", port } };
  return { by, foreman: { url: new URL(`http://127.0.0.1:${port}/`), password: listener.password } };
}

async function resultsOf(
  listener: Listener,
  job: number,
): Promise<{ index: number; attempt: number; state: string }[]> {
  const results = [];
  for await (const result of (await listener.own()).job(job).results()) results.push(result);
  return results;
}

const joined = (worker: Started) => until("it has joined", () => worker.joined);

describe.each(WAYS)("our worker and our foreman by %s", (by) => {
  it("do a job: every task once, with its log", async () => {
    const yard = new Yard();
    const listener = await openListener({ listeners: await listeners() });
    const command = yard.script("job.sh", 'echo "task $1"; [ "$1" != 3 ] || exit 4');
    const worker = yard.worker(placeAt(listener, by), { slots: 3 });
    await joined(worker);
    await listener.job("many", 12, command, { working_dir: yard.dir, logging_dir: yard.dir });
    const own = await listener.own();
    expect(await own.job(1).wait()).toBe("failed");
    const results = await resultsOf(listener, 1);
    expect(results).toHaveLength(12);
    expect(results.filter(({ state }) => state === "failed")).toMatchObject([{ index: 2, code: 4 }]);
    expect(results.every(({ attempt }) => attempt === 1)).toBe(true);
    for (let task = 1; task <= 12; task++) {
      expect(readFileSync(yard.path(`many_${task}.log`), "utf8")).toBe(`task ${task}\n`);
    }
    await worker.stop({ finish: true });
    await until("it is gone", async () => (await own.workers()).length === 0);
  });

  it("lose nothing when the connection is cut again and again", async () => {
    const yard = new Yard();
    const listener = await openListener({ listeners: await listeners(), settings: { graceMs: 300 } });
    const line = await cuttableLine(portOf(listener, by));
    const worker = yard.worker(placeAt(listener, by, line.port), { slots: 4 });
    await joined(worker);
    const command = yard.script("job.sh", 'echo "run $1" >> runs; sleep 0.02');
    await listener.job("cut", 30, command, { working_dir: yard.dir, logging_dir: yard.dir });
    const own = await listener.own();
    for (let cuts = 0; cuts < 3; cuts++) {
      const before = (await own.job(1).info()).counters.succeeded;
      await until(
        "it goes on",
        async () => (await own.job(1).info()).counters.succeeded > Math.min(before + 4, 29),
        60_000,
      );
      line.cut();
    }
    expect(await own.job(1).wait()).toBe("succeeded");
    expect(await resultsOf(listener, 1)).toHaveLength(30);
    await worker.stop();
  });

  it.skipIf(by === "v1")(
    "go on after a restart of the broker, and what ran meanwhile is not run again (not of fuq v1)",
    async () => {
      const yard = new Yard();
      const listener = await openListener({ listeners: await listeners() });
      const worker = yard.worker(placeAt(listener, by), { slots: 2 });
      await joined(worker);
      const command = yard.script(
        "job.sh",
        `echo "run $1" >> runs; while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`,
      );
      await listener.job("two", 2, command, { working_dir: yard.dir, logging_dir: yard.dir });
      await until(
        "both run",
        () => existsSync(yard.path("runs")) && readFileSync(yard.path("runs"), "utf8").length >= 12,
        30_000,
      );
      await listener.restart();
      writeFileSync(yard.path("go"), "");
      const own = await listener.own();
      expect(await own.job(1).wait()).toBe("succeeded");
      expect((await resultsOf(listener, 1)).map(({ attempt }) => attempt)).toEqual([1, 1]);
      expect(readFileSync(yard.path("runs"), "utf8").split("\n").sort()).toEqual(["", "run 1", "run 2"]);
      expect(readdirSync(yard.dir).filter((name) => name.endsWith(".log"))).toHaveLength(2);
    },
    60_000,
  );

  it("part when the client asks for it: what runs ends first", async () => {
    const yard = new Yard();
    const listener = await openListener({ listeners: await listeners() });
    const worker = yard.worker(placeAt(listener, by), { slots: 2 });
    await joined(worker);
    const command = yard.script(
      "job.sh",
      `touch ${yard.path("begun")}; while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`,
    );
    await listener.job("one", 1, command, { working_dir: yard.dir, logging_dir: yard.dir });
    await until("it runs", () => existsSync(yard.path("begun")));
    const nodes = (await listener.client("nodes/list", {})).json as { unique_name: string; nproc: number }[];
    const hasName = by === "websocket" || by === "polling";
    expect(nodes).toMatchObject([hasName ? { node: "vm", pid: process.pid, nproc: 2 } : { pid: 0, nproc: 2 }]);
    await listener.client("nodes/shutdown", { uniq_names: nodes.map(({ unique_name }) => unique_name) });
    await listener.job("never", 1, command, { working_dir: yard.dir, logging_dir: yard.dir });
    writeFileSync(yard.path("go"), "");
    await until("the worker has ended", () => worker.outcome === "stopped");
    const own = await listener.own();
    expect(await own.job(1).wait()).toBe("succeeded");
    expect((await own.job(2).info()).state).toBe("waiting");
  });
});
