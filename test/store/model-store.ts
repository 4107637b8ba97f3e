/**
 * The store as plainly as it can be said: everything in memory, every question answered by looking at everything. Slow, and
 * right by inspection; the engines are held against it. Several brokers can work on one world. Nothing survives.
 *
 * A batch that could not come from a right broker (LABORO_INTERNAL) breaks the world: it is not undone, and every later
 * call is refused with the same error.
 */

import { LaboroError } from "../../src/base/errors.js";
import { type Attempt, JobId, type TaskIndex, TaskRangeId } from "../../src/model/ids.js";
import { type Entries, finishedCount, type Job, jobEnd } from "../../src/model/job.js";
import { LISTED_VALUE, type TaskEnd, type TaskResult } from "../../src/model/outcome.js";
import {
  contains,
  countOf,
  difference,
  intersection,
  normalize,
  type Range,
  rangesOf,
  sizeOf,
  union,
} from "../../src/model/ranges.js";
import type { Schedule, SchedulePage, ScheduleQuery } from "../../src/model/schedule.js";
import type {
  ClaimedRange,
  Epoch,
  Progress,
  RecoveredState,
  Store,
  TaskRange,
  Write,
  WriteResult,
} from "../../src/model/store.js";
import type { Group, GroupHint } from "../../src/model/store-group.js";
import type {
  EndCounts,
  JobPage,
  KeyValue,
  NextDelayed,
  OutputPage,
  ResultOptions,
  ResultPage,
  TaskUsage,
} from "../../src/model/store-reads.js";
import { type AttemptRun, entriesWithin, jobOfRun, tooManyRanges } from "../../src/store/rows.js";
import { checkWorld } from "./model-check.js";
import { isWantedJob, isWantedResult } from "./model-filter.js";
import { ModelBrokers, ModelGroup } from "./model-group.js";
import { ModelLimits } from "./model-limits.js";
import { ModelOutput, type OutputOptions } from "./model-output.js";

export interface ModelJob {
  job: Job;
  entries: Entries;
  readonly results: Map<TaskIndex, TaskResult>;
  readonly earlier: TaskResult[];
  /** `index.attempt` with output when the job ended: nothing is running of them, even if the job goes on. */
  readonly over: Set<string>;
  /** No other job may have its key, as long as it holds it. */
  hasKey: boolean;
}

/** A task range and the broker that owns it; without one it was given back. */
export interface OwnedTaskRange {
  readonly taskRange: TaskRange;
  readonly epoch: Epoch | undefined;
}

type Op<Name extends Write["op"]> = Extract<Write, { op: Name }>;
type AnswerTo<Name extends WriteResult["op"]> = Extract<WriteResult, { op: Name }>;

export class ModelWorld {
  readonly shared: boolean;
  readonly jobs = new Map<JobId, ModelJob>();
  readonly taskRanges = new Map<TaskRangeId, OwnedTaskRange>();
  readonly output = new ModelOutput();
  readonly keptTexts = new Map<string, KeyValue & { readonly bucket: string }>();
  readonly schedules = new Map<string, Schedule>();
  readonly brokers = new ModelBrokers();
  readonly limits = new ModelLimits(this);
  #epoch = 0;
  lastJob = JobId(0);
  /** Of the last batch. */
  now = 0;
  #broken: LaboroError | undefined;

  /** Without `shared`, opening takes over everything, as the only broker on a data directory does. */
  constructor(options: { readonly shared?: boolean } = {}) {
    this.shared = options.shared ?? true;
  }

  store(): Store {
    return new ModelStore(this);
  }

  /** Every task in exactly one place, every counter true; throws with the first that is not. */
  check(): void {
    checkWorld(this);
  }

  /** A broker is dead: what waited there can be leased by others. Gives what its workers still have. */
  reap(epoch: Epoch, now: number): readonly ClaimedRange[] {
    for (const { taskRange, epoch: owner } of [...this.taskRanges.values()]) {
      if (owner !== epoch || taskRange.worker !== undefined) continue;
      const known = this.#known(taskRange.job);
      const cancelled = known.job.counters.cancelled + this.#giveUp(taskRange);
      known.job = { ...known.job, counters: { ...known.job.counters, cancelled } };
      this.#progress(known, now);
    }
    return this.#owned((owner) => owner === epoch);
  }

  /** The grace for a dead broker's workers is over: another broker takes what they had. */
  orphans(epoch: Epoch, newEpoch: Epoch): readonly ClaimedRange[] {
    const taken = this.#owned((owner) => owner === epoch);
    for (const { taskRange } of taken) this.taskRanges.set(taskRange.id, { taskRange, epoch: newEpoch });
    return taken;
  }

