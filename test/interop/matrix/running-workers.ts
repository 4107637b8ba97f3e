/** One worker of every kind, each at its own listener of one broker, and the name by which its results are known. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { RunningBroker } from "../../../src/broker/options.js";
import type { Client } from "../../../src/entries/client.js";
import { resolveForemanUrl } from "../../../src/protocols/fuq/worker/foreman-http.js";
import { type FuqWorkerOptions, startFuqWorker } from "../../../src/protocols/fuq/worker/index.js";
import { RoundRobinWorker } from "../../../src/protocols/round-robin/worker/worker.js";
import { startRunner } from "../../../src/protocols/runexp/runner/index.js";
import { startScale0Worker } from "../../../src/protocols/scale0/worker/worker.js";
import type { TestBroker } from "../../support/test-broker.js";
import { until } from "../../support/wait.js";
import type { Worker } from "./definition.js";

const SILENT = { info: () => {}, warn: () => {}, error: () => {} };

/** The services by which the kinds that answer requests can be told apart. */
export const SERVICE_OF: Partial<Record<Worker, string>> = {
  laboro: "ours",
  "round-robin": "rr.reverse",
  Scale0: "theirs",
};

export const reversed = (text: string): string => [...text].reverse().join("");

export interface RunningWorkers {
  /** Which kind a worker of this name is. */
  readonly kindOf: ReadonlyMap<string, Worker>;
  stop(): Promise<void>;
}

export const portOf = (broker: RunningBroker, listener: string, at = 0): number =>
  Number(
    broker.listeners
      .find(({ name }) => name === listener)
      ?.urls[at]?.split(":")
      .at(-1),
  );

/** Workers of these kinds, all if none is named. */
export async function startWorkers(setup: TestBroker, kinds?: readonly Worker[]): Promise<RunningWorkers> {
  const { broker, client, dir } = setup;
  const kindOf = new Map<string, Worker>();
  const stops: (() => Promise<unknown>)[] = [];
  const enter = async (kind: Worker, start: () => Promise<() => Promise<unknown>>): Promise<void> => {
    if (kinds?.includes(kind) === false) return;
    const before = await namesAt(client);
    stops.push(await start());
    await until(`a worker of kind ${kind} is there`, async () => {
      const [name] = [...(await namesAt(client))].filter((one) => !before.has(one));
      if (name !== undefined) kindOf.set(name, kind);
      return name !== undefined;
    });
  };
  const foreman = resolveForemanUrl({ fuq: broker.url, env: { LABORO_FUQ_TOKEN: broker.tokenOf("fuq") ?? "" } });
  const fuq = (node: string, place: FuqWorkerOptions["endpoint"]) => async () => {
    const home = join(dir, node);
    mkdirSync(home);
    const worker = startFuqWorker({ endpoint: place, slots: 1, node, dir: home, log: SILENT });
    return () => worker.stop();
  };
  const at = (listener: string) => ({ host: "127.0.0.1", port: portOf(broker, listener) });

  await enter("laboro", async () => {
    const worker = setup.worker({
      name: "ours",
      slots: 1,
      services: { ours: (body) => Buffer.from(reversed(Buffer.from(body).toString())) },
    });
    return () => worker.stop({ graceMs: 0 });
  });
  await enter("fuq v2, WebSocket", fuq("web", { by: "websocket", foreman }));
  await enter("fuq, polling", fuq("polling", { by: "polling", foreman }));
  await enter("fuq v2, raw", fuq("raw", { by: "raw", address: at("fuq") }));
  await enter("fuq v1", fuq("first", { by: "v1", address: at("fuq1") }));
  await enter("runexp runner", async () => {
    const runner = startRunner({
      manager: at("runexp"),
      host: "runner",
      threads: 1,
      dir: join(dir, "runner"),
      holdMs: 200,
    });
    return async () => {
      runner.stop(true);
      await runner.ended;
    };
  });
  await enter("round-robin", async () => {
    const worker = await RoundRobinWorker.open({
      url: `tcp://127.0.0.1:${portOf(broker, "round-robin")}`,
      commands: { reverse: ([text = Buffer.alloc(0)]) => [Buffer.from(reversed(text.toString()))] },
    });
    await worker.register();
    return () => worker.close();
  });
  await enter("Scale0", async () => {
    const worker = await startScale0Worker({
      broker: `tcp://127.0.0.1:${portOf(broker, "scale0", 1)}`,
      identity: "theirs",
      slots: 2,
      services: { theirs: (body) => reversed(Buffer.concat(body).toString()) },
    });
    worker.ended.catch(() => {});
    return () => worker.stop(0);
  });
  return {
    kindOf,
    stop: async () => {
      for (const stop of stops.reverse()) await stop();
    },
  };
}

async function namesAt(client: Client): Promise<ReadonlySet<string>> {
  return new Set((await client.workers()).map(({ name }) => name));
}
