/** What a worker is started with and what it can do: the types of the entry `laboro/worker`. */
import type { WaitOptions } from "../base/clock.js";
import type { LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { WorkerId } from "../model/ids.js";
import type { TaskDefinition, TaskFunction, TaskHandler } from "../model/task-definition.js";
import type { InProcessBroker } from "../protocols/laboro/broker-address.js";
import type { ServiceProgram } from "./programs/index.js";
import type { Handler } from "./services.js";
import type { TaskEndInfo } from "./task-end.js";
import type { ThreadOptions } from "./threads/index.js";

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
  /** A directory with a Unix socket for each broker, `HOST_PORT.sock`: tunnels. The worker uses only these. */
  readonly tunnels?: string;
  /** Where tasks run whose directory does not exist on this machine; they fail if absent. */
  readonly missingDir?: string;
  /** What people call it; host and process id if absent. */
  readonly name?: string;
  /** How many tasks and requests at a time; 1 if absent. */
  readonly slots?: number;
  /** Besides slots: `{ gpu: 2, memory: 64 }`. */
  readonly resources?: Readonly<Record<string, number>>;
  /** Also offer the machine's resources: `gpu`, and `mem` in MiB. `resources` overrides it; 0 offers none. */
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
  /** How long a task or handler may take to end after a cancel, its time limit or a stop; 5 s if absent. */
  readonly cancelGraceMs?: number;
  /** How many bytes of the files sent with jobs are kept for later tasks; 10 GiB if absent. */
  readonly sentFilesBytes?: number;
  /** Added to the environment of its tasks and programs. */
  readonly env?: Readonly<Record<string, string>>;
  /** Start the shell of the first slot at once, not with the first task: for a worker whose tasks are commands. */
  readonly startShell?: boolean;
  /**
   * Anything with `info`, `warn` and `error` as in pino; silent if absent. Only a refusal or no answer at the start that
   * no callback reports, and a function that blocks the worker, are warnings of the process.
   */
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

/** The broker requested it, its lifetime is over, or it was idle for too long. */
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
  /** Handles a task with a handler that a module exports: inline here, in tests for example, and in threads elsewhere. */
  handle(handler: TaskHandler, options?: HandleOptions): void;
  /** Offers a service without a definition: bytes in, bytes or text out. The reply to a task is its standard output. */
  handle(service: string, run: Handler, options?: HandleOptions): void;
  /** Handles tasks in threads with the handlers that a module exports. Resolves with their names once it is loaded. */
  handle(module: URL, options?: ThreadOptions): Promise<readonly string[]>;
  /** The same for one of the tasks that the module handles, in threads of its own. */
  handle<Input, Output, Parsed>(
    task: TaskDefinition<Input, Output, Parsed>,
    module: URL,
    options?: ThreadOptions,
  ): Promise<readonly string[]>;
  // The last one, because a compiler explains why the last one does not fit.
  /**
   * Handles a task with a function of this process. While it computes, nothing else in this process runs, not even
   * heartbeats. So a function that computes for seconds belongs in a module.
   */
  handle<Input, Output, Parsed>(
    task: TaskDefinition<Input, Output, Parsed>,
    run: TaskFunction<Parsed, Output>,
    options?: HandleOptions,
  ): void;
  /** The brokers to try when the link is down. */
  setBrokers(urls: readonly string[]): void;
  /** Resolves when nothing runs and all results are delivered, or after the grace. A second call can shorten it. */
  stop(options?: StopOptions): Promise<void>;
  /** `stop()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Of a function of this process. */
export interface HandleOptions {
  /** The most calls at a time; the worker's slots if absent. A call that waits for its turn already has a slot. */
  readonly concurrency?: number;
}
