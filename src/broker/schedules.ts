/**
 * Starts the runs of schedules. One timer waits for the earliest; waiting schedules cost nothing. In a group every
 * broker tries: the conditional change of the row decides which one starts the run (`schedule` in model/store.ts).
 *
 *   idle      no schedule has a next run
 *   waiting   the timer runs until the earliest is due. It also fires now and then, because the clock may be set
 *   running   due schedules are read and moved on, some at a time, until none is due
 */
import { asLaboroError, LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import { onRemoteCancel } from "../dispatch/index.js";
import type { JobId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import { ALL_TASKS } from "../model/ranges.js";
import type { RunWrite, Schedule, ScheduleChange, ScheduleRun } from "../model/schedule.js";
import type { TaskRange, Write, WriteResult } from "../model/store.js";
import type { Core } from "./core.js";
import { endsOf } from "./dependencies.js";

/** Schedules that are moved on in one transaction. */
const AT_ONCE = 100;
/** How often the clock of this machine is compared. The clock of a database needs a query. */
const CHECK_OWN_CLOCK_MS = 1_000;
const CHECK_STORE_CLOCK_MS = 10_000;
/** After a failure, or if another broker was faster. */
const RETRY_MS = 1_000;
const LOST_PAUSE_MS = 20;
/** Others may change a schedule between its read and its change. */
const TRIES = 20;

/** A change that was made, with the job of its run if it has one. */
interface MadeChange {
  readonly job: JobId | undefined;
}

export class Scheduler {
  readonly #core: Core;
  readonly #log: Log;
  readonly runCounts = { started: 0, overlap: 0, missed: 0, refused: 0 };
  #timer: NodeJS.Timeout | undefined;
  /** By the clock of the store; undefined if nothing waits. */
  #earliest: number | undefined;
  #running = false;
  #again = false;
  #stopped = false;
  #warned = false;

  constructor(core: Core, log: Log) {
    this.#core = core;
    this.#log = log;
  }

  /** Starts due runs and finds the next time. Also called after a change, here or by another broker. */
  look(): void {
    if (this.#stopped) return;
    this.#again = true;
    if (!this.#running) void this.#run();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** How late the earliest run is, in milliseconds. */
  late(now = Date.now()): number {
    return this.#earliest === undefined ? 0 : Math.max(0, now - this.#earliest);
  }

  async find(name: string): Promise<Schedule> {
    const [found] = (await this.#core.store.schedules({ name, limit: 1 })).schedules;
    if (found === undefined) throw new LaboroError("LABORO_NO_SUCH_SCHEDULE", `there is no schedule ${name}`);
    return found;
  }

  /** Changes one schedule. `plan` is called again if the row was changed meanwhile. */
  async change<T extends { readonly change: ScheduleChange }>(
    name: string,
    plan: (found: Schedule | undefined, now: number) => Promise<T> | T,
  ): Promise<T & { readonly job: JobId | undefined }> {
    for (let tries = 0; tries < TRIES; tries++) {
      const { schedules, now } = await this.#core.store.schedules({ name, limit: 1 });
      const planned = await plan(schedules[0], now);
      const [made] = await this.#commit([planned.change]);
      if (made === undefined) continue;
      this.look();
      return { ...planned, job: made.job };
    }
    throw new LaboroError(
      "LABORO_INTERNAL",
      `schedule ${name}: others changed it ${TRIES} times meanwhile; look at it and try again`,
    );
  }

  async #run(): Promise<void> {
    this.#running = true;
    clearTimeout(this.#timer);
    let wait: number | undefined = RETRY_MS;
    try {
      do {
        this.#again = false;
        wait = await this.#startDue();
      } while (this.#again && !this.#stopped);
      this.#warned = false;
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      if (!this.#stopped && !this.#warned) this.#log.warn({ code }, `cannot start scheduled runs: ${message}`);
      this.#warned = true;
      wait = RETRY_MS;
    }
    this.#running = false;
    if (wait !== undefined && !this.#stopped) this.#timer = setTimeout(() => this.#wake(), wait).unref();
  }

  #wake(): void {
    // No query if this machine's clock is the store's.
    if (this.#core.store.shared || (this.#earliest ?? 0) <= Date.now()) this.look();
    else this.#timer = setTimeout(() => this.#wake(), this.#pause(this.#earliest, Date.now())).unref();
  }

  /** Starts all due runs. Returns how long to wait. */
  async #startDue(): Promise<number | undefined> {
    for (;;) {
      const { schedules, now, earliest } = await this.#core.store.schedules({ due: true, limit: AT_ONCE });
      this.#earliest = earliest;
      if (this.#stopped) return undefined;
      if (schedules.length === 0) return this.#pause(earliest, now);
      if (this.#core.refusing !== undefined) return RETRY_MS;
      const { plannedRun } = await import("./schedule-runs.js");
      const planned: { readonly change: ScheduleChange; readonly run: ScheduleRun }[] = [];
      for (const one of schedules) planned.push(await plannedRun(this.#core, one, now));
      const made = await this.#commit(planned.map(({ change }) => change));
      planned.forEach(({ change, run }, at) => {
        const one = made[at];
        if (one !== undefined) this.report(change.name, run, one.job);
      });
      if (made.every((one) => one === undefined)) await new Promise((resolve) => setTimeout(resolve, LOST_PAUSE_MS));
    }
  }

  #pause(earliest: number | undefined, now: number): number | undefined {
    const most = this.#core.store.shared ? CHECK_STORE_CLOCK_MS : CHECK_OWN_CLOCK_MS;
    if (earliest === undefined) return this.#core.store.shared ? most : undefined;
    return Math.min(most, Math.max(1, Math.ceil(earliest - now)));
  }

  /** The result of each change; undefined if it was not made. When it resolves, dispatch knows the jobs. */
  async #commit(changes: readonly ScheduleChange[]): Promise<readonly (MadeChange | undefined)[]> {
    const result = await this.#core.commit({ op: "schedule", changes });
    if (result.op !== "schedule") throw new LaboroError("LABORO_INTERNAL", "the store gave another result");
    const made: (MadeChange | undefined)[] = [];
    for (const [at, { changed, results }] of result.changes.entries()) {
      const writes = changes[at]?.writes ?? [];
      made.push(changed ? { job: await this.#apply(writes, results) } : undefined);
    }
    return made;
  }

  async #apply(writes: readonly RunWrite[], results: readonly WriteResult[]): Promise<JobId | undefined> {
    const core = this.#core;
    let made: JobId | undefined;
    for (const [at, result] of results.entries()) {
      const write = writes[at];
      if (write?.op === "cancel") core.decide((out) => onRemoteCancel(core.state, out, write.job, write.ranges));
      if (result.op === "duplicate") made = result.job;
      if (result.op !== "submit") continue;
      const { job, taskRange, replaced } = result;
      made = job.id;
      if (replaced !== undefined) core.decide((out) => onRemoteCancel(core.state, out, replaced.job, [ALL_TASKS]));
      if (job.delayed === true) core.delays.added(job);
      else if (job.after.length === 0) core.jobs.stored(job, taskRange, new Map());
      else await this.#addDependent(job, taskRange);
    }
    return made;
  }

  /** The run waits for the previous one, which may have ended and been removed. */
  async #addDependent(job: Job, taskRange: TaskRange | undefined): Promise<void> {
    const { store, jobs } = this.#core;
    try {
      await jobs.withLock(job.id, async () => {
        const others: JobId[] = [];
        for (const { job: other } of job.after) if ((await store.job(other)) !== undefined) others.push(other);
        jobs.stored(job, taskRange, await endsOf(this.#core, others));
      });
    } catch (cause) {
      // The store does not answer. In a group, the next poll of the open jobs finds the run.
      const { code, message } = asLaboroError(cause);
      this.#log.warn({ code, job: job.id }, `a scheduled run is submitted, but cannot start yet: ${message}`);
    }
  }

  /** Counts a run and publishes its event. */
  report(schedule: string, { due, skipped, message }: ScheduleRun, job: JobId | undefined): void {
    this.runCounts[skipped ?? "started"]++;
    if (skipped === undefined)
      this.#core.events.add({ kind: "schedule-run", schedule, due, ...(job === undefined ? {} : { job }) });
    else this.#core.events.add({ kind: "schedule-skipped", schedule, due, reason: message ?? skipped });
    if (skipped === "refused") this.#log.warn({ schedule }, `a scheduled run was refused: ${message}`);
  }
}

/** The writes and results of a batch, including the writes inside schedule changes. */
export function withRunWrites(
  writes: readonly Write[],
  results: readonly WriteResult[],
): [writes: readonly Write[], results: readonly WriteResult[]] {
  if (!writes.some(({ op }) => op === "schedule")) return [writes, results];
  const all: [Write, WriteResult][] = [];
  writes.forEach((write, at) => {
    const result = results[at];
    if (result === undefined) return;
    all.push([write, result]);
    if (write.op !== "schedule" || result.op !== "schedule") return;
    result.changes.forEach(({ results: ofRun }, i) => {
      ofRun.forEach((one, n) => {
        const inner = write.changes[i]?.writes[n];
        if (inner !== undefined) all.push([inner, one]);
      });
    });
  });
  return [all.map(([write]) => write), all.map(([, result]) => result)];
}
