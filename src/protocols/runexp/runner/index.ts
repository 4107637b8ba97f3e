/**
 * A runner: takes jobs of a manager, ours or an original one, and runs so many at once.
 *
 *   connecting   no connection: results gather on disk, what runs goes on, the manager is tried again and again
 *   joined       JES was said; the threads ask and deliver
 *   leaving      FINO ANKAU was said
 *   ended        nothing runs and nothing is open; what could not be delivered is on disk
 */
import type { Log } from "../../../base/log.js";
import { SILENT } from "../../../base/log.js";
import { MemoryWatch } from "../../../worker/memory.js";
import { DEFAULT_GROUP, type RunexpMessage, shownName } from "../messages.js";
import type { Job, NoJob } from "./client-states.js";
import { JobProcesses } from "./job-process.js";
import { type Address, Line, type LineEnd } from "./line.js";
import { hashOf, type Outcome } from "./outcome.js";
import { RunnerSpool } from "./spool.js";
import { Threads } from "./threads.js";

export interface RunnerOptions {
  readonly manager: Address;
  /** What it is called. */
  readonly host: string;
  readonly group?: string;
  /** Jobs at once. */
  readonly threads: number;
  /** Where it keeps scripts and undelivered results. */
  readonly dir: string;
  /** Bytes of memory that must be available for another job to be asked for. */
  readonly minMemory?: number;
  /** How long a manager that was there is tried again; ten minutes if absent. */
  readonly patienceMs?: number;
  /** The first connection is tried again too. */
  readonly insist?: boolean;
  /** Between an ATENDI and the next PETO: ten seconds, by the text. */
  readonly holdMs?: number;
  /** While jobs take no longer than this, a manager of ours is asked for one more than there are threads; 20 ms if absent. */
  readonly quickMs?: number;
  readonly log?: Log;
  readonly on?: Partial<RunnerEvents>;
}

export interface RunnerEvents {
  joined(): void;
  running(name: string): void;
  answered(answer: NoJob): void;
  /** There is too little memory to ask for more, or enough again. */
  memory(enough: boolean, available: number): void;
  lost(reason: string): void;
  message(from: "runner" | "manager", message: RunexpMessage): void;
  /** What jobs write to standard error. */
  complained(bytes: Buffer): void;
}

export interface RunnerEnd {
  /** FINO, ELIRI, another version or group, no manager, or our own stop. */
  readonly how: "finished" | "banned" | "refused" | "unreachable" | "stopped";
  readonly reason: string;
  /** Results that are on disk. */
  readonly kept: number;
}

export interface Runner {
  readonly ended: Promise<RunnerEnd>;
  /** Asks for nothing more; what runs may end and is delivered. With `kill` it is ended, and goes back to the manager's list. */
  stop(kill: boolean): void;
}

const HOLD_MS = 10_000;
const FIRST_HOLD_MS = 100;
const PATIENCE_MS = 600_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;
/** A runner that was stopped and has nothing left waits so long for the answer to its PETO. */
const UNANSWERED_MS = 500;
const QUICK_MS = 20;
/** What was asked for ahead may wait so long for a thread. */
const AHEAD_MS = 50;
/** A result at which the manager has hung up so often is not wanted. */
const REFUSALS = 3;

export function startRunner(options: RunnerOptions): Runner {
  const running = new Running(options);
  return { ended: running.ended, stop: (kill) => running.stop(kill) };
}

/** A result on its way, wherever it lies. */
interface Due {
  at: Outcome;
  onDisk: boolean;
  refusals: number;
  delivered?: boolean;
}

const workOf = (name: string, script: string): string => `${script} ${name}`;

class Running {
  readonly ended: Promise<RunnerEnd>;
  readonly #options: RunnerOptions;
  readonly #log: Log;
  readonly #spool: RunnerSpool;
  readonly #processes: JobProcesses;
  readonly #threads: Threads<Due>;
  readonly #memory: MemoryWatch | undefined;
  /**
   * Results that an earlier process could not deliver, by what they are results of. Each goes out when the same work is handed out again,
   * and not before: an original manager takes any result, and another one may be at this address by now.
   */
  readonly #left: Map<string, Outcome>;
  #end: (end: RunnerEnd) => void = () => {};
  #how: RunnerEnd["how"] = "finished";
  #state: "connecting" | "joined" | "leaving" | "ended" = "connecting";
  #line: Line | undefined;
  #everJoined = false;
  #downSince = Date.now();
  #pauseMs = FIRST_PAUSE_MS;
  #again: NodeJS.Timeout | undefined;
  #unanswered: NodeJS.Timeout | undefined;
  #ahead: NodeJS.Timeout | undefined;
  /** Jobs that were over at once, since one was not. */
  #quickInARow = 0;
  /** Of each thread. */
  readonly #holds: (NodeJS.Timeout | undefined)[] = [];
  /** How often it was told ATENDI, since it had a job. */
  readonly #held: number[] = [];
  /** Results on their way to the disk. */
  #keeping: Promise<void> = Promise.resolve();