  begin(): RecoveredState {
    const epoch = ++this.#epoch;
    if (!this.shared) for (const [id, { taskRange }] of this.taskRanges) this.taskRanges.set(id, { taskRange, epoch });
    const jobs = [...this.jobs.values()]
      .map(({ job }) => job)
      .filter((job) => job.ended === undefined && job.delayed !== true);
    const held = { identity: "model", epoch, jobs, taskRanges: this.#owned((owner) => owner === epoch) };
    const { starts: limitStarts } = this.limits;
    return this.shared ? held : { ...held, nextJob: JobId(this.lastJob + 1), limitStarts };
  }

  apply(writes: readonly Write[], epoch: Epoch, now: number): WriteResult[] {
    if (this.#broken !== undefined) throw this.#broken;
    this.now = now;
    try {
      for (const write of writes) if (write.op === "output") this.output.append(write.chunks);
      return writes.map((write) => this.#applyOne(write, epoch, now));
    } catch (cause) {
      if (cause instanceof LaboroError) this.#broken = cause;
      throw cause;
    }
  }

  #applyOne(write: Write, epoch: Epoch, now: number): WriteResult {
    switch (write.op) {
      case "submit":
        return this.#submit(write, epoch, now);
      case "lease":
        return this.#lease(write, epoch, now);
      case "claim":
        return this.#claim(write, epoch, now);
      case "settle":
        return this.#settle(write, epoch, now);
      case "replace":
        return this.#replace(write, epoch, now);
      case "release":
        return this.#release(write, epoch, now);
      case "adopt":
        return this.#adopt(write, epoch);
      case "hold":
        return this.#hold(write);
      case "cancel":
        return this.#cancel(write, now);
      case "edit":
        return this.#edit(write, now);
      case "rerun":
        return this.#rerun(write, epoch, now);
      case "promote":
        return this.#promote(write);
      case "remove":
        return this.#remove(write);
      case "put":
        return this.#keep(write, now);
      case "output":
        return { op: "output" };
      case "schedule":
        return this.#schedule(write, epoch, now);
    }
  }

  #submit(write: Op<"submit">, epoch: Epoch, now: number): AnswerTo<"submit" | "duplicate"> {
    const { idempotencyKey } = write.job;
    const id = write.id ?? JobId(this.lastJob + 1);
    // Several brokers get numbers before they know of duplicates. The number of a duplicate is not used again.
    if (this.shared) this.lastJob = JobId(Math.max(this.lastJob, id));
    for (const { job } of this.jobs.values())
      if (idempotencyKey !== undefined && job.idempotencyKey === idempotencyKey)
        return { op: "duplicate", job: job.id };
    const holder = write.job.key === undefined ? undefined : this.#holderOf(write.job.key, now);
    if (holder !== undefined && write.job.ifExists !== "replace")
      return { op: "duplicate", job: holder.job.id, byKey: true };
    if (this.jobs.has(id)) throw new LaboroError("LABORO_INTERNAL", `there is a job ${id} already`);
    this.lastJob = JobId(Math.max(this.lastJob, id));
    const { count } = write.job;
    const cursor = Math.min(write.lease, count);
    const job: Job = {
      ...write.job,
      id,
      created: now,
      hasEntries: write.entries !== undefined,
      cursor,
      cancels: [],
      counters: { succeeded: 0, failed: 0, cancelled: 0 },
      ...(write.job.notBefore !== undefined && write.job.after.length === 0 && (count > 0 || write.job.open)
        ? { delayed: true }
        : {}),
      ...(count === 0 && write.job.open !== true ? { ended: { at: now, state: "succeeded" } } : {}),
    };
    const { entries = [] } = write;
    const all = "chunks" in entries ? entriesWithin(entries.chunks, { first: 0, last: count - 1 }) : entries;
    this.jobs.set(id, { job, entries: all, results: new Map(), earlier: [], over: new Set(), hasKey: true });
    const replaced = holder === undefined ? {} : { replaced: this.#replaceJob(holder, id, now) };
    if (cursor === 0) return { op: "submit", job, ...replaced };
    const taskRange = this.#fresh(write.rangeId, id, { first: 0, last: cursor - 1 }, epoch);
    return { op: "submit", job, taskRange, ...replaced };
  }

  #replaceJob(holder: ModelJob, by: JobId, now: number): { job: JobId; progress?: Progress } {
    holder.hasKey = false;
    const { id: job, count } = holder.job;
    const ranges = [{ first: 0, last: count }];
    const { progress } = this.#cancel({ op: "cancel", job, ranges, reason: `replaced by job ${by}` }, now);
    return progress === undefined ? { job } : { job, progress };
  }

  /** The job that has this key. One that has ended loses it here, where its time is over. */
  #holderOf(key: string, now: number): ModelJob | undefined {
    for (const known of this.jobs.values()) {
      if (known.job.key !== key || !known.hasKey) continue;
      if (holdsKey(known, now)) return known;
      known.hasKey = false;
    }
    return undefined;
  }

