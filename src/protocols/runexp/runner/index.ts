/**
 * A runner: takes jobs of a manager, laboro's or an original one, and runs so many at once.
 *
 *   connecting   no connection: results gather on disk, what runs goes on, the manager is tried again and again
 *   joined       JES was sent; the threads request jobs and deliver results
 *   leaving      FINO ANKAU was sent
 *   ended        nothing runs and nothing is open; what could not be delivered is on disk
 */
import { now } from "../../../base/clock.js";
import { type Log, SILENT } from "../../../base/log.js";
import { MemoryWatch } from "../../../worker/memory.js";
import { DEFAULT_GROUP, displayName, type RunexpMessage } from "../messages.js";
import type { Job } from "./client-state-machine.js";
import { JobProcesses } from "./job-process.js";
import { type Address, type ConnectionEnd, ManagerConnection } from "./manager-connection.js";
import { jobHash, type Outcome } from "./outcome.js";
import { RunnerSpool } from "./spool.js";
import { Threads } from "./threads.js";

export interface RunnerOptions {
  readonly manager: Address;
  /** Its name. */
  readonly host: string;
  readonly group?: string;
  /** Jobs at once. */
  readonly threads: number;
  /** Where it keeps scripts and undelivered results. */
  readonly dir: string;
  /** Bytes of memory that must be available before another job is requested. */
  readonly minMemory?: number;
  /** How long a manager that was there, or lets this runner in and nothing more, is tried again; ten minutes if absent. */
  readonly reconnectTimeoutMs?: number;
  /** The first connection is tried again too. */
  readonly retryFirstConnect?: boolean;
  /** HOLD_MS if absent. */
  readonly holdMs?: number;
  readonly log?: Log;
  readonly on?: Partial<RunnerEvents>;
}

export interface RunnerEvents {
  joined(): void;
  running(name: string): void;
  /** ATENDI has come, or a job after it. */
  onHold(held: boolean): void;
  /** There is too little memory to request more jobs, or enough again. */
  memory(enough: boolean, available: number): void;
  disconnected(reason: string): void;
  message(from: "runner" | "manager", message: RunexpMessage): void;
  /** What jobs write to standard error. */
  stderr(bytes: Buffer): void;
}

export interface RunnerEnd {
  /** FINO, ELIRI, another version or group, no manager, or `stop` was called. */
  readonly status: "finished" | "banned" | "refused" | "unreachable" | "stopped";
  readonly reason: string;
  /** Results that are on disk. */
  readonly spooledResults: number;
  /** Files of results that the manager has not taken. */
  readonly refusedResults: readonly string[];
}

export interface Runner {
  readonly ended: Promise<RunnerEnd>;
  /** Requests nothing more; what runs may end and is delivered. With `kill` it is ended, and returns to the manager's queue. */
  stop(kill: boolean): void;
}

/** Between an ATENDI and the next PETO, by the text. */
export const HOLD_MS = 10_000;
const RECONNECT_TIMEOUT_MS = 600_000;
const FIRST_RECONNECT_DELAY_MS = 100;
const MAX_RECONNECT_DELAY_MS = 5_000;
/** A runner that was stopped and has nothing left waits so long for the answer to its PETO. */
const STOP_TIMEOUT_MS = 500;
/** A result at which the manager has closed the connection so often is given up. */
const MAX_REFUSALS = 3;

export const startRunner = (options: RunnerOptions): Runner => new RunexpRunner(options);

/** A result on its way, wherever it lies. */
interface PendingResult {
  outcome: Outcome;
  onDisk: boolean;
  refusals: number;
  delivered?: boolean;
}

const jobKey = (name: string, script: string): string => `${script} ${name}`;

class RunexpRunner implements Runner {
  readonly ended: Promise<RunnerEnd>;
  readonly #options: RunnerOptions;
  readonly #log: Log;
  readonly #spool: RunnerSpool;
  readonly #processes: JobProcesses;
  readonly #threads: Threads<PendingResult>;
  readonly #memory: MemoryWatch | undefined;
  /**
   * Results that an earlier process could not deliver, by what they are results of. Each goes out when the same work is assigned again,
   * and not before: an original manager takes any result, and another one may be at this address by now.
   */
  readonly #recoveredResults: Map<string, Outcome>;
  #end: (end: RunnerEnd) => void = () => {};
  #endStatus: RunnerEnd["status"] = "finished";
  #state: "connecting" | "joined" | "leaving" | "ended" = "connecting";
  #connection: ManagerConnection | undefined;
  #everJoined = false;
  #joinedAt = now();
  /** The manager has answered something on this connection. */
  #answered = false;
  #onHold = false;
  #downSince = now();
  #reconnectDelayMs = FIRST_RECONNECT_DELAY_MS;
  #reconnectTimer: NodeJS.Timeout | undefined;
  #stopTimer: NodeJS.Timeout | undefined;
  /** Of each thread. */
  readonly #holdTimers: (NodeJS.Timeout | undefined)[] = [];
  readonly #refusedResults: string[] = [];
  /** Results on their way to the disk. */
  #spooling: Promise<void> = Promise.resolve();

