/** Starts a worker: its directory, its slots, its link. */

import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { now, type WaitOptions, waitFor } from "../base/clock.js";
import { badInput, LaboroError } from "../base/errors.js";
import { startFailure } from "../base/files/durable.js";
import { type Log, SILENT } from "../base/log.js";
import { SessionId, type WorkerId } from "../model/ids.js";
import { definedOnly } from "../model/input.js";
import { DEFAULT_POOL } from "../model/recipe.js";
import type { TaskDefinition, TaskFunction, TaskHandler } from "../model/task-definition.js";
import { addressesOf, type InProcessBroker, isInProcess } from "../protocols/laboro/broker-address.js";
import { NAME_LIMIT } from "../protocols/laboro/codec-fields.js";
import { Agent } from "./agent.js";
import { Capacity } from "./capacity.js";
import { JobFiles } from "./job-files.js";
import { Lifetime } from "./lifetime.js";
import { detectResources, MemoryWatch, mebibytes } from "./machine.js";
import { openSlots } from "./processes/index.js";
import { openPrograms, type ServiceProgram } from "./programs/index.js";
import { ObjectPool } from "./programs/object-pool.js";
import {
  BlockWatch,
  type CallHandler,
  type Handler,
  isTaskHandler,
  type Service,
  Services,
  typedService,
} from "./services.js";
import { indexPath, spooledOutputs } from "./spool/block.js";
import { type LoadedSpool, ResultSpool } from "./spool/result-spool.js";
import { openWorkerDirectory, type WorkerDirectory } from "./spool/worker-directory.js";
import { type TaskEndInfo, tellingEnds } from "./task-end.js";
import { TaskFolders } from "./task-folders.js";
import { type HandlerModule, openModule, type ThreadOptions } from "./threads/index.js";

export { SERVICE_MODES, type ServiceMode, type ServiceProgram } from "./programs/index.js";
export type { Handler } from "./services.js";
export type { TaskEndInfo } from "./task-end.js";
export type { ThreadOptions } from "./threads/index.js";

