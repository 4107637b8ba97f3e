/** What the tests of a store are written with. */
import { expect } from "vitest";
import { type JobId, type TaskIndex, TaskRangeId, WorkerId } from "../../../src/model/ids.js";
import { DEFAULT_LIMITS, type Entries, type Job, type JobSpec } from "../../../src/model/job.js";
import type { TaskEnd, TaskResult } from "../../../src/model/outcome.js";
import { DEFAULT_POOL, ONE_SLOT } from "../../../src/model/recipe.js";
import type { OutputChunk, RecoveredState, Store, TaskRange, Write, WriteResult } from "../../../src/model/store.js";
import { TRUE } from "../../support/recipes.js";

export interface StoreHarness {
  /** A handle that is not opened yet. Where the engine is not shared, the former one has to be closed first. */
  handle(): Store;
  /** Whatever the engine can say about its own state; called after every test but those that break it. */
  check?(): void;
  dispose(): Promise<void>;
}

export type MakeStore = () => Promise<StoreHarness>;

export const ANN = WorkerId("ann");
export const BOB = WorkerId("bob");
export const NOW = 1_700_000_000_000;

let taskRanges = 0;
/** Never the same twice, as brokers make them from their epoch. */
export const newRangeId = (): TaskRangeId => TaskRangeId(++taskRanges);

/** The first of so many. */
export const newRangeIds = (count: number): TaskRangeId => {
  const first = newRangeId();
  taskRanges += count - 1;
  return first;
};

export const request = (over: Partial<JobSpec> = {}): JobSpec => ({
  name: "sweep",
  recipe: TRUE,
  requirement: { pool: DEFAULT_POOL, tags: [], needs: ONE_SLOT },
  count: 10,
  priority: 0,
  limits: DEFAULT_LIMITS,
  after: [],
  held: false,
  ...over,
});

export const result = (index: TaskIndex, over: Partial<TaskResult> = {}): TaskResult => ({
  index,
  attempt: 1,
  state: "succeeded",
  worker: ANN,
  code: 0,
  started: NOW,
  ended: NOW + 5,
  outputBytes: 0,
  ...over,
});

export const results = (first: number, last: number, over: Partial<TaskResult> = {}): TaskResult[] =>
  Array.from({ length: last - first + 1 }, (_, at) => result(first + at, over));

export const chunk = (job: Job, index: TaskIndex, offset: number, text: string, over: Partial<OutputChunk> = {}) => ({
  job: job.id,
  index,
  attempt: 1,
  stream: "stdout" as const,
  offset,
  bytes: new TextEncoder().encode(text),
  ...over,
});

type Op<Name extends Write["op"]> = Extract<Write, { op: Name }>;
type AnswerTo<Name extends Write["op"]> = Extract<WriteResult, { op: Name }>;

/** One broker at work. */
export class Broker {
  readonly store: Store;
  readonly held: RecoveredState;

  private constructor(store: Store, held: RecoveredState) {
    this.store = store;
    this.held = held;
  }

  static async at(store: Store): Promise<Broker> {
    return new Broker(store, await store.open(NOW));
  }

  /** A batch of one. */
  async write<Name extends Write["op"]>(write: Op<Name>, now = NOW): Promise<AnswerTo<Name>> {
    const [answer] = await this.store.commit([write], now);
    if (answer?.op !== write.op) throw new Error(`a ${write.op} was answered by ${answer?.op}`);
    return answer as AnswerTo<Name>;
  }

  async submit(
    over: Partial<JobSpec> = {},
    lease = 0,
    entries?: Entries,
  ): Promise<{ job: Job; taskRange?: TaskRange }> {
    const rangeId = newRangeId();
    const spec = request(entries === undefined ? over : { count: entries.length, ...over });
    const { job, taskRange } = await this.write({
      op: "submit",
      job: spec,
      lease,
      rangeId,
      ...(entries === undefined ? {} : { entries }),
    });
    return { job, ...(taskRange === undefined ? {} : { taskRange: taskRange }) };
  }

  /** A job all of whose tasks this broker has. */
  async submitAll(count: number, over: Partial<JobSpec> = {}): Promise<{ job: Job; taskRange: TaskRange }> {
    const { job, taskRange } = await this.submit({ ...over, count }, count);
    if (taskRange === undefined) throw new Error("no task range was granted");
    return { job, taskRange };
  }

  async lease(job: JobId, most: number, now = NOW): Promise<AnswerTo<"lease">> {
    return this.write({ op: "lease", job, max: most, rangeId: newRangeId() }, now);
  }

  /** Hands tasks to a worker; expects them to be there. */
  async claim(from: TaskRange, first: number, last: number, worker = ANN, attempt = 1): Promise<TaskRange> {
    const id = newRangeId();
    const answer = await this.write({ op: "claim", from: from.id, rangeId: id, first, last, attempt, worker });
    expect(answer).toMatchObject({ op: "claim", lost: false });
    return { ...from, id, first, last, attempt, worker };
  }

  async settle(
    taskRange: TaskRange,
    done: readonly TaskResult[],
    empty = true,
    now = NOW,
  ): Promise<AnswerTo<"settle">> {
    return this.write({ op: "settle", job: taskRange.job, rangeId: taskRange.id, results: done, empty }, now);
  }

  async replace(taskRange: TaskRange, pieces: readonly TaskRange[], over: Partial<Op<"replace">> = {}) {
    return this.write({
      op: "replace",
      job: taskRange.job,
      rangeId: taskRange.id,
      replacements: pieces,
      earlierAttempts: [],
      cancelled: 0,
      ...over,
    });
  }

  async rerun(job: JobId, ends: readonly TaskEnd[], over: Partial<Op<"rerun">> = {}): Promise<AnswerTo<"rerun">> {
    const names = over.idCount ?? 100;
    return this.write({ op: "rerun", job, ends, rangeId: newRangeIds(names), idCount: names, ...over });
  }

  async job(job: { readonly id: JobId }): Promise<Job> {
    const found = await this.store.job(job.id);
    if (found === undefined) throw new Error(`job ${job.id} is not there`);
    return found;
  }
}

/** These tasks, waiting again. */
export const waiting = (taskRange: TaskRange, over: Partial<TaskRange> = {}): TaskRange => {
  const { worker: _, ...rest } = taskRange;
  return { ...rest, id: newRangeId(), ...over };
};

export const none = { succeeded: 0, failed: 0, cancelled: 0 };
