/**
 * Divides a batch into stages. Within a stage all writes of one kind are one statement, and the kinds are in the order
 * of `Stage`. A write joins the last stage if that does not change its meaning; otherwise it begins a new one. Most
 * batches of a busy broker are one stage: results of some claims, returned tasks, new claims.
 */
import type { JobId, TaskRangeId } from "../../model/ids.js";
import { type Counters, finishedCount, jobEnd } from "../../model/job.js";
import type { Progress, Write, WriteResult } from "../../model/store.js";
import type { Session } from "./connections.js";
import type { EntryCache } from "./known-rows.js";

/**
 * The progress of a job after each write of a stage. The database returns a job's counters after the whole stage; for
 * earlier writes, the additions of later ones are subtracted.
 */
export interface Totals extends Counters {
  readonly job: JobId;
  readonly count: number;
  readonly ended: boolean;
}

interface WriteCounts {
  readonly at: number;
  readonly job: JobId;
  readonly more: Counters;
}

export class StageProgress {
  readonly #writes: WriteCounts[] = [];

  /** The write at this place of the batch has added so much. */
  add(at: number, job: JobId, more: Partial<Counters>): void {
    this.#writes.push({ at, job, more: { succeeded: 0, failed: 0, cancelled: 0, ...more } });
  }

  /** Jobs whose counters changed. */
  get jobs(): ReadonlySet<JobId> {
    return new Set(this.#writes.map(({ job }) => job));
  }

  /** By the position of the write; absent if its job does not exist. */
  progress(totals: readonly Totals[]): Map<number, Progress> {
    const known = new Map(totals.map((one) => [one.job, one]));
    const counters = new Map<JobId, Counters>(known);
    const found = new Map<number, Progress>();
    for (const { at, job, more } of this.#writes.toSorted((a, b) => b.at - a.at)) {
      const total = known.get(job);
      const now = counters.get(job);
      if (total === undefined || now === undefined) continue;
      const { succeeded, failed, cancelled } = now;
      const there = { succeeded, failed, cancelled };
      const over = total.ended && finishedCount(there) >= total.count;
      found.set(at, over ? { counters: there, ended: jobEnd(there) } : { counters: there });
      counters.set(job, {
        succeeded: succeeded - more.succeeded,
        failed: failed - more.failed,
        cancelled: cancelled - more.cancelled,
      });
    }
    return found;
  }
}

export type WriteOf<Name extends Write["op"]> = Extract<Write, { op: Name }>;

/** A write with its place in the batch. */
export interface IndexedWrite<Name extends Write["op"]> {
  readonly at: number;
  readonly write: WriteOf<Name>;
}

/** Done one after the other, each alone in its stage; consecutive releases go together. */
export type SingleOp = Exclude<Write["op"], "output" | "submit" | "settle" | "replace" | "claim" | "lease">;

export interface Stage {
  /** Its submission may take its key from another job: its statements depend on each other, and it is alone. */
  readonly replacing: boolean;
  readonly submits: IndexedWrite<"submit">[];
  readonly settles: IndexedWrite<"settle">[];
  readonly replaces: IndexedWrite<"replace">[];
  readonly claims: IndexedWrite<"claim">[];
  readonly leases: IndexedWrite<"lease">[];
  readonly singles: IndexedWrite<SingleOp>[];
}

/** `separately`: every write in a stage of its own. */
export function stagesOf(writes: readonly Write[], separately: boolean): Stage[] {
  const stages: StageBuilder[] = [];
  writes.forEach((write, at) => {
    // Bytes go before all else (operations/output.ts).
    if (write.op === "output") return;
    const last = stages.at(-1);
    if (last !== undefined && !separately && last.canAdd(write)) last.add(at, write);
    else stages.push(new StageBuilder(at, write));
  });
  return stages;
}

class StageBuilder implements Stage {
  replacing = false;
  readonly submits: IndexedWrite<"submit">[] = [];
  readonly settles: IndexedWrite<"settle">[] = [];
  readonly replaces: IndexedWrite<"replace">[] = [];
  readonly claims: IndexedWrite<"claim">[] = [];
  readonly leases: IndexedWrite<"lease">[] = [];
  readonly singles: IndexedWrite<SingleOp>[] = [];
  /** Task ranges that replace others. */
  readonly #replacements = new Set<TaskRangeId>();
  readonly #replaced = new Set<TaskRangeId>();
  /** Task ranges that claims make, and those that they take from, with the task that follows the taken ones. */
  readonly #claimed = new Set<TaskRangeId>();
  readonly #takenFrom = new Map<TaskRangeId, number>();
  readonly #emptied = new Set<TaskRangeId>();
  readonly #leased = new Set<JobId>();
  /** Of submissions. */
  readonly #keys = new Set<string>();