/** What a worker is started with. Only `broker` is needed. */
export interface WorkerOptions {
  /** A broker, or the brokers of a group, by URL or join URL; or the return value of `startBroker` in this process. */
  readonly broker: string | readonly string[] | InProcessBroker;
  /** Not needed with a join URL, or for a broker in this process. */
  readonly token?: string;
  /** The CA of `https:` brokers, by its fingerprint: SHA-256 in hexadecimal digits. */
  readonly caFingerprint?: string;
  /** The directory of the worker's identity and undelivered results; a temporary one if absent. */
  readonly dir?: string;
  /**
   * Store results on disk if their acknowledgement is late, for the next process of this worker; true if absent. A
   * worker in the process of its broker does not need it, because they end together.
   */
  readonly spool?: boolean;
  /**
   * A directory with a Unix socket for each broker, `HOST_PORT.sock`: the other end of a tunnel. The worker uses only
   * these.
   */
  readonly tunnels?: string;
  /** Where tasks run whose directory does not exist on this machine; they fail if absent. */
  readonly missingDir?: string;
  /** What people call it; host and process id if absent. */
  readonly name?: string;
  /** How many tasks and requests at a time; 1 if absent. */
  readonly slots?: number;
  /** Besides slots: `{ gpu: 2, memory: 64 }`. */
  readonly resources?: Readonly<Record<string, number>>;
  /**
   * Also offer the resources of the machine: `gpu`, and `mem` in MiB. `resources` overrides it; an amount of 0 offers
   * none.
   */
  readonly detect?: boolean;
  /** Detect them below this folder instead of `/`. */
  readonly detectFrom?: string;
  /** Takes work of this pool only; `default` if absent. */
  readonly pool?: string;
  /** Tasks may ask for workers with these. */
  readonly tags?: readonly string[];
  /** Slots that only requests may use. */
  readonly reserveRequests?: number;
  /** Services without a definition, as by `handle(name, …)`. */
  readonly services?: Readonly<Record<string, Handler>>;
  /** Programs that are offered as services. */
  readonly programs?: Readonly<Record<string, ServiceProgram>>;
  /** Bytes of memory that must be available for a task to start. */
  readonly minMemory?: number;
  /** Where the kernel reports available memory; /proc/meminfo if absent. */
  readonly memoryFile?: string;
  /** Processes that may be running or ready to run on the machine for a task to start. */
  readonly maxLoad?: number;
  /** /proc/loadavg if absent. */
  readonly loadFile?: string;
  /** The worker stops in order after this time. It starts no task whose time limit is longer than the time left. */
  readonly lifetimeMs?: number;
  /** How long tasks and requests may run on when the lifetime is over; none if absent: they are stopped at once. */
  readonly lifetimeGraceMs?: number;
  /** The worker stops in order after it was idle for this time. */
  readonly idleTimeoutMs?: number;
  /**
   * How long a task or handler may take to end after its cancel or time limit, or when the worker stops; 5 s if absent.
   */
  readonly cancelGraceMs?: number;
  /** How many bytes of the files sent with jobs are kept for later tasks; 10 GiB if absent. */
  readonly sentFilesBytes?: number;
  /** Added to the environment of its tasks and programs. */
  readonly env?: Readonly<Record<string, string>>;
  /** Start the shell of the first slot at once, not with the first task: for a worker whose tasks are commands. */
  readonly startShell?: boolean;
  /** Anything with `info`, `warn` and `error` as in pino; silent if absent. */
  readonly log?: Log;
  /** The broker has accepted the worker: at the start, and after each reconnect. */
  readonly onJoined?: () => void;
  /** The broker refuses this worker. */
  readonly onRefused?: (error: LaboroError) => void;
  /** All brokers were tried without an answer, `rounds` times in a row. The worker keeps trying. */
  readonly onUnreachable?: (error: LaboroError, rounds: number) => void;
  /** An attempt at a task has ended here: for metrics, and for services that collect errors. */
  readonly onTaskEnded?: (end: TaskEndInfo) => void;
  /** The worker has stopped, and not because `stop` was called. */
  readonly onStopped?: (reason: StopReason) => void;
}

/** The broker asked for it, its lifetime is over, or it was idle for too long. */
export type StopReason = "broker" | "lifetime" | "idle";

/** How a worker stops. */
export interface StopOptions {
  /**
   * Let running tasks finish; true if absent. Tasks that still run shortly before the end of the grace, or with false
   * all tasks at once, are stopped and return to the queue. This does not count as a failure.
   */
  readonly finish?: boolean;
  /**
   * The time for all of it, including the delivery of results; may be `Infinity`. If absent 30 s, or with `finish:
   * false` the worker's `cancelGraceMs`.
   */
  readonly graceMs?: number;
}

