/** A real broker, a real worker and a real client in this process, on loopback, in a folder that goes afterwards. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RunningBroker, ServerOptions } from "../../src/broker/options.js";
import { type Client, connect, type JobHandle, type TaskResult } from "../../src/entries/client.js";
import { startWorker, type Worker, type WorkerOptions } from "../../src/entries/worker.js";
import { startBroker } from "../../src/server.js";
import { atEnd } from "./at-end.js";
import { freePort } from "./free-port.js";

export interface TestBroker {
  readonly dir: string;
  readonly broker: RunningBroker;
  readonly client: Client;
  worker(options?: Partial<WorkerOptions>): Worker;
}

export async function openTestBroker(options: Partial<ServerOptions> = {}): Promise<TestBroker> {
  const dir = mkdtempSync(join(tmpdir(), "laboro-test-"));
  atEnd(async () => rmSync(dir, { recursive: true, force: true }));
  const broker = await startBroker({ dir: join(dir, "data"), port: await freePort(), ...options });
  atEnd(() => broker.stop());
  const client = await connect({ broker: broker.url, token: broker.token });
  atEnd(async () => client.close());
  return {
    dir,
    broker,
    client,
    worker: (more = {}) => {
      const worker = startWorker({ broker: broker.url, token: broker.token, slots: 2, ...more });
      atEnd(() => worker.stop({ graceMs: 0 }));
      return worker;
    },
  };
}

export async function resultsOf<Output>(job: JobHandle<Output>): Promise<TaskResult<Output>[]> {
  const results: TaskResult<Output>[] = [];
  for await (const result of job.results()) results.push(result);
  return results;
}
