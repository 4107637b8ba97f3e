/**
 * The broker that `run` uses when none is configured: one in this process, with its data in ./.laboro (base/files/local-data.ts). If another
 * run in the same directory has one already, this run joins it; when that one ends, this process opens the data itself.
 */
import { join } from "node:path";
import { LaboroError } from "../../base/errors.js";
import type { RunningBroker } from "../../broker/options.js";
import { type Client, connect } from "../../client/client.js";
import { findBroker } from "../../client/find-broker.js";
import type { Job } from "../../model/job.js";
import { startBroker } from "../../server.js";
import { startWorker, type Worker } from "../../worker/index.js";

export interface LocalBroker {
  readonly client: Client;
  /** Absent where another process has the broker. */
  readonly started?: { readonly broker: RunningBroker; readonly worker: Worker | undefined };
  /** `finish`: let what others run here end by itself. */
  close(finish: boolean): Promise<void>;
}

const TRIES = 50;
const PAUSE_MS = 100;
/** A task that is stopped at the end of a run has this long. */
const GRACE_MS = 2_000;

/**
 * With 0 slots there is no worker: for reading what earlier runs left. If this process opens the data, the open jobs for which `holdJob`
 * returns true are held: those of runs that were killed, which only their own command line resumes. Runs that still go on release theirs.
 */
export async function openLocalBroker(
  dir: string,
  slots: number,
  holdJob: (job: Job) => boolean = () => false,
): Promise<LocalBroker> {
  for (let left = TRIES; ; left--) {
    try {
      return await startLocalBroker(dir, slots, holdJob);
    } catch (cause) {
      if (!(cause instanceof LaboroError) || cause.code !== "LABORO_DATA_IN_USE") throw cause;
      const joined = await joinLocalBroker(dir);
      if (joined !== undefined) return joined;
      // Another run is just starting or ending here.
      if (left === 0) throw cause;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

async function startLocalBroker(dir: string, slots: number, holdAtStart: (job: Job) => boolean): Promise<LocalBroker> {
  const broker = await startBroker({ dir, port: 0, holdAtStart });
  const { url, token } = broker;
  const worker =
    slots === 0 ? undefined : startWorker({ broker: url, token, dir: join(dir, "worker"), name: "local", slots });
  const client = await connect({ broker: url, token, name: "run" });
  return {
    client,
    started: { broker, worker },
    close: async (finish) => {
      await worker?.stop({ finish, graceMs: GRACE_MS });
      client.close();
      await broker.stop();
    },
  };
}

async function joinLocalBroker(dir: string): Promise<LocalBroker | undefined> {
  try {
    // The environment may name another broker.
    const { urls, token } = findBroker({ data: dir, env: {} });
    const client = await connect({ broker: urls, token, name: "run", connectTimeoutMs: 1_000 });
    return { client, close: async () => client.close() };
  } catch (cause) {
    if (cause instanceof LaboroError && cause.code === "LABORO_BROKER_UNREACHABLE") return undefined;
    throw cause;
  }
}
