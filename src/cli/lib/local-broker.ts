/**
 * The broker that `run` uses when none is configured. It runs in this process, with its data in ./.laboro
 * (base/files/local-data.ts). If another run in the same directory has started one, this run connects to it. When that
 * run ends, this process opens the data itself.
 */
import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import type { ErrorCode } from "../../base/errors.js";
import { LaboroError } from "../../base/errors.js";
import { INNER, LOCAL_DATA } from "../../base/files/local-data.js";
import { type Log, SILENT } from "../../base/log.js";
import type { RunningBroker } from "../../broker/options.js";
import { type Client, connect } from "../../client/client.js";
import { findBroker } from "../../client/find-broker.js";
import type { Job } from "../../model/job.js";
import { startBroker } from "../../server.js";
import { startWorker, type Worker, type WorkerOptions } from "../../worker/index.js";
import { printRemedy } from "./failures.js";
import { printNotice } from "./print.js";

export interface LocalBroker {
  readonly client: Client;
  /** Absent if the broker runs in another process. */
  readonly started?: { readonly broker: RunningBroker; readonly worker: Worker | undefined };
  /** `finish`: let tasks of other runs finish. */
  close(finish: boolean): Promise<void>;
}

/** What else decides whether the worker starts a task. */
type MachineLimits = Pick<WorkerOptions, "minMemory" | "maxLoad">;

const TRIES = 50;
const PAUSE_MS = 100;
/** Time for a task to end after SIGTERM, at the end of a run. */
const GRACE_MS = 2_000;
const HOUR_MS = 3_600_000;
/** Ended jobs are kept for this long, up to this size. A larger batch is kept for an hour. */
const RETENTION = { keepMs: 30 * 24 * HOUR_MS, keepBytes: 1024 ** 3, keepAtLeastMs: HOUR_MS };
const ERRORS_ONLY: Log = {
  ...SILENT,
  error: (fields: { readonly code?: ErrorCode }, message) => {
    printNotice(message);
    if (fields.code !== undefined) printRemedy({ code: fields.code, message });
  },
};

/**
 * With 0 slots there is no worker: for reading the data of earlier runs. If this process opens the data, it holds the
 * open jobs for which `holdJob` returns true. These belong to runs that were killed, and only their own command line
 * resumes them. Runs that are still active release theirs.
 */
export async function openLocalBroker(
  dir: string,
  slots: number,
  holdJob: (job: Job) => boolean = () => false,
  listenLater = slots > 0,
  limits: MachineLimits = {},
): Promise<LocalBroker> {
  for (let left = TRIES; ; left--) {
    try {
      return await startLocalBroker(dir, slots, holdJob, listenLater, limits);
    } catch (cause) {
      if (!(cause instanceof LaboroError) || cause.code !== "LABORO_DATA_IN_USE") throw cause;
      const joined = await joinLocalBroker(dir, slots, limits);
      if (joined !== undefined) return joined;
      // Another run is just starting or ending here.
      if (left === 0) throw cause;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }
}

async function startLocalBroker(
  dir: string,
  slots: number,
  holdAtStart: (job: Job) => boolean,
  listenLater: boolean,
  limits: MachineLimits,
): Promise<LocalBroker> {
  const broker = await startBroker({
    ...{ dir, port: 0, retention: RETENTION, holdAtStart, log: ERRORS_ONLY },
    listenLater,
  });
  tidy(dir);
  let worker: Worker | undefined;
  try {
    if (slots > 0) worker = localWorker(dir, broker, broker.token, slots, false, limits);
  } catch (cause) {
    await broker.stop();
    throw cause;
  }
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
  limits: MachineLimits,
): Worker {
  const env = { LABORO_RUN: resolve(dir) };
  const worker = { dir: join(dir, "worker"), name: "local", slots, env, spool, startShell: true, detect: true };
  const sentFilesBytes = RETENTION.keepBytes;
  return startWorker({ broker, token, sentFilesBytes, ...worker, ...limits });
}

/** Keeps the directory out of version control, and removes old data of runs inside tasks. */
function tidy(dir: string): void {
  const ignore = join(dir, ".gitignore");
  if (basename(dir) === LOCAL_DATA && !existsSync(ignore)) writeFileSync(ignore, "*\n", { mode: 0o600 });
  const inner = join(dir, INNER);
  if (!existsSync(inner)) return;
  for (const name of readdirSync(inner)) {
    const age = Date.now() - statSync(join(inner, name)).mtimeMs;
    if (age > RETENTION.keepMs) rmSync(join(inner, name), { recursive: true, force: true });
  }
}

/** If the broker has no worker (it was opened to read the data), this process starts one. Undefined if it just ends. */
async function joinLocalBroker(dir: string, slots: number, limits: MachineLimits): Promise<LocalBroker | undefined> {
  let client: Client | undefined;
  try {
    // The environment may name another broker.
    const { urls, token } = findBroker({ data: dir, env: {} });
    // The broker that follows it has another port.
    const joined = await connect({ broker: urls, token, name: "run", connectTimeoutMs: 1_000, reconnect: false });
    client = joined;
    const worker = slots > 0 && (await hasNoWorker(joined)) ? workerIfNone(dir, urls, token, slots, limits) : undefined;
    return {
      client: joined,
      close: async (finish) => {
        await worker?.stop({ finish, graceMs: finish ? Number.POSITIVE_INFINITY : GRACE_MS });
        joined.close();
      },
    };
  } catch (cause) {
    client?.close();
    // LABORO_BAD_TOKEN: a broker of other data now has the port that was written down here.
    if (cause instanceof LaboroError && /^LABORO_(BROKER_|BAD_TOKEN$)/.test(cause.code)) return undefined;
    throw cause;
  }
}

const hasNoWorker = async (client: Client): Promise<boolean> =>
  (await client.ask("status", {})).workers.connected === 0;

/** Undefined if another process has just started the worker of this directory. */
function workerIfNone(
  dir: string,
  urls: readonly string[],
  token: string,
  slots: number,
  limits: MachineLimits,
): Worker | undefined {
  try {
    return localWorker(dir, urls, token, slots, true, limits);
  } catch (cause) {
    if (cause instanceof LaboroError && cause.code === "LABORO_DATA_IN_USE") return undefined;
    throw cause;
  }
}
