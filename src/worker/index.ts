/** Starts a worker: its directory, its slots, its link. */
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { now } from "../base/clock.js";
import type { LaboroError } from "../base/errors.js";
import { startFailure } from "../base/files/durable.js";
import { type Log, SILENT } from "../base/log.js";
import { SessionId, type WorkerId } from "../model/ids.js";
import { DEFAULT_POOL } from "../model/recipe.js";
import { addressesOf, type InProcessBroker } from "../protocols/laboro/broker-address.js";
import { Agent } from "./agent.js";
import { Capacity } from "./capacity.js";
import { JobFiles } from "./job-files.js";
import { Lifetime } from "./lifetime.js";
import { MemoryWatch, mebibytes } from "./memory.js";
import { openSlots } from "./processes/index.js";
import { openPrograms, type ServiceProgram } from "./programs/index.js";
import { type Handler, Services } from "./services.js";
import { indexPath, spooledOutputs } from "./spool/output-index.js";
import { type LoadedSpool, ResultSpool } from "./spool/result-spool.js";
import { openWorkerDirectory, type WorkerDirectory } from "./spool/worker-directory.js";

export { SERVICE_MODES, type ServiceMode, type ServiceProgram } from "./programs/index.js";
export type { CallContext, Handler } from "./services.js";

export interface WorkerOptions {
  /** One broker, or the brokers of a group, by their URLs; or what `startBroker` returned in this process. */
  readonly broker: string | readonly string[] | InProcessBroker;
  /** Not needed for a broker in this process. */
  readonly token?: string;
  /** The CA of `https:` brokers, where they are known by its fingerprint: SHA-256 in hexadecimal digits. */
  readonly caFingerprint?: string;
  /** Where the worker's identity and undelivered results are kept; a temporary one if absent. */
  readonly dir?: string;
  /**
   * Keep results on disk whose acknowledgement is late, for the next process of this worker; true if absent. A worker in the process of its
   * broker does not need it: they end together.
   */
  readonly spool?: boolean;
  readonly name?: string;
  readonly slots?: number;
  /** Besides slots: `{ gpu: 2, memory: 64 }`. */
  readonly resources?: Readonly<Record<string, number>>;
  readonly pool?: string;
  readonly tags?: readonly string[];
  readonly reserveRequests?: number;
  readonly services?: Readonly<Record<string, Handler>>;
  /** Programs that are offered as services. */
  readonly programs?: Readonly<Record<string, ServiceProgram>>;
  /** Bytes of memory that must be available for a task to start. */
  readonly minMemory?: number;
  /** Where the kernel says what is available; /proc/meminfo if absent. */
  readonly memoryFile?: string;
  /** The worker stops in order after this time. It starts no task whose time limit is longer than the time left. */
  readonly lifetimeMs?: number;
  /** The worker stops in order after it was idle for this time. */
  readonly idleTimeoutMs?: number;
  /** How long a task or handler has to end after it was cancelled, past its time limit or when the worker stops; 5 s if absent. */
  readonly cancelGraceMs?: number;
  /** Added to the environment of its tasks and programs. */
  readonly env?: Readonly<Record<string, string>>;
  readonly log?: Log;
  readonly onJoined?: () => void;
  /** The broker refuses this worker. */
  readonly onRefused?: (error: LaboroError) => void;
  /** All brokers were tried without an answer, `rounds` times in a row. The worker keeps trying. */
  readonly onUnreachable?: (error: LaboroError, rounds: number) => void;
  /** The worker has stopped, and not because `stop` was called. */
  readonly onStopped?: (reason: StopReason) => void;
}

/** The broker asked for it, its lifetime is over, or it was idle for too long. */
export type StopReason = "broker" | "lifetime" | "idle";

export interface StopOptions {
  /**
   * Let running tasks end by themselves; true if absent. What still runs shortly before the end of the grace, or with false every task
   * at once, is stopped and returns to the queue; no failure is counted.
   */
  readonly finish?: boolean;
  /**
   * How long all of it may take, the delivery of results included; it may be `Infinity`. 30 s if absent, with `finish: false` the
   * worker's `cancelGraceMs`.
   */
  readonly graceMs?: number;
}

export interface Worker {
  readonly id: WorkerId;
  readonly name: string;
  readonly joined: boolean;
  serve(service: string, handler: Handler): void;
  /** The brokers to try when the link is down. */
  setBrokers(urls: readonly string[]): void;
  /** Resolves when nothing runs and the broker has all results, or at the end of the grace. A second call can only shorten the grace. */
  stop(options?: StopOptions): Promise<void>;
}

const CANCEL_GRACE_MS = 5_000;
const STOP_GRACE_MS = 30_000;

export function startWorker(options: WorkerOptions): Worker {
  try {
    return openWorker(options);
  } catch (cause) {
    throw startFailure(cause, "the worker", options.dir ?? tmpdir());
  }
}