/** A worker in this process. */
export interface Worker {
  /** Known by the broker; kept in `dir`. */
  readonly id: WorkerId;
  /** Its name in lists and logs. */
  readonly name: string;
  /** The broker has accepted it, and the link is open. */
  readonly joined: boolean;
  /** Resolves when the broker has accepted the worker; rejects if it refuses it, for a wrong token for example. */
  ready(options?: WaitOptions): Promise<void>;
  /**
   * Handles a task with a function of this process. While it computes, nothing else in this process runs, not even
   * heartbeats. So a function that computes for seconds belongs in a module.
   */
  handle<Input, Output, Parsed>(
    task: TaskDefinition<Input, Output, Parsed>,
    run: TaskFunction<Parsed, Output>,
    options?: HandleOptions,
  ): void;
  /** The same with a handler that a module exports: inline here, in tests for example, and in threads elsewhere. */
  handle(handler: TaskHandler, options?: HandleOptions): void;
  /** Offers a service without a definition: bytes in, bytes or text out. The reply to a task is its standard output. */
  handle(service: string, run: Handler, options?: HandleOptions): void;
  /**
   * Handles tasks in threads with the handlers that a module exports. Resolves with their names when the module is
   * loaded.
   */
  handle(module: URL, options?: ThreadOptions): Promise<readonly string[]>;
  /** The same for one of the tasks that the module handles, in threads of its own. */
  handle<Input, Output, Parsed>(
    task: TaskDefinition<Input, Output, Parsed>,
    module: URL,
    options?: ThreadOptions,
  ): Promise<readonly string[]>;
  /** The brokers to try when the link is down. */
  setBrokers(urls: readonly string[]): void;
  /**
   * Resolves when nothing runs and the broker has all results, or at the end of the grace. A second call can only
   * shorten the grace.
   */
  stop(options?: StopOptions): Promise<void>;
  /** `stop()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Of a function of this process. */
export interface HandleOptions {
  /** The most calls at a time; the worker's slots if absent. A call that waits for its turn already has a slot. */
  readonly concurrency?: number;
}

const HANDLE_USAGE =
  "handle: expected a task, or a name of 1 to 1024 bytes, and a function; a handler; or the URL of a module";
const CANCEL_GRACE_MS = 5_000;
const STOP_GRACE_MS = 30_000;

/** Starts a worker. It connects, and reconnects, by itself. Throws LABORO_BAD_INPUT for options that cannot be. */
export function startWorker(options: WorkerOptions): Worker {
  try {
    return openWorker(options);
  } catch (cause) {
    throw startFailure(cause, "the worker", options.dir ?? tmpdir());
  }
}

function openWorker(options: WorkerOptions): Worker {
  const { log = SILENT, cancelGraceMs = CANCEL_GRACE_MS } = options;
  const count = wholeNumber(options.slots ?? 1, "slots");
  // Throws for contradictory options before anything is opened.
  const { resources: found, gpuVariable } = detectResources(process.env, options.detectFrom);
  const all = Object.entries({ ...(options.detect === true ? found : {}), ...options.resources });
  const own = Object.fromEntries(all.filter(([, amount]) => amount > 0));
  // Tasks that do not ask for a device that was only found use it as they did before.
  const hides = options.resources?.gpu !== undefined;
  const capacity = new Capacity({ ...own, slots: count }, process.env, { gpuVariable, hides });
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "laboro-worker-"));
  const endsWithBroker = isInProcess(options.broker) && options.spool === false;
  const directory = openWorkerDirectory(dir, { shared: options.dir !== undefined && !endsWithBroker });
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
  const blockWatch = new BlockWatch(
    options.log ?? { ...SILENT, warn: (_, text) => process.emitWarning(`laboro: ${text}`) },
  );
  const offer = (name: string, handler: CallHandler): void => services.set(name, { handler, returnsValue: false });
  for (const [name, handler] of Object.entries(programs.handlers)) offer(name, handler);
  for (const [name, handler] of Object.entries(options.services ?? {})) {
    offer(name, handler);
    blockWatch.add(name);
  }
  const modules: HandlerModule[] = [];
  const slots = openSlots({ count, now, env });
  if (options.startShell === true) slots.slots[0]?.prepare();
  const files = new JobFiles(join(dir, "files"), capacity.hiddenDevicesEnv, options.missingDir);
  const name = options.name ?? `${hostname()}:${process.pid}`;
  const lifetime =
    options.lifetimeMs === undefined
      ? undefined
      : new Lifetime(options.lifetimeMs, now, () => leave("lifetime", options.lifetimeGraceMs ?? 0));
  const memory = memoryWatch(options, log, () => agent);
  const onTaskEnded = options.onTaskEnded && tellingEnds(options.onTaskEnded, log);
  const agent = new Agent(
    {
      ...{ directory, slots, files, services, capacity, log, now },
      folders: new TaskFolders(dir, options.sentFilesBytes),
      ...definedOnly({ spool, lifetime, memory, onTaskEnded }),
    },
    {
      ...addressesOf(options),
      name,
      session: SessionId(randomUUID()),
      pool: options.pool ?? DEFAULT_POOL,
      tags: options.tags ?? [],
      reserveRequests: options.reserveRequests ?? 0,
      cancelGraceMs,
      ...(options.tunnels === undefined ? {} : { tunnels: options.tunnels }),
      ...(options.idleTimeoutMs === undefined ? {} : { idleTimeoutMs: options.idleTimeoutMs }),
      onSlots: (count) => {
        for (const pool of [programs, ...modules]) pool.grow(count);
      },
      onIdle: () => leave("idle"),
      onHeartbeat: (heartbeatMs) => blockWatch.start(heartbeatMs),
      onJoined: () => {
        for (const { resolve } of readyWaiters.splice(0)) resolve();
        options.onJoined?.();
      },
      onRefused: (error) => {
        log.error({ code: error.code }, error.message);
        refused = error;
        for (const { reject } of readyWaiters.splice(0)) reject(error);
        options.onRefused?.(error);
      },
      onUnreachable: (error, rounds) => options.onUnreachable?.(error, rounds),
      onStop: (now) => leave("broker", now ? 0 : undefined),
    },
    results,
  );
  const readyWaiters: { readonly resolve: () => void; readonly reject: (error: LaboroError) => void }[] = [];
  let refused: LaboroError | undefined;
  let stopping: Promise<void> | undefined;
  const stop = ({ finish = true, graceMs = finish ? STOP_GRACE_MS : cancelGraceMs }: StopOptions): Promise<void> => {
    const left = agent.leave({ finish, graceMs });
    stopping ??= (async () => {
      memory?.stop();
      await left;
      blockWatch.stop();
      for (const { reject } of readyWaiters.splice(0)) reject(brokerGone("the worker was stopped before it joined"));
      lifetime?.stop();
      const graceMs = Math.min(cancelGraceMs, agent.leaveGraceMs);
      await Promise.all([programs, ...modules].map((pool) => pool.close(graceMs)));
      await slots.close();
      await spool?.close();
      files.remove();
      directory.release();
      if (options.dir === undefined) rmSync(dir, { recursive: true, force: true });
    })();
    return stopping;
  };
  const leave = (reason: StopReason, graceMs = Number.POSITIVE_INFINITY): void => {
    const first = stopping === undefined;
    if (first) log.info({ reason }, "the worker stops");
    const stopped = stop(graceMs > 0 ? { graceMs } : { finish: false });
    if (first) void stopped.then(() => options.onStopped?.(reason));
  };
  const handleModule = async (module: URL, threads: ThreadOptions = {}, task?: string): Promise<readonly string[]> => {
    for (const name of ["threads", "memoryMb", "loadTimeoutMs"] as const)
      if (threads[name] !== undefined) wholeNumber(threads[name], name);
    const opened = await openModule(module, { slots: count, guardian: slots.guardian, ...threads });
    const handlers = [...opened.handlers].filter(([name]) => task === undefined || name === task);
    // The worker may have stopped while it was loaded.
    if (stopping !== undefined || handlers.length === 0) await opened.close(0);
    if (handlers.length === 0) throw badInput(`${module.href} exports no handler of the task ${task}`);
    modules.push(opened);
    for (const [service, handler] of handlers) services.set(service, { handler, returnsValue: true });
    agent.announce();
    return handlers.map(([service]) => service);
  };
  const handleInline = (
    name: string,
    { handler, returnsValue }: Service,
    { concurrency }: HandleOptions = {},
  ): void => {
    if (!isName(name)) throw badInput(HANDLE_USAGE);
    const limit = concurrency === undefined ? undefined : wholeNumber(concurrency, "concurrency");
    services.set(name, { handler: limit === undefined ? handler : limited(handler, limit), returnsValue });
    blockWatch.add(name);
    agent.announce();
  };
  const handle = (
    target: TaskDefinition<unknown, unknown, unknown> | TaskHandler | string | URL,
    second?: TaskFunction<never, unknown> | Handler | URL | HandleOptions | ThreadOptions,
    third?: HandleOptions | ThreadOptions,
  ): undefined | Promise<readonly string[]> => {
    if (target instanceof URL) return handleModule(target, second as ThreadOptions | undefined);
    if (second instanceof URL) return handleModule(second, third as ThreadOptions | undefined, nameOf(target));
    if (isTaskHandler(target))
      handleInline(target.task.name, typedService(target), second as HandleOptions | undefined);
    else if (typeof second !== "function") throw badInput(HANDLE_USAGE);
    else if (typeof target === "string")
      handleInline(target, { handler: second as Handler, returnsValue: false }, third as HandleOptions | undefined);
    else
      handleInline(
        target?.name,
        typedService({ task: target, run: second as TaskFunction<never, unknown> }),
        third as HandleOptions | undefined,
      );
    return undefined;
  };
  return {
    id: directory.id,
    name,
    get joined() {
      return agent.joined;
    },
    ready: (waiting = {}) => {
      if (refused !== undefined) return Promise.reject(refused);
      if (agent.joined) return Promise.resolve();
      if (stopping !== undefined) return Promise.reject(brokerGone("the worker was stopped"));
      const joined = new Promise<void>((resolve, reject) => readyWaiters.push({ resolve, reject }));
      return waitFor(joined, waiting, () => `the worker has not joined within ${waiting.timeoutMs} ms`);
    },
    handle: handle as Worker["handle"],
    setBrokers: (urls) => agent.setUrls(urls),
    stop: (how = {}) => stop(how),
    [Symbol.asyncDispose]: () => stop({}),
  };
}