  constructor(options: RunnerOptions) {
    const { host, threads, dir, minMemory, log = SILENT, on = {} } = options;
    this.#options = options;
    this.#log = log;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#spool = RunnerSpool.open(dir);
    const { stderr: onStderr } = on;
    this.#processes = new JobProcesses({
      ...{ host, threads, dir: this.#spool.jobs },
      ...(onStderr === undefined ? {} : { onStderr: (bytes) => onStderr(bytes) }),
    });
    this.#memory =
      minMemory === undefined
        ? undefined
        : new MemoryWatch({
            minBytes: minMemory,
            onChange: (enough, available) => on.memory?.(enough, available),
            retry: () => this.#threads.sendNext(),
          });
    this.#threads = new Threads(threads, {
      mayRequestJob: () => this.#memory?.hasEnough() ?? true,
      requestJob: () => this.#connection?.requestJob(),
      deliver: (due) => this.#connection?.deliver(due.outcome),
      start: (thread, job) => this.#start(thread, job),
      leave: () => {
        this.#state = "leaving";
        this.#connection?.leave();
      },
      startHoldTimer: (thread) => {
        clearTimeout(this.#holdTimers[thread]);
        this.#holdTimers[thread] = setTimeout(() => this.#threads.holdExpired(thread), options.holdMs ?? HOLD_MS);
      },
    });
    this.#recoveredResults = new Map(this.#spool.undelivered().map((at) => [jobKey(at.name, at.scriptHash()), at]));
    this.#connect();
  }

  stop(kill: boolean): void {
    this.#endStatus = "stopped";
    if (kill) {
      void this.#finish("it was stopped");
      return;
    }
    this.#threads.stop();
    this.#endIfIdle();
  }

  /** It was stopped, and what it had is done. */
  #endIfIdle(): void {
    if (this.#endStatus !== "stopped" || this.#threads.running > 0) return;
    if (this.#state === "connecting") void this.#finish("it was stopped");
    // A laboro manager may have no answer to a PETO for hours. An original one answers at once, and fails if the runner leaves in between.
    if (this.#state === "joined" && this.#threads.undelivered.length === 0) {
      clearTimeout(this.#stopTimer);
      this.#stopTimer = setTimeout(() => {
        if (this.#threads.running === 0) void this.#finish("it was stopped");
      }, STOP_TIMEOUT_MS);
    }
  }

  #connect(): void {
    const { manager, host, group = DEFAULT_GROUP, on = {} } = this.#options;
    this.#connection = new ManagerConnection(manager, host, group, {
      joined: () => this.#joined(),
      job: (job) => {
        this.#answered = true;
        this.#setOnHold(false);
        this.#threads.job(job);
      },
      noJob: (answer) => {
        this.#answered = true;
        if (answer === "ELIRI") this.#endStatus = "banned";
        if (answer === "ATENDI") this.#setOnHold(true);
        this.#threads.noJob(answer);
      },
      delivered: () => {
        this.#answered = true;
        this.#delivered();
      },
      closed: (end) => void this.#closed(end),
      ...(on.message === undefined ? {} : { message: on.message }),
    });
  }

  #setOnHold(held: boolean): void {
    if (held === this.#onHold) return;
    this.#onHold = held;
    this.#options.on?.onHold?.(held);
  }

  #joined(): void {
    this.#state = "joined";
    this.#everJoined = true;
    this.#joinedAt = now();
    this.#answered = false;
    this.#options.on?.joined?.();
    this.#processes.prepare();
    this.#threads.connected();
  }

  /** What an earlier process has run already is not run again. */
  #start(thread: number, job: Job): void {
    const work = this.#recoveredResults.size === 0 ? "" : jobKey(job.name, jobHash(job));
    const recovered = this.#recoveredResults.get(work);
    if (recovered !== undefined) {
      this.#recoveredResults.delete(work);
      this.#threads.finished(thread, { outcome: recovered, onDisk: true, refusals: 0 });
      return;
    }
    this.#processes.run(thread, job, (outcome) => this.#finished(thread, outcome));
    this.#options.on?.running?.(displayName(job.name));
  }

  #delivered(): void {
    const [due] = this.#threads.undelivered;
    if (due !== undefined) {
      due.delivered = true;
      due.outcome.discard();
    }
    this.#threads.delivered();
  }

  async #closed({ reason, refused, resultRefused }: ConnectionEnd): Promise<void> {
    for (const timer of this.#holdTimers) clearTimeout(timer);
    this.#connection = undefined;
    if (this.#state === "ended") return;
    if (this.#state === "leaving" || refused) {
      if (refused) this.#endStatus = "refused";
      await this.#finish(reason);
      return;
    }
    if (this.#state === "joined") {
      // One that lets runners in and ends the connection each time is as good as gone.
      if (this.#answered || now() - this.#joinedAt > MAX_RECONNECT_DELAY_MS) {
        this.#downSince = now();
        this.#reconnectDelayMs = FIRST_RECONNECT_DELAY_MS;
      }
      this.#options.on?.disconnected?.(reason);
    }
    this.#state = "connecting";
    this.#threads.disconnected();
    if (resultRefused) await this.#refusal();
    for (const due of this.#threads.undelivered) this.#spoolResult(due);
    this.#reconnect(reason);
  }

  #reconnect(reason: string): void {
    const { reconnectTimeoutMs = RECONNECT_TIMEOUT_MS, retryFirstConnect = false } = this.#options;
    const over = this.#everJoined ? now() - this.#downSince > reconnectTimeoutMs : !retryFirstConnect;
    const idle = this.#threads.running === 0;
    if (over && idle) {
      this.#endStatus = this.#endStatus === "stopped" ? "stopped" : "unreachable";
      void this.#finish(reason);
    } else if (this.#endStatus === "stopped" && idle) {
      void this.#finish("it was stopped");
    } else {
      this.#reconnectTimer = setTimeout(() => this.#connect(), this.#reconnectDelayMs * (0.5 + Math.random() / 2));
      this.#reconnectDelayMs = Math.min(MAX_RECONNECT_DELAY_MS, this.#reconnectDelayMs * 2);
    }
  }

  /** The manager closed the connection at the first result in the queue. */
  async #refusal(): Promise<void> {
    const [due] = this.#threads.undelivered;
    if (due === undefined || ++due.refusals < MAX_REFUSALS) return;
    this.#threads.forget(due);
    // Otherwise the copy that is being written would stay.
    await this.#spooling;
    const file = await this.#spool.saveRefused(due.outcome);
    this.#refusedResults.push(file);
    this.#log.warn(
      { job: displayName(due.outcome.name), file },
      "the manager does not take this result: it was put aside",
    );
  }

  #finished(thread: number, outcome: Outcome): void {
    if (this.#state === "ended") {
      outcome.discard();
      return;
    }
    const due: PendingResult = { outcome, onDisk: false, refusals: 0 };
    this.#threads.finished(thread, due);
    if (this.#state === "connecting") this.#spoolResult(due);
    if (this.#state === "connecting") this.#endIfIdle();
  }

  /** It cannot be delivered now: it must survive this process. */
  #spoolResult(due: PendingResult): void {
    if (due.onDisk) return;
    due.onDisk = true;
    this.#spooling = this.#spooling.then(async () => {
      try {
        due.outcome = await this.#spool.save(due.outcome);
        // It went out while it was being written.
        if (due.delivered === true) due.outcome.discard();
      } catch (cause) {
        due.onDisk = false;
        this.#log.error(
          { job: displayName(due.outcome.name), error: String(cause) },
          "a result cannot be kept on disk",
        );
      }
    });
  }

  async #finish(reason: string): Promise<void> {
    if (this.#state === "ended") return;
    this.#state = "ended";
    clearTimeout(this.#reconnectTimer);
    clearTimeout(this.#stopTimer);
    for (const timer of this.#holdTimers) clearTimeout(timer);
    this.#memory?.stop();
    this.#connection?.destroy();
    for (const due of this.#threads.undelivered) this.#spoolResult(due);
    await this.#spooling;
    await this.#processes.close();
    const spooledResults = this.#threads.undelivered.filter(({ onDisk }) => onDisk).length;
    this.#spool.close();
    this.#end({ status: this.#endStatus, reason, spooledResults, refusedResults: this.#refusedResults });
  }
}