  constructor(at: number, write: Exclude<Write, WriteOf<"output">>) {
    this.add(at, write);
  }

  canAdd(write: Exclude<Write, WriteOf<"output">>): boolean {
    if (this.replacing) return false;
    if (this.singles.length > 0)
      return write.op === "release" && this.singles.every((one) => one.write.op === "release");
    switch (write.op) {
      case "submit": {
        const { key, ifExists } = write.job;
        // The holder of a key may depend on every write before this one.
        return key === undefined || (ifExists !== "replace" && this.#onlySubmits && !this.#keys.has(key));
      }
      case "settle": {
        const { rangeId } = write;
        return (
          !this.#isNew(rangeId) &&
          !this.#replaced.has(rangeId) &&
          !this.#emptied.has(rangeId) &&
          !this.#takenFrom.has(rangeId)
        );
      }
      case "replace": {
        const names = [write.rangeId, ...write.replacements.map(({ id }) => id)];
        if (this.leases.length > 0) return false;
        return names.every((id) => !this.#isNew(id) && !this.#replaced.has(id) && !this.#takenFrom.has(id));
      }
      case "claim": {
        const { from, rangeId, first } = write;
        // `from` may be granted to this broker by an earlier lease of this stage.
        if (this.leases.length > 0 || this.#claimed.has(from) || this.#isNew(rangeId)) return false;
        // Only consecutive claims can be combined into one cut.
        return (this.#takenFrom.get(from) ?? first) === first;
      }
      case "lease":
        return !this.#leased.has(write.job);
      default:
        return false;
    }
  }

  add(at: number, write: Exclude<Write, WriteOf<"output">>): void {
    switch (write.op) {
      case "submit":
        this.submits.push({ at, write });
        if (write.job.key !== undefined) this.#keys.add(write.job.key);
        this.replacing = write.job.key !== undefined && write.job.ifExists === "replace";
        break;
      case "settle":
        this.settles.push({ at, write });
        if (write.empty) this.#emptied.add(write.rangeId);
        break;
      case "replace":
        this.replaces.push({ at, write });
        this.#replaced.add(write.rangeId);
        for (const { id } of write.replacements) this.#replacements.add(id);
        break;
      case "claim":
        this.claims.push({ at, write });
        this.#claimed.add(write.rangeId);
        this.#takenFrom.set(write.from, write.last + 1);
        break;
      case "lease":
        this.leases.push({ at, write });
        this.#leased.add(write.job);
        break;
      default:
        this.singles.push({ at, write });
    }
  }

  get #onlySubmits(): boolean {
    const others = [this.settles, this.replaces, this.claims, this.leases, this.singles];
    return others.every((list) => list.length === 0);
  }

  #isNew(rangeId: TaskRangeId): boolean {
    return this.#replacements.has(rangeId) || this.#claimed.has(rangeId);
  }
}

/** What the operations of one batch share. */
export interface BatchContext {
  readonly session: Session;
  readonly now: number;
  /** By the position of the write. */
  readonly writeResults: (WriteResult | undefined)[];
  /** The numbers of the workers that results name. */
  readonly workerNumbers: ReadonlyMap<string, number>;
  /** The job numbers given to submissions. */
  readonly jobNumbers: ReadonlyMap<WriteOf<"submit">, JobId>;
  readonly entries: EntryCache;
  /** How many results of removed jobs may still be deleted. */
  mayRemove: number;
}

/** Combined writes have another result than single ones: the batch is rolled back and made write by write. */
export class MustRunSeparately extends Error {}
