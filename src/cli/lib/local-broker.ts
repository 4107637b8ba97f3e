/**
 * The broker that `run` uses when none is configured: one in this process, with its data in ./.laboro (base/files/local-data.ts). If another
 * run in the same directory has one already, this run joins it; when that one ends, this process opens the data itself.
 */
import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, join, resolve, sep } from "node:path";
import { LaboroError } from "../../base/errors.js";
import { LOCAL_DATA } from "../../base/files/local-data.js";
import { type Log, SILENT } from "../../base/log.js";
import type { RunningBroker } from "../../broker/options.js";
import { type Client, connect } from "../../client/client.js";
import { findBroker } from "../../client/find-broker.js";
import type { Job } from "../../model/job.js";
import { startBroker } from "../../server.js";
import { startWorker, type Worker, type WorkerOptions } from "../../worker/index.js";
import { printNotice } from "./print.js";

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
const HOUR_MS = 3_600_000;
/** What has ended is kept so long, within this size. A batch that is bigger than that is kept for an hour. */
const RETENTION = { keepForMs: 30 * 24 * HOUR_MS, keepBytes: 1024 ** 3, keepAtLeastMs: HOUR_MS };
const ERRORS_ONLY: Log = { ...SILENT, error: (_fields, text) => printNotice(text) };
/** Data of runs inside tasks, below that of the run whose tasks they are in. */
const INNER = "inner";

/**
 * The data directory of a run inside a task of another run on `dir`: one of its own, so that it does not wait for the slots that the other
 * run's tasks hold. `key` tells the runs of one task apart; the task's next attempt finds the same directory and resumes. Undefined where
 * this process is in no such task.
 */
export function innerDataDir(dir: string, key: string, env: NodeJS.ProcessEnv = process.env): string | undefined {
  const { LABORO_RUN: outer = "", LABORO_JOB: job, LABORO_TASK: task } = env;
  if (job === undefined || task === undefined || !`${outer}${sep}`.startsWith(`${resolve(dir)}${sep}`))
    return undefined;
  return join(outer, INNER, `${job}.${task}-${key.slice(0, 12)}`);
}

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
      const joined = await joinLocalBroker(dir, slots);
      if (joined !== undefined) return joined;
      // Another run is just starting or ending here.
      if (left === 0) throw cause;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

async function startLocalBroker(dir: string, slots: number, holdAtStart: (job: Job) => boolean): Promise<LocalBroker> {
  const broker = await startBroker({
    ...{ dir, port: 0, retention: RETENTION, holdAtStart, log: ERRORS_ONLY },
    listenLater: slots > 0,
  });
  tidy(dir);
  const worker = slots === 0 ? undefined : localWorker(dir, broker, broker.token, slots, false);
  const client = await connect({ broker, name: "run" });
  return {
    client,
    started: { broker, worker },
    close: async (finish) => {
      await worker?.stop({ finish, graceMs: finish ? Number.POSITIVE_INFINITY : GRACE_MS });
      client.close();
      await broker.stop();
    },
  };
}

function localWorker(
  dir: string,
  broker: WorkerOptions["broker"],
  token: string,
  slots: number,
  spool: boolean,
): Worker {
  const env = { LABORO_RUN: resolve(dir) };
  return startWorker({ broker, token, dir: join(dir, "worker"), name: "local", slots, env, spool });
}

/** Keeps the directory out of version control, and removes what runs inside tasks have left long ago. */
function tidy(dir: string): void {
  const ignore = join(dir, ".gitignore");
  if (basename(dir) === LOCAL_DATA && !existsSync(ignore)) writeFileSync(ignore, "*\n", { mode: 0o600 });
  const inner = join(dir, INNER);
  if (!existsSync(inner)) return;
  for (const name of readdirSync(inner)) {
    const age = Date.now() - statSync(join(inner, name)).mtimeMs;
    if (age > RETENTION.keepForMs) rmSync(join(inner, name), { recursive: true, force: true });
  }
}

/** If the broker has no worker (it was opened to look at the data), this process brings one. */
async function joinLocalBroker(dir: string, slots: number): Promise<LocalBroker | undefined> {
  try {
    // The environment may name another broker.
    const { urls, token } = findBroker({ data: dir, env: {} });
    const client = await connect({ broker: urls, token, name: "run", connectTimeoutMs: 1_000 });
    const worker = slots > 0 && (await hasNoWorker(client)) ? workerIfNone(dir, urls, token, slots) : undefined;
    return {
      client,
      close: async (finish) => {
        await worker?.stop({ finish, graceMs: finish ? Number.POSITIVE_INFINITY : GRACE_MS });
        client.close();
      },
    };
  } catch (cause) {
    if (cause instanceof LaboroError && cause.code === "LABORO_BROKER_UNREACHABLE") return undefined;
    throw cause;
  }
}

const hasNoWorker = async (client: Client): Promise<boolean> =>
  (await client.ask("status", {})).workers.connected === 0;

/** Undefined where another process has just started the worker of this directory. */
function workerIfNone(dir: string, urls: readonly string[], token: string, slots: number): Worker | undefined {
  try {
    return localWorker(dir, urls, token, slots, true);
  } catch (cause) {
    if (cause instanceof LaboroError && cause.code === "LABORO_DATA_IN_USE") return undefined;
    throw cause;
  }
}
