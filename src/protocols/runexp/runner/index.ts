/**
 * A runner: takes jobs of a manager, laboro's or an original, and runs several at once.
 *
 *   connecting   no connection: running jobs go on, results go to disk, and it reconnects
 *   joined       JES was sent; the threads request jobs and deliver results
 *   leaving      FINO ANKAU was sent
 *   ended        nothing runs; undelivered results are on disk
 */
import { now } from "../../../base/clock.js";
import { type Log, SILENT } from "../../../base/log.js";
import { MemoryWatch } from "../../../worker/machine.js";
import { DEFAULT_GROUP, displayName, type RunexpMessage } from "../messages.js";
import type { Job } from "./client-state-machine.js";
import { JobProcesses } from "./job-process.js";
import { type Address, type ConnectionEnd, ManagerConnection } from "./manager-connection.js";
import { jobHash, type Outcome, RunnerSpool } from "./spool.js";
import { Threads } from "./threads.js";

export interface RunnerOptions {
  readonly manager: Address;
  /** Its own name. */
  readonly host: string;
  readonly group?: string;
  readonly threads: number;
  /** For scripts and undelivered results. */
  readonly dir: string;
  /** Bytes of memory that must be available for another job. */
  readonly minMemory?: number;
  /** How long it tries to reconnect; ten minutes if absent. */
  readonly reconnectTimeoutMs?: number;
  /** Also retry the first connection. */
  readonly retryFirstConnect?: boolean;
  readonly holdMs?: number;
  readonly log?: Log;
  readonly on?: Partial<RunnerEvents>;
}

interface RunnerEvents {
  joined(): void;
  running(name: string): void;
  /** After ATENDI, and after the next job. */
  onHold(held: boolean): void;
  /** There is too little memory for another job, or enough again. */
  memory(enough: boolean, available: number): void;
  disconnected(reason: string): void;
  message(from: "runner" | "manager", message: RunexpMessage): void;
  /** Standard error of jobs. */
  stderr(bytes: Buffer): void;
}

export interface RunnerEnd {
  /** In this order: FINO, ELIRI, another version or group, no manager, `stop`. */
  readonly status: "finished" | "banned" | "refused" | "unreachable" | "stopped";
  readonly reason: string;
  readonly spooledResults: number;
  /** Files of results that the manager refused. */
  readonly refusedResults: readonly string[];
}

export interface Runner {
  readonly ended: Promise<RunnerEnd>;
  /** Running jobs may end and are delivered. With `kill` they are killed and return to the manager's queue. */
  stop(kill: boolean): void;
}

/** Time from ATENDI to the next PETO, by the specification. */
export const HOLD_MS = 10_000;
const RECONNECT_TIMEOUT_MS = 600_000;
const FIRST_RECONNECT_DELAY_MS = 100;
const MAX_RECONNECT_DELAY_MS = 5_000;
/** How long an idle runner that was stopped waits for the answer to its PETO. */
const STOP_TIMEOUT_MS = 500;
/** A result is given up after the manager has closed the connection at it this often. */
const MAX_REFUSALS = 3;

export const startRunner = (options: RunnerOptions): Runner => new RunexpRunner(options);

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
   * Undelivered results of an earlier process, by script and name. Each is delivered when the same job is assigned
   * again, not before: another manager may now use this address, and an original accepts any result.
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
  /** By thread. */
  readonly #holdTimers: (NodeJS.Timeout | undefined)[] = [];
  readonly #refusedResults: string[] = [];
  /** Results that are being written to disk. */
  #spooling: Promise<void> = Promise.resolve();

  constructor(options: RunnerOptions) {
    const { host, threads, dir, minMemory, log = SILENT, on = {} } = options;
    this.#options = options;
    this.#log = log;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#spool = RunnerSpool.open(dir);
    this.#processes = new JobProcesses({ host, threads, dir: this.#spool.jobs, onStderr: on.stderr });
    this.#memory =
      minMemory === undefined
        ? undefined
        : new MemoryWatch({
            minBytes: minMemory,
            onChange: (why, available) => on.memory?.(why === undefined, available),
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
      void this.#finish("the runner was stopped");
      return;
    }
    this.#threads.stop();
    this.#endIfIdle();
  }

  #endIfIdle(): void {
    if (this.#endStatus !== "stopped" || this.#threads.running > 0) return;
    if (this.#state === "connecting") void this.#finish("the runner was stopped");
    // A laboro manager may leave a PETO unanswered for hours. An original answers at once, and fails if the runner has
    // left.
    if (this.#state === "joined" && this.#threads.undelivered.length === 0) {
      clearTimeout(this.#stopTimer);
      this.#stopTimer = setTimeout(() => {
        if (this.#threads.running === 0) void this.#finish("the runner was stopped");
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

  /** A job that an earlier process has run is not run again. */
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
      // A manager that closes each connection at once counts as unreachable.
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
      void this.#finish("the runner was stopped");
    } else {
      this.#reconnectTimer = setTimeout(() => this.#connect(), this.#reconnectDelayMs * (0.5 + Math.random() / 2));
      this.#reconnectDelayMs = Math.min(MAX_RECONNECT_DELAY_MS, this.#reconnectDelayMs * 2);
    }
  }

  /** The manager closed the connection over the first result in the queue. */
  async #refusal(): Promise<void> {
    const [due] = this.#threads.undelivered;
    if (due === undefined || ++due.refusals < MAX_REFUSALS) return;
    this.#threads.forget(due);
    // Otherwise a copy that is being written would remain.
    await this.#spooling;
    const file = await this.#spool.saveRefused(due.outcome);
    this.#refusedResults.push(file);
    this.#log.warn(
      { job: displayName(due.outcome.name), file },
      `the manager refuses the result of ${displayName(due.outcome.name)}: it is in ${file}`,
    );
  }

  #finished(thread: number, outcome: Outcome): void {
    if (this.#state === "ended") {
      outcome.discard();
      return;
    }
    const due: PendingResult = { outcome, onDisk: false, refusals: 0 };
    this.#threads.finished(thread, due);
    if (this.#state !== "connecting") return;
    this.#spoolResult(due);
    this.#endIfIdle();
  }

  /** It cannot be delivered now and must survive this process. */
  #spoolResult(due: PendingResult): void {
    if (due.onDisk) return;
    due.onDisk = true;
    this.#spooling = this.#spooling.then(async () => {
      try {
        due.outcome = await this.#spool.save(due.outcome);
        // It was delivered while it was being written.
        if (due.delivered === true) due.outcome.discard();
      } catch (cause) {
        due.onDisk = false;
        this.#log.error(
          { job: displayName(due.outcome.name), error: String(cause) },
          "a result cannot be written to disk; it is lost if this runner ends before it is delivered",
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