  #promote({ op, clock, steady, max }: Op<"promote">): AnswerTo<"promote"> {
    const isDue = ({ delayMs, notBefore = 0 }: Job): boolean => notBefore <= (delayMs === undefined ? clock : steady);
    const due = this.delayed().filter(isDue);
    const named = due.filter(({ delayMs }) => delayMs === undefined);
    const relative = due.filter(({ delayMs }) => delayMs !== undefined);
    const jobs = [...named, ...relative].slice(0, max).map(({ id }) => {
      const known = this.#known(id);
      const { delayed: _, ...job } = known.job;
      known.job = job;
      return job;
    });
    return { op, jobs };
  }

  /** The earliest first. */
  delayed(): Job[] {
    return [...this.jobs.values()]
      .map(({ job }) => job)
      .filter(({ delayed }) => delayed === true)
      .sort((a, b) => (a.notBefore ?? 0) - (b.notBefore ?? 0));
  }

  #lease(write: Op<"lease">, epoch: Epoch, now: number): AnswerTo<"lease"> {
    const { max, limited } = this.limits.most(write, now);
    const answer = this.#leaseUpTo({ ...write, max }, epoch, now);
    this.limits.leased(
      write,
      answer.taskRanges.map(({ id }) => id),
    );
    return limited === undefined || !answer.mayLease ? answer : { ...answer, limited };
  }

  #leaseUpTo({ job: id, max: most, rangeId: taskRange }: Op<"lease">, epoch: Epoch, now: number): AnswerTo<"lease"> {
    const granted: TaskRange[] = [];
    let left = most;
    for (const found of this.#due(id, now)) {
      if (left === 0) break;
      const size = sizeOf(found);
      if (size > left) {
        const part = { ...found, id: taskRange, last: found.first + left - 1 };
        this.taskRanges.set(found.id, { taskRange: { ...found, first: part.last + 1 }, epoch: undefined });
        this.#place(part, epoch);
        granted.push(part);
        left = 0;
      } else {
        this.taskRanges.set(found.id, { taskRange: found, epoch });
        granted.push(found);
        left -= size;
      }
    }
    const known = this.jobs.get(id);
    if (known === undefined) return { op: "lease", job: id, taskRanges: granted, mayLease: false };
    const { cursor, count } = known.job;
    const next = Math.min(count, cursor + left);
    if (next > cursor) {
      known.job = { ...known.job, cursor: next };
      granted.push(this.#fresh(taskRange, id, { first: cursor, last: next - 1 }, epoch));
    }
    return { op: "lease", job: id, taskRanges: granted, mayLease: next < count || this.#due(id, now).length > 0 };
  }

  #claim(write: Op<"claim">, epoch: Epoch, now: number): AnswerTo<"claim"> {
    const { op, from, rangeId: id, first, last, attempt, worker } = write;
    const owned = this.taskRanges.get(from);
    if (owned === undefined || owned.epoch !== epoch || owned.taskRange.worker !== undefined) return { op, lost: true };
    const { taskRange } = owned;
    if (first < taskRange.first || last > taskRange.last) return { op, lost: true };
    if (first !== taskRange.first && last !== taskRange.last) {
      throw new LaboroError("LABORO_INTERNAL", `a claim out of the middle of task range ${from}`);
    }
    this.taskRanges.delete(from);
    for (const rest of difference(taskRange, [{ first, last }])) {
      this.taskRanges.set(from, { taskRange: { ...taskRange, ...rest }, epoch });
    }
    this.#place({ ...taskRange, id, first, last, attempt, worker }, epoch);
    this.limits.copied(from, [id]);
    this.limits.started(write.limits ?? [], last - first + 1, now);
    const { job, entries } = this.#known(taskRange.job);
    return job.hasEntries ? { op, lost: false, entries: entries.slice(first, last + 1) } : { op, lost: false };
  }

  #settle(
    { op, job, rangeId: taskRange, results, empty }: Op<"settle">,
    epoch: Epoch,
    now: number,
  ): AnswerTo<"settle"> {
    if (this.taskRanges.get(taskRange)?.epoch !== epoch) return { op, lost: true };
    const known = this.#known(job);
    const counters = { ...known.job.counters };
    for (const given of results.map(copied)) {
      if (known.results.has(given.index)) continue;
      const result: TaskResult = contains(known.job.cancels, given.index) ? { ...given, state: "cancelled" } : given;
      known.results.set(result.index, result);
      this.output.keepWithResult(job, result);
      counters[result.state]++;
    }
    if (empty) this.taskRanges.delete(taskRange);
    known.job = { ...known.job, counters };
    return { op, lost: false, progress: this.#progress(known, now) };
  }

  #replace(write: Op<"replace">, epoch: Epoch, now: number): AnswerTo<"replace"> {
    const { op, job, rangeId: taskRange, replacements: pieces, earlierAttempts: earlier, cancelled } = write;
    if (this.taskRanges.get(taskRange)?.epoch !== epoch) return { op, lost: true };
    const known = this.#known(job);
    this.taskRanges.delete(taskRange);
    for (const piece of pieces) this.#place(piece, epoch);
    this.limits.copied(
      taskRange,
      pieces.map(({ id }) => id),
    );
    known.earlier.push(...earlier.map(copied));
    for (const end of earlier) this.output.keepWithResult(job, end);
    const { counters } = known.job;
    known.job = { ...known.job, counters: { ...counters, cancelled: counters.cancelled + cancelled } };
    return { op, lost: false, progress: this.#progress(known, now) };
  }

  #release({ op, rangeId: id }: Op<"release">, epoch: Epoch, now: number): AnswerTo<"release"> {
    const owned = this.taskRanges.get(id);
    if (owned === undefined || owned.epoch !== epoch || owned.taskRange.worker !== undefined) return { op, lost: true };
    const { job } = owned.taskRange;
    const known = this.#known(job);
    const cancelled = this.#giveUp(owned.taskRange);
    if (cancelled === 0) return { op, lost: false };
    const { counters } = known.job;
    known.job = { ...known.job, counters: { ...counters, cancelled: counters.cancelled + cancelled } };
    return { op, lost: false, job, progress: this.#progress(known, now) };
  }

  #adopt({ op, worker }: Op<"adopt">, epoch: Epoch): AnswerTo<"adopt"> {
    const taskRanges = this.#owned((owner, taskRange) => owner !== epoch && taskRange.worker === worker);
    for (const { taskRange } of taskRanges) this.taskRanges.set(taskRange.id, { taskRange, epoch });
    return { op, taskRanges: taskRanges };
  }

  #keep({ op, bucket, key, value, version: expected }: Op<"put">, now: number): AnswerTo<"put"> {
    const name = JSON.stringify([bucket, key]);
    const version = this.keptTexts.get(name)?.version ?? 0;
    if (expected !== undefined && expected !== version) return { op, stored: false, version };
    if (value === null) {
      this.keptTexts.delete(name);
      return { op, stored: true, version: 0 };
    }
    this.keptTexts.set(name, { bucket, key, value, version: version + 1, updatedAt: now });
    return { op, stored: true, version: version + 1 };
  }

  kept(bucket: string): readonly KeyValue[] {
    return [...this.keptTexts.values()]
      .filter((one) => one.bucket === bucket)
      .map(({ bucket: _, ...one }) => one)
      .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
  }

  #hold({ op, job, held }: Op<"hold">): AnswerTo<"hold"> {
    const known = this.jobs.get(job);
    if (known === undefined) return { op, found: false };
    known.job = { ...known.job, held };
    return { op, found: true };
  }

  #cancel({ op, job: id, ranges, reason, unclaimed }: Op<"cancel">, now: number): AnswerTo<"cancel"> {
    const known = this.jobs.get(id);
    if (known === undefined) return { op };
    const { job } = known;
    if (job.ended !== undefined) return { op, progress: this.#progress(known, now) };
    const { count, cursor, counters } = job;
    const claimed = [...this.taskRanges.values()].flatMap(({ taskRange }) =>
      unclaimed === true && taskRange.job === id && taskRange.worker !== undefined ? [taskRange] : [],
    );
    const left = normalize(claimed.map(({ first, last }) => ({ first, last })));
    const added = intersection({ first: 0, last: count - 1 }, normalize(ranges));
    const cancels = union(
      job.cancels,
      added.flatMap((range) => difference(range, left)),
    );
    known.job = { ...job, cancels, ...(reason === undefined ? {} : { reason }) };
    if (ranges.some(({ first, last }) => first <= count && count <= last)) delete (known.job as { open?: true }).open;
    let cancelled = 0;
    if (difference({ first: cursor, last: count - 1 }, cancels).length === 0) {
      cancelled += count - cursor;
      known.job = { ...known.job, cursor: count };
    }
    for (const { taskRange, epoch } of [...this.taskRanges.values()]) {
      if (epoch === undefined && taskRange.job === id) cancelled += this.#giveUp(taskRange);
    }
    known.job = { ...known.job, counters: { ...counters, cancelled: counters.cancelled + cancelled } };
    return { op, progress: this.#progress(known, now) };
  }

  #edit({ op, job: id, changes = {}, append, close }: Op<"edit">, now: number): AnswerTo<"edit"> {
    const known = this.jobs.get(id);
    if (known === undefined) return { op };
    const { job } = known;
    const refused =
      job.ended !== undefined
        ? "ended"
        : append !== undefined && job.open !== true
          ? "closed"
          : append !== undefined && append.at !== job.count
            ? "count"
            : undefined;
    if (refused === undefined) {
      const { maxRunning = job.limits.maxRunning, timeLimitMs = job.limits.timeLimitMs, array, ...others } = changes;
      const limits = { ...job.limits, ...(maxRunning && { maxRunning }), ...(timeLimitMs && { timeLimitMs }) };
      const recipe = array === undefined ? job.recipe : ({ ...job.recipe, array } as Job["recipe"]);
      if (changes.maxRunning !== undefined) this.limits.limited(id);
      known.job = { ...job, ...others, limits, recipe, count: job.count + (append?.count ?? 0) };
      known.entries = [...known.entries, ...(append?.entries ?? [])];
      if (close === true) delete (known.job as { open?: true }).open;
    }
    const progress = this.#progress(known, now);
    return {
      op,
      job: known.job,
      ...(refused === undefined ? {} : { refused }),
      ...(progress.ended === undefined ? {} : { progress }),
    };
  }

  #rerun(
    { op, job: id, ends, ranges, rangeId: taskRange, idCount: names }: Op<"rerun">,
    epoch: Epoch,
    now: number,
  ): AnswerTo<"rerun"> {
    const known = this.jobs.get(id);
    if (known === undefined) return { op, taskRanges: [], count: 0 };
    const runs: AttemptRun[] = [];
    const counters = { ...known.job.counters };
    for (let index = 0; index < known.job.cursor; index++) {
      if (ranges !== undefined && !ranges.some(({ first, last }) => first <= index && index <= last)) continue;
      const end = this.#endOf(known, index);
      if (end === undefined || !ends.includes(end)) continue;
      counters[end]--;
      const attempt = this.#lastAttempt(known, index);
      const run = runs.at(-1);
      if (run?.attempt === attempt && run.last + 1 === index) runs[runs.length - 1] = { ...run, last: index };
      else runs.push({ first: index, last: index, attempt });
    }
    if (runs.length === 0) return { op, job: known.job, taskRanges: [], count: 0 };
    if (runs.length > names) {
      return { op, job: known.job, taskRanges: [], count: 0, refused: tooManyRanges(runs.length, names) };
    }
    const holder = known.job.key === undefined ? undefined : this.#holderOf(known.job.key, now);
    if (holder !== undefined && holder !== known) {
      const refused = `job ${holder.job.id} has the key of this one: cancel it, or wait for its end`;
      return { op, job: known.job, taskRanges: [], count: 0, refused };
    }
    known.hasKey = true;
    for (const { first, last } of runs) {
      for (let index = first; index <= last; index++) {
        const result = known.results.get(index);
        if (result !== undefined) known.earlier.push(result);
        known.results.delete(index);
      }
    }
    const cancels = known.job.cancels.flatMap((range) => difference(range, normalize(runs)));
    const { ended: _, delayed: __, reason, ...job } = known.job;
    known.job = { ...job, counters, cancels, ...(reason === undefined || cancels.length === 0 ? {} : { reason }) };
    const taskRanges = runs.map((run, at) => {
      const piece = { ...run, id: TaskRangeId(taskRange + at), job: id, failures: 0, crashes: 0, notBefore: 0 };
      this.#place(piece, epoch);
      return piece;
    });
    return { op, job: known.job, taskRanges: taskRanges, count: countOf(runs) };
  }

  #remove({ op, job: id }: Op<"remove">): AnswerTo<"remove"> {
    if (this.jobs.get(id)?.job.ended === undefined) return { op, removed: false };
    this.jobs.delete(id);
    this.output.remove(id);
    for (const [name, { taskRange }] of this.taskRanges) if (taskRange.job === id) this.taskRanges.delete(name);
    return { op, removed: true };
  }

  /** How a granted task ended; undefined for one in a task range, whatever is known of it. */
  #endOf({ job, results }: ModelJob, index: TaskIndex): TaskEnd | undefined {
    for (const { taskRange } of this.taskRanges.values()) {
      if (taskRange.job === job.id && taskRange.first <= index && index <= taskRange.last) return undefined;
    }
    return results.get(index)?.state ?? "cancelled";
  }

  #lastAttempt({ job, results, earlier }: ModelJob, index: TaskIndex): Attempt {
    const result = results.get(index);
    if (result !== undefined) return result.attempt;
    const attempts = earlier.filter((end) => end.index === index).map(({ attempt }) => attempt);
    return Math.max(this.output.latest(job.id, index), ...attempts);
  }

  /** A task range is nobody's; the cancelled tasks at its ends leave it. Gives how many. */
  #giveUp(taskRange: TaskRange): number {
    const left = difference(taskRange, this.#known(taskRange.job).job.cancels);
    const [start] = left;
    const end = left.at(-1);
    if (start === undefined || end === undefined) {
      this.taskRanges.delete(taskRange.id);
      return sizeOf(taskRange);
    }
    const kept = { ...taskRange, first: start.first, last: end.last };
    this.taskRanges.set(taskRange.id, { taskRange: kept, epoch: undefined });
    return sizeOf(taskRange) - sizeOf(kept);
  }

  #progress(known: ModelJob, now: number): Progress {
    const { counters, count, open } = known.job;
    if (known.job.ended === undefined && open !== true && finishedCount(counters) === count) {
      const { delayed: _, ...job } = known.job;
      known.job = { ...job, ended: { at: now, state: jobEnd(counters) } };
      for (const { index, attempt } of this.output.attempts(known.job.id)) known.over.add(`${index}.${attempt}`);
    }
    const { ended } = known.job;
    return ended === undefined ? { counters } : { counters, ended: ended.state };
  }

  #fresh(id: TaskRangeId, job: JobId, range: Range, epoch: Epoch): TaskRange {
    const taskRange = { id, job, ...range, attempt: 0, failures: 0, crashes: 0, notBefore: 0 };
    this.#place(taskRange, epoch);
    return taskRange;
  }

  #place(taskRange: TaskRange, epoch: Epoch): void {
    if (this.taskRanges.has(taskRange.id))
      throw new LaboroError("LABORO_INTERNAL", `task range ${taskRange.id} is there already`);
    this.taskRanges.set(taskRange.id, { taskRange, epoch });
  }

  /** The given-back task ranges of a job that may be handed out now, in task order. */
  #due(job: JobId, now: number): TaskRange[] {
    return [...this.taskRanges.values()]
      .filter(({ taskRange, epoch }) => epoch === undefined && taskRange.job === job)
      .map(({ taskRange }) => taskRange)
      .filter(({ notBefore, waitMs = 0 }) => notBefore <= now || notBefore > now + waitMs)
      .sort((a, b) => a.first - b.first);
  }

  #owned(wanted: (epoch: Epoch | undefined, taskRange: TaskRange) => boolean): ClaimedRange[] {
    const found = [...this.taskRanges.values()].filter(({ taskRange, epoch }) => wanted(epoch, taskRange));
    return found
      .sort((a, b) => a.taskRange.id - b.taskRange.id)
      .map(({ taskRange }) => ({ taskRange: taskRange, settled: this.#settledIn(taskRange) }));
  }

  #schedule({ op, changes }: Op<"schedule">, epoch: Epoch, now: number): AnswerTo<"schedule"> {
    return {
      op,
      changes: changes.map(({ name, expected, due = 0, next, writes }) => {
        const found = this.schedules.get(name);
        if ((found?.revision ?? 0) !== expected || due > Date.now()) return { changed: false, results: [] };
        const spec = next?.spec ?? found?.spec;
        if (next === undefined || spec === undefined) this.schedules.delete(name);
        else this.schedules.set(name, { ...jobsOf(found), ...next, name, spec });
        const results = writes.map((write) => this.#applyOne(write, epoch, now));
        const lastJob = results.map(jobOfRun).find((job) => job !== undefined);
        const made = this.schedules.get(name);
        if (made !== undefined && lastJob !== undefined) {
          const former = made.lastJob === undefined ? {} : { formerJob: made.lastJob };
          this.schedules.set(name, { ...made, lastJob, ...former });
        }
        return { changed: true, results };
      }),
    };
  }

  #settledIn({ job, first, last }: TaskRange): readonly Range[] {
    const indices = [...this.#known(job).results.keys()].filter((index) => index >= first && index <= last);
    return rangesOf(indices.sort((a, b) => a - b));
  }

  #known(job: JobId): ModelJob {
    const known = this.jobs.get(job);
    if (known === undefined) throw new LaboroError("LABORO_INTERNAL", `a write names job ${job}, which is not there`);
    return known;
  }
}

