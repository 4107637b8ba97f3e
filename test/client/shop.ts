/** A real broker, a real worker and a real client in this process, on loopback, in a folder that goes afterwards. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import type { RunningBroker, ServerOptions } from "../../src/broker/options.js";
import { type Client, connect, type JobHandle, type TaskResult } from "../../src/entries/client.js";
import { startWorker, type Worker, type WorkerOptions } from "../../src/entries/worker.js";
import { startBroker } from "../../src/server.js";

export interface Shop {
  readonly dir: string;
  readonly broker: RunningBroker;
  readonly client: Client;
  worker(options?: Partial<WorkerOptions>): Worker;
}

const open: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

export async function openShop(options: Partial<ServerOptions> = {}): Promise<Shop> {
  const dir = mkdtempSync(join(tmpdir(), "laboro-test-"));
  open.push(async () => rmSync(dir, { recursive: true, force: true }));
  const broker = await startBroker({ dir: join(dir, "data"), port: 0, ...options });
  open.push(() => broker.stop());
  const client = await connect({ broker: broker.url, token: broker.token });
  open.push(async () => client.close());
  return {
    dir,
    broker,
    client,
    worker: (more = {}) => {
      const worker = startWorker({ broker: broker.url, token: broker.token, slots: 2, ...more });
      open.push(() => worker.stop({ graceMs: 0 }));
      return worker;
    },
  };
}

export async function resultsOf(job: JobHandle): Promise<TaskResult[]> {
  const results: TaskResult[] = [];
  for await (const result of job.results()) results.push(result);
  return results;
}

/** Polls until it holds; fails after ten seconds. */
export async function until(holds: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