function openWorker(options: WorkerOptions): Worker {
  const { log = SILENT, cancelGraceMs = CANCEL_GRACE_MS, slots: count = 1 } = options;
  // Throws for contradictory options before anything is opened.
  const capacity = new Capacity({ ...options.resources, slots: count }, process.env);
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "laboro-worker-"));
  const directory = openWorkerDirectory(dir);
  // What an earlier process has left is delivered in any case.
  const mustSpool = (options.spool ?? true) || existsSync(directory.resultsPath);
  const { spool, results } = mustSpool ? openSpool(directory, log) : { spool: undefined, results: [] };
  const env = { ...environmentOfTasks(), ...options.env };
  const programs = openPrograms(options.programs ?? {}, {
    ...{ count, env, log, now },
    dir: join(dir, "requests"),
    graceMs: cancelGraceMs,
  });
  const services = new Services();
  for (const [service, handler] of Object.entries({ ...programs.handlers, ...options.services })) {
    services.set(service, handler);
  }
  const slots = openSlots({ count, now, env });
  const files = new JobFiles(join(dir, "files"), capacity.hiddenDevicesEnv);
  const name = options.name ?? `${hostname()}:${process.pid}`;
  const lifetime =
    options.lifetimeMs === undefined ? undefined : new Lifetime(options.lifetimeMs, now, () => leave("lifetime"));
  const memory = memoryWatch(options, log, () => agent);
  const agent = new Agent(
    {
      ...{ directory, slots, files, services, capacity, log, now },
      ...(spool === undefined ? {} : { spool }),
      ...(lifetime === undefined ? {} : { lifetime }),
      ...(memory === undefined ? {} : { memory }),
    },
    {
      ...addressesOf(options),
      ...(options.caFingerprint === undefined ? {} : { caFingerprint: options.caFingerprint }),
      name,
      session: SessionId(randomUUID()),
      pool: options.pool ?? DEFAULT_POOL,
      tags: options.tags ?? [],
      reserveRequests: options.reserveRequests ?? 0,
      cancelGraceMs,
      ...(options.idleTimeoutMs === undefined ? {} : { idleTimeoutMs: options.idleTimeoutMs }),
      onSlots: (count) => programs.grow(count),
      onIdle: () => leave("idle"),
      onJoined: () => options.onJoined?.(),
      onRefused: (error) => {
        log.error({ code: error.code }, error.message);
        options.onRefused?.(error);
      },
      onUnreachable: (error, rounds) => options.onUnreachable?.(error, rounds),
      onStop: (now) => leave("broker", !now),
    },
    results,
  );
  let stopping: Promise<void> | undefined;
  const stop = ({ finish = true, graceMs = finish ? STOP_GRACE_MS : cancelGraceMs }: StopOptions): Promise<void> => {
    const left = agent.leave({ finish, graceMs });
    stopping ??= (async () => {
      memory?.stop();
      await left;
      lifetime?.stop();
      await programs.close(Math.min(cancelGraceMs, agent.leaveGraceMs));
      await slots.close();
      await spool?.close();
      files.remove();
      directory.release();
      if (options.dir === undefined) rmSync(dir, { recursive: true, force: true });
    })();
    return stopping;
  };
  const leave = (reason: StopReason, finish = reason !== "lifetime"): void => {
    const first = stopping === undefined;
    if (first) log.info({ reason }, "the worker stops");
    // At the end of its lifetime there is no time left for tasks to end by themselves.
    const stopped = stop(finish ? { graceMs: Number.POSITIVE_INFINITY } : { finish: false });
    if (first) void stopped.then(() => options.onStopped?.(reason));
  };
  return {
    id: directory.id,
    name,
    get joined() {
      return agent.joined;
    },
    serve: (service, handler) => {
      services.set(service, handler);
      agent.announce();
    },
    setBrokers: (urls) => agent.setUrls(urls),
    stop: (how = {}) => stop(how),
  };
}

function openSpool(directory: WorkerDirectory, log: Log): Pick<LoadedSpool, "spool" | "results"> {
  const { spool, results, damage } = ResultSpool.load(directory.resultsPath, {
    onFailing: (error) =>
      log.warn({ code: error?.code }, error?.message ?? "the spool of results can be written again"),
  });
  for (const { at, bytes, reason } of damage) log.warn({ at, bytes }, `the spool of results is damaged: ${reason}`);
  removeStrayOutputs(directory.outputDirectory, new Set(results.map(({ key }) => key)));
  return { spool, results };
}

function memoryWatch(options: WorkerOptions, log: Log, agent: () => Agent): MemoryWatch | undefined {
  const { minMemory, memoryFile } = options;
  if (minMemory === undefined) return undefined;
  const onChange = (enough: boolean, available: number): void => {
    const fields = { availableBytes: available, minBytes: minMemory };
    if (enough) log.info(fields, "there is memory again: tasks start");
    else
      log.warn(fields, `only ${mebibytes(available)} of memory are available, tasks wait for ${mebibytes(minMemory)}`);
    agent().announce();
  };
  return new MemoryWatch({
    ...{ minBytes: minMemory, onChange, retry: () => agent().startPending() },
    ...(memoryFile === undefined ? {} : { file: memoryFile }),
  });
}

/**
 * The worker's own without the tokens: a task that prints its environment would store them in its output. LABORO_RUN is about the task that
 * this worker itself may run in.
 */
function environmentOfTasks(): NodeJS.ProcessEnv {
  const { LABORO_BROKER: _, LABORO_FUQ_TOKEN: __, LABORO_RUN: ___, ...env } = process.env;
  return env;
}

/** Removes output of tasks that died with an earlier process, or whose result was acknowledged just before it ended. */
function removeStrayOutputs(dir: string, wanted: ReadonlySet<string>): void {
  for (const name of spooledOutputs(dir)) {
    if (wanted.has(name)) continue;
    for (const path of [join(dir, name), indexPath(join(dir, name))]) rmSync(path, { force: true });
  }
}