const jobsOf = (found: Schedule | undefined): Pick<Schedule, "lastJob" | "formerJob"> => ({
  ...(found?.lastJob === undefined ? {} : { lastJob: found.lastJob }),
  ...(found?.formerJob === undefined ? {} : { formerJob: found.formerJob }),
});

class ModelStore implements Store {
  readonly shared: boolean;
  readonly #world: ModelWorld;
  #epoch: Epoch | undefined;

  constructor(world: ModelWorld) {
    this.#world = world;
    this.shared = world.shared;
  }

  get group(): Group {
    return new ModelGroup(this.#world, this.#epoch ?? 0);
  }

  async open(): Promise<RecoveredState> {
    const held = this.#world.begin();
    this.#epoch = held.epoch;
    this.#world.brokers.enter(held.epoch);
    return held;
  }

  async commit(writes: readonly Write[], now: number): Promise<readonly WriteResult[]> {
    const { brokers } = this.#world;
    if (this.#epoch === undefined) throw new LaboroError("LABORO_INTERNAL", "the store has not been opened");
    brokers.check(this.#epoch);
    const answers = this.#world.apply(writes, this.#epoch, now);
    for (const [at, write] of writes.entries())
      for (const hint of hintsOf(write, answers[at])) brokers.tell(this.#epoch, hint);
    return answers;
  }

  async job(id: JobId): Promise<Job | undefined> {
    this.#world.brokers.reach(this.#epoch);
    return this.#world.jobs.get(id)?.job;
  }

  async jobs({ before, limit, filter }: Parameters<Store["jobs"]>[0]): Promise<JobPage> {
    const all = [...this.#world.jobs.values()].map(({ job }) => job).reverse();
    const wanted = all.filter((job) => (before === undefined || job.id < before) && isWantedJob(job, filter));
    const jobs = wanted.slice(0, limit);
    const last = jobs.at(-1);
    return wanted.length > limit && last !== undefined ? { jobs, next: last.id } : { jobs };
  }

  async delayedCount(): Promise<number> {
    return this.#world.delayed().length;
  }

  async nextDelayed(): Promise<NextDelayed> {
    const delayed = this.#world.delayed();
    const clock = delayed.find(({ delayMs }) => delayMs === undefined)?.notBefore;
    const steady = delayed.find(({ delayMs }) => delayMs !== undefined)?.notBefore;
    return { ...(clock === undefined ? {} : { clock }), ...(steady === undefined ? {} : { steady }) };
  }

  async expiredJobs(...[now, keep, limit]: Parameters<Store["expiredJobs"]>): Promise<readonly JobId[]> {
    const expired = [...this.#world.jobs.values()].filter((known) => {
      const { ended, keepMs, keepFailedMs = keepMs } = known.job;
      const own = ended?.state === "succeeded" ? keepMs : keepFailedMs;
      const { keepMs: usual, keepFailedMs: usualFailed = usual } = keep;
      const kept = own ?? (ended?.state === "succeeded" ? usual : usualFailed);
      return ended !== undefined && kept !== undefined && ended.at + kept <= now && !holdsKey(known, now);
    });
    return expired.slice(0, limit).map(({ job }) => job.id);
  }

  async results(job: JobId, { from, limit, filter, withOutput, maxValue = -1 }: ResultOptions): Promise<ResultPage> {
    const all = [...(this.#world.jobs.get(job)?.results.values() ?? [])].sort((a, b) => a.index - b.index);
    const wanted = all.filter((result) => result.index >= from && isWantedResult(result, filter));
    const results = wanted
      .slice(0, limit)
      .map((result) => (withOutput === true ? result : withoutOutput(result)))
      .map((result) => withValueUpTo(maxValue, result));
    const next = wanted[limit]?.index;
    return next === undefined ? { results } : { results, next };
  }

  async endCounts(job: JobId, { first, last }: Range, per: number): Promise<readonly EndCounts[]> {
    const cells = new Map<number, Record<TaskEnd, number>>();
    for (const { index, state } of this.#world.jobs.get(job)?.results.values() ?? []) {
      if (index < first || index > last) continue;
      const cell = Math.floor((index - first) / per);
      const counted = cells.get(cell) ?? { succeeded: 0, failed: 0, cancelled: 0 };
      counted[state]++;
      cells.set(cell, counted);
    }
    return [...cells].map(([cell, counted]) => ({ cell, ...counted })).sort((a, b) => a.cell - b.cell);
  }

  async usage(job: JobId, { first, last }: Range): Promise<TaskUsage[]> {
    const all = [...(this.#world.jobs.get(job)?.results.values() ?? [])];
    const steps = new Map<number, TaskResult[]>();
    for (const result of all.filter(({ index }) => index >= first && index <= last)) {
      const step = Math.floor(4 * Math.log2(Math.max(1, result.ended - result.started)) + 1e-9);
      steps.set(step, [...(steps.get(step) ?? []), result]);
    }
    const sum = (results: readonly TaskResult[], of: (result: TaskResult) => number): number =>
      results.reduce((total, result) => total + of(result), 0);
    return [...steps]
      .sort(([a], [b]) => a - b)
      .map(([step, results]) => ({
        step,
        tasks: results.length,
        runMs: sum(results, ({ started, ended }) => ended - started),
        cpuMs: sum(results, ({ cpuMs = 0 }) => cpuMs),
        peakMemory: Math.max(0, ...results.map(({ peakMemory = 0 }) => peakMemory)),
        firstStart: Math.min(...results.map(({ started }) => started)),
      }));
  }

  async earlierAttempts(job: JobId, index: TaskIndex): Promise<readonly TaskResult[]> {
    const found = this.#world.jobs.get(job)?.earlier.filter((result) => result.index === index) ?? [];
    return found
      .sort((a, b) => a.attempt - b.attempt)
      .map((result) => withValueUpTo(LISTED_VALUE, withoutOutput(result)));
  }

  async entries(job: JobId, { first, last }: Range): Promise<Entries> {
    return this.#world.jobs.get(job)?.entries.slice(first, last + 1) ?? [];
  }

  async output(job: JobId, index: TaskIndex, options: OutputOptions): Promise<OutputPage> {
    return this.#world.output.read(job, index, options);
  }

  async schedules({ name, due, after = "", limit }: ScheduleQuery): Promise<SchedulePage> {
    const now = Date.now();
    const all = [...this.#world.schedules.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    const times = all.flatMap(({ nextAt }) => nextAt ?? []);
    const wanted = all.filter((one) =>
      name !== undefined ? one.name === name : due === true ? (one.nextAt ?? now + 1) <= now : one.name > after,
    );
    const schedules = wanted.sort((a, b) => (due === true ? (a.nextAt ?? 0) - (b.nextAt ?? 0) : 0)).slice(0, limit);
    return { schedules, now, ...(times.length === 0 ? {} : { earliest: Math.min(...times) }) };
  }

  async storedOutputBytes(
    tasks: readonly { job: JobId; index: TaskIndex; attempt: Attempt }[],
  ): Promise<readonly number[]> {
    return tasks.map(({ job: id, index, attempt }) => {
      const known = this.#world.jobs.get(id);
      const ended = [...(known?.results.values() ?? []), ...(known?.earlier ?? [])];
      const over =
        known?.over.has(`${index}.${attempt}`) || ended.some((end) => end.index === index && end.attempt === attempt);
      return over ? 0 : this.#world.output.end(id, index, attempt);
    });
  }

  async keyValues(bucket: string): Promise<readonly KeyValue[]> {
    return this.#world.kept(bucket);
  }

  async bytesUsed(): Promise<number> {
    return JSON.stringify([...this.#world.jobs.values()]).length;
  }

  async close(): Promise<void> {
    this.#epoch = undefined;
  }
}

const holdsKey = ({ job: { key, keyForMs = 0, ended }, hasKey }: ModelJob, now: number): boolean =>
  key !== undefined && hasKey && (ended === undefined || ended.at + keyForMs > now);

/** What other brokers are told of a write. */
const withoutOutput = ({ output: _, ...result }: TaskResult): TaskResult => result;

const copied = (result: TaskResult): TaskResult =>
  result.value === undefined ? result : { ...result, value: new Uint8Array(result.value) };

function withValueUpTo(most: number, result: TaskResult): TaskResult {
  const { value, ...rest } = result;
  if (value === undefined) return rest;
  return { ...rest, valueBytes: value.length, ...(value.length <= most ? { value } : {}) };
}

function hintsOf(write: Write, answer: WriteResult | undefined): GroupHint[] {
  const limits: GroupHint[] = write.op === "release" || ("limited" in write && write.limited) ? [{ limits: true }] : [];
  return [...limits, ...jobHintsOf(write, answer)];
}

function jobHintsOf(write: Write, answer: WriteResult | undefined): GroupHint[] {
  if (write.op === "put") return [{ bucket: write.bucket }];
  if (answer?.op === "submit") return [{ job: answer.job.id }];
  if (write.op === "schedule" && answer?.op === "schedule") {
    const ofRuns = write.changes.flatMap(({ writes }, at) =>
      writes.flatMap((one, i) => hintsOf(one, answer.changes[at]?.results[i])),
    );
    return [{ bucket: "schedule" }, ...ofRuns];
  }
  if (write.op === "hold" || write.op === "cancel" || write.op === "rerun" || write.op === "remove")
    return [{ job: write.job }];
  const ended = answer !== undefined && "progress" in answer && answer.progress?.ended !== undefined;
  return ended && "job" in write && typeof write.job === "number" ? [{ job: write.job }] : [];
}