  constructor(options: RunnerOptions) {
    const { host, threads, dir, minMemory, log = SILENT, on = {} } = options;
    this.#options = options;
    this.#log = log;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#spool = RunnerSpool.open(dir);
    const { complained } = on;
    this.#processes = new JobProcesses({
      ...{ host, threads, dir: this.#spool.jobs },
      ...(complained === undefined ? {} : { complained: (bytes) => complained(bytes) }),
    });
    this.#memory =
      minMemory === undefined
        ? undefined
        : new MemoryWatch({
            least: minMemory,
            changed: (enough, available) => on.memory?.(enough, available),
            lookAgain: () => this.#threads.lookAgain(),
          });
    this.#threads = new Threads(threads, {
      mayAsk: () => this.#memory?.enough() ?? true,
      ask: () => this.#line?.ask(),
      deliver: (due) => this.#line?.deliver(due.at),
      start: (thread, job) => this.#start(thread, job),
      mayAskAhead: () =>
        this.#line?.isKin === true && this.#quickInARow >= 2 * threads && (this.#memory?.enough() ?? true),
      waitsAhead: () => {
        clearTimeout(this.#ahead);
        this.#ahead = setTimeout(() => this.#threads.returnAhead(), AHEAD_MS);
      },
      giveBack: (name) => this.#line?.giveBack(name),
      leave: () => {
        this.#state = "leaving";
        this.#line?.leave();
      },
      holds: (thread) => {
        clearTimeout(this.#holds[thread]);
        this.#holds[thread] = setTimeout(() => this.#threads.holdOver(thread), this.#holdMs(thread));
      },
    });
    this.#left = new Map(this.#spool.left().map((at) => [workOf(at.name, at.script()), at]));
    this.#connect();
  }

  stop(kill: boolean): void {
    this.#how = "stopped";
    if (kill) {
      void this.#finish("it was stopped");
      return;
    }
    this.#threads.stop();
    this.#endIfIdle();
  }

  /** It was stopped, and what it had is done. */
  #endIfIdle(): void {
    if (this.#how !== "stopped" || this.#threads.running > 0) return;
    if (this.#state === "connecting") void this.#finish("it was stopped");
    // A manager of ours may have no answer to a PETO for hours. An original one answers at once, and does not bear to be left in between.
    if (this.#state === "joined" && this.#threads.undelivered.length === 0) {
      clearTimeout(this.#unanswered);
      this.#unanswered = setTimeout(() => {
        if (this.#threads.running === 0) void this.#finish("it was stopped");
      }, UNANSWERED_MS);
    }
  }

  #connect(): void {
    const { manager, host, group = DEFAULT_GROUP, on = {} } = this.#options;
    this.#line = new Line(manager, host, group, {
      joined: () => this.#joined(),
      job: (job) => this.#threads.job(job),
      noJob: (answer) => {
        if (answer === "ELIRI") this.#how = "banned";
        on.answered?.(answer);
        this.#threads.noJob(answer);
      },
      delivered: () => this.#delivered(),
      closed: (end) => void this.#closed(end),
      ...(on.message === undefined ? {} : { message: on.message }),
    });
  }

  #joined(): void {
    this.#state = "joined";
    this.#everJoined = true;
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#options.on?.joined?.();
    this.#processes.prepare();
    this.#threads.lineUp();
  }

  /** What an earlier process has run already is not run again. */
  #start(thread: number, job: Job): void {
    this.#held[thread] = 0;
    const work = this.#left.size === 0 ? "" : workOf(job.name, hashOf(job));
    const left = this.#left.get(work);
    if (left !== undefined) {
      this.#left.delete(work);
      this.#threads.finished(thread, { at: left, onDisk: true, refusals: 0 });
      return;
    }
    const begun = performance.now();
    this.#processes.run(thread, job, (outcome) => {
      this.#quickInARow = performance.now() - begun < (this.#options.quickMs ?? QUICK_MS) ? this.#quickInARow + 1 : 0;
      this.#finished(thread, outcome);
    });
    this.#options.on?.running?.(shownName(job.name));
  }

  /** By the text ten seconds. To a manager of ours something may come back at any moment, so it is asked sooner, at first. */
  #holdMs(thread: number): number {
    const { holdMs = HOLD_MS } = this.#options;
    const before = this.#held[thread] ?? 0;
    this.#held[thread] = before + 1;
    return this.#line?.isKin === true ? Math.min(holdMs, FIRST_HOLD_MS * 2 ** before) : holdMs;
  }

  #delivered(): void {
    const [due] = this.#threads.undelivered;
    if (due !== undefined) {
      due.delivered = true;
      due.at.discard();
    }
    this.#threads.delivered();
  }

  async #closed({ reason, refused, resultRefused }: LineEnd): Promise<void> {
    for (const hold of this.#holds) clearTimeout(hold);
    this.#line = undefined;
    if (this.#state === "ended") return;
    if (this.#state === "leaving" || refused) {
      if (refused) this.#how = "refused";
      await this.#finish(reason);
      return;
    }
    if (this.#state === "joined") {
      this.#downSince = Date.now();
      this.#options.on?.lost?.(reason);
    }
    this.#state = "connecting";
    this.#threads.lineDown();
    if (resultRefused) await this.#refusal();
    for (const due of this.#threads.undelivered) this.#keep(due);
    this.#comeAgain(reason);
  }

  #comeAgain(reason: string): void {
    const { patienceMs = PATIENCE_MS, insist = false } = this.#options;
    const over = this.#everJoined ? Date.now() - this.#downSince > patienceMs : !insist;
    const idle = this.#threads.running === 0;
    if (over && idle) {
      this.#how = this.#how === "stopped" ? "stopped" : "unreachable";
      void this.#finish(reason);
    } else if (this.#how === "stopped" && idle) {
      void this.#finish("it was stopped");
    } else {
      this.#again = setTimeout(() => this.#connect(), this.#pauseMs * (0.5 + Math.random() / 2));
      this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
    }
  }

  /** The manager hung up on the result at the head. */
  async #refusal(): Promise<void> {
    const [due] = this.#threads.undelivered;
    if (due === undefined || ++due.refusals < REFUSALS) return;
    this.#threads.forget(due);
    const file = await this.#spool.putAside(due.at);
    this.#log.warn({ job: shownName(due.at.name), file }, "the manager does not take this result: it was put aside");
  }

  #finished(thread: number, outcome: Outcome): void {
    if (this.#state === "ended") {
      outcome.discard();
      return;
    }
    const due: Due = { at: outcome, onDisk: false, refusals: 0 };
    this.#threads.finished(thread, due);
    if (this.#state === "connecting") this.#keep(due);
    if (this.#state === "connecting") this.#endIfIdle();
  }

  /** It cannot be delivered now: it must survive this process. */
  #keep(due: Due): void {
    if (due.onDisk) return;
    due.onDisk = true;
    this.#keeping = this.#keeping.then(async () => {
      try {
        due.at = await this.#spool.keep(due.at);
        // It went out while it was being written.
        if (due.delivered === true) due.at.discard();
      } catch (cause) {
        due.onDisk = false;
        this.#log.error({ job: shownName(due.at.name), error: String(cause) }, "a result cannot be kept on disk");
      }
    });
  }

  async #finish(reason: string): Promise<void> {
    if (this.#state === "ended") return;
    this.#state = "ended";
    clearTimeout(this.#again);
    clearTimeout(this.#unanswered);
    clearTimeout(this.#ahead);
    for (const hold of this.#holds) clearTimeout(hold);
    this.#memory?.stop();
    this.#line?.destroy();
    for (const due of this.#threads.undelivered) this.#keep(due);
    await this.#keeping;
    await this.#processes.close();
    const kept = this.#threads.undelivered.filter(({ onDisk }) => onDisk).length;
    this.#spool.close();
    this.#end({ how: this.#how, reason, kept });
  }
}