const nameOf = (target: TaskDefinition<unknown, unknown, unknown> | TaskHandler | string): string =>
  typeof target === "string" ? target : isTaskHandler(target) ? target.task.name : target.name;

const brokerGone = (why: string): LaboroError => new LaboroError("LABORO_BROKER_GONE", why);

const isName = (name: unknown): boolean =>
  typeof name === "string" && name !== "" && Buffer.byteLength(name) <= NAME_LIMIT;

function wholeNumber(value: number, what: string): number {
  if (Number.isSafeInteger(value) && value >= 1) return value;
  throw badInput(`${what}: expected a whole number of 1 or more, got ${value}`);
}

/** Runs at most this many calls at a time, in order. */
function limited(handler: CallHandler, most: number): CallHandler {
  const turns = new ObjectPool<number>(Array.from({ length: most }, (_, turn) => turn));
  return async (body, call) => {
    const turn = await turns.acquire(call.signal);
    try {
      return await handler(body, call);
    } finally {
      turns.release(turn);
    }
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
  const { minMemory, maxLoad, memoryFile, loadFile } = options;
  if (minMemory === undefined && maxLoad === undefined) return undefined;
  const onChange = (why: string | undefined, available: number): void => {
    const fields = { availableBytes: available, minBytes: minMemory, maxLoad };
    if (why === undefined) log.info(fields, "memory and load are good again: tasks start");
    else if (minMemory !== undefined && available < minMemory)
      log.warn(fields, `only ${mebibytes(available)} of memory are available, tasks wait for ${mebibytes(minMemory)}`);
    else log.info(fields, `tasks wait: ${why}`);
    agent().announce();
  };
  return new MemoryWatch({
    ...{ minBytes: minMemory, maxLoad, onChange, retry: () => agent().startPending() },
    ...(memoryFile === undefined ? {} : { file: memoryFile }),
    ...(loadFile === undefined ? {} : { loadFile }),
  });
}

/**
 * The worker's environment without the tokens: a task that prints its environment would store them in its output.
 * LABORO_RUN belongs to the task in which this worker itself may run.
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
