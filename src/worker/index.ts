/** Start a worker: its directory, its slots, its link. */
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { now } from "../broker/clock.js";
import { type Log, SILENT } from "../broker/log.js";
import type { LaboroError } from "../model/errors.js";
import { SessionId, type WorkerId } from "../model/ids.js";
import { DEFAULT_POOL } from "../model/recipe.js";
import { Agent } from "./agent.js";
import { JobFiles } from "./command-of.js";
import { openSlots } from "./processes/index.js";
import { type Handler, Services } from "./services.js";
import { openWorkerDirectory } from "./spool/identity.js";
import { indexPath, spooledOutputs } from "./spool/output-index.js";
import { ResultSpool } from "./spool/result-spool.js";

export type { CallContext, Handler } from "./services.js";

export interface WorkerOptions {
  /** One broker, or the brokers of a group. */
  readonly broker: string | readonly string[];
  readonly token: string;
  /** Where the worker's identity and undelivered results are kept; a temporary one if absent. */
  readonly dir?: string;
  readonly name?: string;
  readonly slots?: number;
  /** Besides slots: `{ gpu: 2, memory: 64 }`. */
  readonly resources?: Readonly<Record<string, number>>;
  readonly pool?: string;
  readonly tags?: readonly string[];
  readonly reserveRequests?: number;
  readonly services?: Readonly<Record<string, Handler>>;
  readonly cancelGraceMs?: number;
  readonly log?: Log;
  /** The broker will not have this worker. */
  readonly onRefused?: (error: LaboroError) => void;
  /** The broker has asked it to stop, and it has. */
  readonly onStopped?: () => void;
}

export interface StopOptions {
  /** Let what runs end by itself. Otherwise it is stopped and goes back to the queue, at no cost to it. */
  readonly finish?: boolean;
  readonly graceMs?: number;
  /** How long to wait for the broker to take what is done. */
  readonly patienceMs?: number;
}

export interface Worker {
  readonly id: WorkerId;
  readonly name: string;
  readonly joined: boolean;
  serve(service: string, handler: Handler): void;
  stop(options?: StopOptions): Promise<void>;
}

const CANCEL_GRACE_MS = 5_000;
const PATIENCE_MS = 5_000;

export function startWorker(options: WorkerOptions): Worker {
  const { log = SILENT } = options;
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "laboro-worker-"));
  const directory = openWorkerDirectory(dir);
  const { spool, results, damage } = ResultSpool.load(directory.resultsPath, {
    onFailing: (error) =>
      log.warn({ code: error?.code }, error?.message ?? "the spool of results can be written again"),
  });
  for (const { at, bytes, reason } of damage) log.warn({ at, bytes }, `the spool of results is damaged: ${reason}`);
  removeStrayOutputs(directory.outputDirectory, new Set(results.map(({ key }) => key)));
  const services = new Services();
  for (const [name, handler] of Object.entries(options.services ?? {})) services.set(name, handler);
  const count = options.slots ?? 1;
  const slots = openSlots({ count, now });
  const files = new JobFiles(join(dir, "files"));
  const name = options.name ?? `${hostname()}:${process.pid}`;
  const agent = new Agent(
    { directory, spool, slots, files, services, log, now },
    {
      urls: typeof options.broker === "string" ? [options.broker] : options.broker,
      token: options.token,
      name,
      session: SessionId(randomUUID()),
      pool: options.pool ?? DEFAULT_POOL,
      tags: options.tags ?? [],
      total: { ...options.resources, slots: count },
      reserveRequests: options.reserveRequests ?? 0,
      cancelGraceMs: options.cancelGraceMs ?? CANCEL_GRACE_MS,
      onRefused: (error) => {
        log.error({ code: error.code }, error.message);
        options.onRefused?.(error);
      },
      onStop: () => void stop({ finish: true }).then(() => options.onStopped?.()),
    },
    results,
  );
  let stopping: Promise<void> | undefined;
  const stop = (how: StopOptions): Promise<void> => {
    stopping ??= (async () => {
      const { finish = false, graceMs = CANCEL_GRACE_MS, patienceMs = PATIENCE_MS } = how;
      await agent.leave({ finish, graceMs, patienceMs });
      await slots.close();
      await spool.close();
      files.remove();
      directory.release();
      if (options.dir === undefined) rmSync(dir, { recursive: true, force: true });
    })();
    return stopping;
  };
  return {
    id: directory.id,
    name,
    get joined() {
      return agent.joined;
    },
    serve: (service, handler) => {
      services.set(service, handler);
      agent.servicesChanged();
    },
    stop: (how = {}) => stop(how),
  };
}

/** Output of tasks that died with an earlier process, or whose result was acknowledged just before it ended. */
function removeStrayOutputs(dir: string, wanted: ReadonlySet<string>): void {
  for (const name of spooledOutputs(dir)) {
    if (wanted.has(name)) continue;
    for (const path of [join(dir, name), indexPath(join(dir, name))]) rmSync(path, { force: true });
  }
}
