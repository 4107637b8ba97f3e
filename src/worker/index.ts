/** Starts a worker: its directory, its slots, its link. */
import { randomUUID } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { now, waitFor } from "../base/clock.js";
import { badInput, LaboroError } from "../base/errors.js";
import { startFailure } from "../base/files/durable.js";
import { makeTemporaryFolder } from "../base/files/temporary.js";
import { type Log, SILENT } from "../base/log.js";
import { SessionId } from "../model/ids.js";
import { definedOnly } from "../model/input.js";
import { DEFAULT_POOL } from "../model/recipe.js";
import type { TaskDefinition, TaskFunction, TaskHandler } from "../model/task-definition.js";
import { addressesOf, isInProcess } from "../protocols/laboro/broker-address.js";
import { NAME_LIMIT } from "../protocols/laboro/codec-fields.js";
import { Agent } from "./agent.js";
import { Capacity } from "./capacity.js";
import { JobFiles } from "./job-files.js";
import { Lifetime } from "./lifetime.js";
import { detectResources, MemoryWatch, mebibytes } from "./machine.js";
import type { HandleOptions, StopOptions, StopReason, Worker, WorkerOptions } from "./options.js";
import { openSlots } from "./processes/index.js";
import { openPrograms } from "./programs/index.js";
import { ObjectPool } from "./programs/object-pool.js";
import {
  BlockWatch,
  type CallHandler,
  type Handler,
  isTaskHandler,
  type Service,
  Services,
  typedService,
  untypedService,
} from "./services.js";
import { indexPath, spooledOutputs } from "./spool/block.js";
import { type LoadedSpool, ResultSpool } from "./spool/result-spool.js";
import { openWorkerDirectory, type WorkerDirectory } from "./spool/worker-directory.js";
import { taskEndReporter } from "./task-end.js";
import { TaskFolders } from "./task-folders.js";
import { type HandlerModule, openModule, type ThreadOptions } from "./threads/index.js";

export type { HandleOptions, StopOptions, StopReason, Worker, WorkerOptions } from "./options.js";
export type { ServiceMode, ServiceProgram } from "./programs/index.js";
export type { Handler } from "./services.js";
export type { TaskEndInfo } from "./task-end.js";
export type { ThreadOptions } from "./threads/index.js";

const HANDLE_USAGE =
  "handle: expected a task, or a name of 1 to 1024 bytes, and a function; a handler; or the URL of a module";
const CANCEL_GRACE_MS = 5_000;
const STOP_GRACE_MS = 30_000;

/** Starts a worker. It connects, and reconnects, by itself. Throws LABORO_BAD_INPUT for contradictory options. */
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
  const addresses = addressesOf(options);
  const { resources: found, gpuVariable } = detectResources(process.env, options.detectFrom);
  const all = Object.entries({ ...(options.detect === true ? found : {}), ...options.resources });
  const own = Object.fromEntries(all.filter(([, amount]) => amount > 0));
  // Detected GPUs stay visible to tasks that do not request one, as they were before detection.
  const hides = options.resources?.gpu !== undefined;
  const capacity = new Capacity({ ...own, slots: count }, process.env, { gpuVariable, hides });
  const env = { ...environmentOfTasks(), ...options.env };
  const slots = openSlots({ count, now, env });
  const dir = options.dir ?? makeTemporaryFolder("laboro-worker-");
  const endsWithBroker = isInProcess(options.broker) && options.spool === false;
  const directory = openWorkerDirectory(dir, { shared: options.dir !== undefined && !endsWithBroker });
  // Results of an earlier process are delivered in any case.
  const mustSpool = (options.spool ?? true) || existsSync(directory.resultsPath);
  const { spool, results } = mustSpool ? openSpool(directory, log) : { spool: undefined, results: [] };
  const programs = openPrograms(options.programs ?? {}, {
    ...{ count, env, log, now },
    dir: join(dir, "requests"),
    graceMs: cancelGraceMs,
  });
  const services = new Services();
  const warn = options.log?.warn.bind(options.log) ?? warnProcess;
  const blockWatch = new BlockWatch({ warn });
  for (const [name, handler] of Object.entries(programs.handlers)) services.set(name, { handler, returnsValue: false });
  for (const [name, handler] of Object.entries(options.services ?? {})) {
    services.set(name, untypedService(handler));
    blockWatch.add(name);
  }
  const modules: HandlerModule[] = [];
  if (options.startShell === true) slots.slots[0]?.prepare();
  const files = new JobFiles(join(dir, "files"), capacity.hiddenDevicesEnv, options.missingDir);
  const name = options.name ?? `${hostname()}:${process.pid}`;
  const lifetime =
    options.lifetimeMs === undefined
      ? undefined
      : new Lifetime(options.lifetimeMs, now, () => leave("lifetime", options.lifetimeGraceMs ?? 0));
  const memory = memoryWatch(options, log, () => agent);
  const onTaskEnded = options.onTaskEnded && taskEndReporter(options.onTaskEnded, log);
  const agent = new Agent(
    {
      ...{ directory, slots, files, services, capacity, log, now },
      folders: new TaskFolders(dir, options.sentFilesBytes),
      ...definedOnly({ spool, lifetime, memory, onTaskEnded }),
    },
    {
      ...addresses,
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
        hasJoined = true;
        unreachable = undefined;
        for (const { resolve } of readyWaiters.splice(0)) resolve();
        options.onJoined?.();
      },
      onRefused: (error) => {
        log.error({ code: error.code }, error.message);
        const isHeard = options.log !== undefined || options.onRefused !== undefined || readyWaiters.length > 0;
        if (!isHeard) warn({}, `worker ${name} does no work: ${error.message}`);
        refused = error;
        for (const { reject } of readyWaiters.splice(0)) reject(error);
        options.onRefused?.(error);
      },
      onUnreachable: (error, rounds) => {
        unreachable = error;
        if (options.onUnreachable !== undefined) options.onUnreachable(error, rounds);
        else if (rounds === 1 && !hasJoined)
          warn({ code: error.code }, `worker ${name}: ${error.message}; it tries again until one does`);
      },
      onStop: (now) => leave("broker", now ? 0 : undefined),
    },
    results,
  );
  const readyWaiters: { readonly resolve: () => void; readonly reject: (error: LaboroError) => void }[] = [];
  let refused: LaboroError | undefined;
  let unreachable: LaboroError | undefined;
  let hasJoined = false;
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
    const host = threads.memoryMb === undefined ? "thread" : "process";
    const onLost = ({ message, stack }: Error): void =>
      warn({ stack }, `a ${host} of ${module.href} has ended between two calls: ${message}`);
    const opened = await openModule(module, { ...threads, slots: count, guardian: slots.guardian, onLost });
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
      handleInline(target, untypedService(second as Handler), third as HandleOptions | undefined);
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
      const why = (): string => (unreachable === undefined ? "" : `: ${unreachable.message}`);
      return waitFor(joined, waiting, () => `the worker has not joined within ${waiting.timeoutMs} ms${why()}`);
    },
    handle: handle as Worker["handle"],
    setBrokers: (urls) => agent.setUrls(urls),
    stop: (how = {}) => stop(how),
    [Symbol.asyncDispose]: () => stop({}),
  };
}

/** For what a program should know that has no log. */
const warnProcess = ({ stack }: { readonly stack?: string | undefined }, text: string): void =>
  process.emitWarning(`laboro: ${text}`, stack === undefined ? {} : { detail: stack });

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
