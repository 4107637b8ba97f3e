/** A broker with something to see: real workers of two kinds, services that are asked, jobs in every state. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RunningBroker, ServerOptions } from "../../src/broker/options.js";
import { type Client, connect, type JobHandle } from "../../src/entries/client.js";
import { startWorker, type Worker, type WorkerOptions } from "../../src/entries/worker.js";
import { startBroker } from "../../src/server.js";
import { sh, TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";

const PATIENCE_MS = 60_000;

const open = new Set<Scene>();

/** Those that a test which failed has left behind. */
export const closeScenes = async (): Promise<void> => {
  await Promise.all([...open].map((scene) => scene.close()));
};

export class Scene {
  readonly broker: RunningBroker;
  readonly client: Client;
  readonly dir: string;
  readonly #workers: Worker[] = [];

  private constructor(broker: RunningBroker, client: Client, dir: string) {
    this.broker = broker;
    this.client = client;
    this.dir = dir;
  }

  static async open(options: Partial<ServerOptions> = {}): Promise<Scene> {
    const dir = mkdtempSync(join(tmpdir(), "laboro-scene-"));
    const broker = await startBroker({ dir: join(dir, "data"), port: 0, ...options });
    const client = await connect({ broker: broker.url, token: broker.token });
    const scene = new Scene(broker, client, dir);
    open.add(scene);
    return scene;
  }

  async worker(options: Partial<WorkerOptions>): Promise<Worker> {
    const worker = startWorker({ broker: this.broker.url, token: this.broker.token, slots: 2, ...options });
    this.#workers.push(worker);
    await until(`${worker.name} has joined`, () => worker.joined, PATIENCE_MS);
    return worker;
  }

  async close(): Promise<void> {
    open.delete(this);
    this.client.close();
    await Promise.all(this.#workers.map((worker) => worker.stop({ graceMs: 0 })));
    await this.broker.stop();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** The output of a task that shows its colours and rewrites its line. */
const COLOURFUL = [
  "printf 'epoch 1/3  loss \\033[33m0.4821\\033[0m\\nepoch 2/3  loss \\033[33m0.2117\\033[0m\\n'",
  "printf 'loading 10%%\\rloading 80%%\\rloading 100%%\\n'",
  "printf '\\033[32mok\\033[0m <b>not bold</b> &amp;\\n'",
  "printf '\\033[1;31merror:\\033[0m no convergence for seed 7\\n' >&2",
].join("; ");

export interface Jobs {
  readonly failed: JobHandle;
  readonly done: JobHandle;
  readonly running: JobHandle;
  readonly held: JobHandle;
  readonly blocked: JobHandle;
  readonly stuck: JobHandle;
}

/** Jobs in every state; resolves when each is in its own. */
export async function submitJobs({ client }: Scene): Promise<Jobs> {
  const failed = await client.submit({
    name: "fit-models",
    recipe: {
      ...sh(`${COLOURFUL}; exit $(( LABORO_TASK % 4 == 0 ? 3 : 0 ))`),
      ...{ dir: "/", env: { DATASET: "secret-1", OMP_NUM_THREADS: "1" } },
    },
    entries: Array.from({ length: 24 }, (_, at) => `seed=${at + 1} rate=0.${(at % 3) + 1}`),
  });
  await failed.wait();
  const done = await client.submit({
    name: "prepare data",
    recipe: { kind: "command", argv: ["echo", "{}"], placeholders: true },
    entries: ["alpha.csv", "beta.csv", "gamma.csv"],
  });
  await done.wait();
  const running = await client.submit({
    name: "parameter sweep",
    recipe: sh('echo "begun $LABORO_TASK"; sleep 600'),
    count: 40,
  });
  const held = await client.submit({ name: "later", recipe: TRUE, count: 500, held: true });
  const blocked = await client.submit({
    name: "report",
    recipe: TRUE,
    count: 1,
    after: [{ job: running.id }],
  });
  const stuck = await client.submit({ name: "needs a gpu", recipe: TRUE, count: 2, needs: { gpu: 1 } });
  await until("tasks run", async () => (await running.info()).counters.running > 0, PATIENCE_MS);
  return { failed, done, running, held, blocked, stuck };
}
