import { describe, expect, it, vi } from "vitest";
import {
  createState,
  DEFAULT_SETTINGS,
  Decisions,
  onCommitted,
  onDone,
  onJobAdded,
  onWorkerJoined,
  type WorkerProfile,
} from "../../src/dispatch/index.js";
import { IndexedHeap } from "../../src/dispatch/queues.js";
import { JobId, SessionId, TaskRangeId, WorkerId } from "../../src/model/ids.js";
import { DEFAULT_LIMITS, type Job } from "../../src/model/job.js";
import { TRUE } from "../support/recipes.js";

/** Looks into a table: reads of a worker's profile, which every step that concerns a worker makes. */
class Looks {
  count = 0;

  profile(name: string): WorkerProfile {
    const total = { slots: 1 };
    const looks = this;
    return {
      id: WorkerId(name),
      session: SessionId("1"),
      name,
      protocol: "laboro",
      pool: "default",
      tags: [],
      services: [],
      total,
      get reserveRequests() {
        looks.count++;
        return 0;
      },
      resumable: true,
      canPrefetch: false,
    };
  }
}

function jobOf(id: number, count: number): Job {
  return {
    id: JobId(id),
    name: "job",
    recipe: TRUE,
    requirement: { pool: "default", tags: [], needs: { slots: 1 } },
    count,
    priority: 0,
    limits: DEFAULT_LIMITS,
    after: [],
    held: false,
    created: 0,
    hasEntries: false,
    cursor: count,
    cancels: [],
    counters: { succeeded: 0, failed: 0, cancelled: 0 },
  };
}

const taskRangeOf = (job: Job) => ({
  id: TaskRangeId(job.id),
  job: job.id,
  first: 0,
  last: job.count - 1,
  attempt: 0,
  failures: 0,
  crashes: 0,
  notBefore: 0,
});

/** Looks at workers per task, for 100 tasks that are done and followed by others, among so many workers and jobs. */
function looksPerTask(workers: number, jobs: number): number {
  const looks = new Looks();
  const state = createState(DEFAULT_SETTINGS, 1, false);
  const first = new Decisions();
  for (let i = 0; i < workers; i++) onWorkerJoined(state, first, looks.profile(`w${i}`), [], 0);
  for (let id = 1; id <= jobs; id++) {
    const job = jobOf(id, 10_000);
    onJobAdded(state, first, job, taskRangeOf(job), new Set(), 0);
  }
  const running = first.sends.flatMap((send) => (send.kind === "tasks" ? [send] : [])).slice(0, 100);
  while (running.length < 100) running.push(...running);
  looks.count = 0;
  for (const { worker, job, first: index, attempt } of running.slice(0, 100)) {
    const out = new Decisions();
    onDone(state, out, worker, [{ job, index, attempt, code: 0, started: 0, ended: 1, outputBytes: 0 }], 1);
  }
  return looks.count / 100;
}

describe("handing out", () => {
  it("looks at no more workers among 2,000 than among 100", () => {
    const few = looksPerTask(100, 1);
    expect(few).toBeGreaterThan(0);
    expect(looksPerTask(2_000, 1)).toBeLessThanOrEqual(few * 1.1);
  });

  it("looks at no more with 500 jobs of one kind in the line than with 2", () => {
    expect(looksPerTask(100, 500)).toBeLessThanOrEqual(looksPerTask(100, 2) * 1.1);
  });
});

/** Looks for the next job of a signature, for each result of a worker, while jobs of so many signatures wait for busy workers. */
function looksAtJobsPerResult(signatures: number): number {
  const state = createState(DEFAULT_SETTINGS, 1, false);
  const first = new Decisions();
  const tags = Array.from({ length: signatures }, (_, i) => `t${i}`);
  for (let i = 0; i < 10; i++) onWorkerJoined(state, first, { ...new Looks().profile(`w${i}`), tags }, [], 0);
  for (let id = 1; id <= signatures; id++) {
    const job: Job = {
      ...jobOf(id, 100),
      requirement: { pool: "default", tags: [`t${id - 1}`], needs: { slots: 1 } },
    };
    onJobAdded(state, first, job, taskRangeOf(job), new Set(), 0);
  }
  const running = first.sends.flatMap((send) => (send.kind === "tasks" ? [send] : []));
  const peek = vi.spyOn(IndexedHeap.prototype, "peek");
  for (const { worker, job, first: index, attempt } of running) {
    const done = [{ job, index, attempt, code: 0, started: 0, ended: 2_000, outputBytes: 0 }];
    onDone(state, new Decisions(), worker, done, 2_000);
    onCommitted(state, new Decisions(), [], [], 2_000);
  }
  const looks = peek.mock.calls.length;
  peek.mockRestore();
  return looks / running.length;
}

describe("many signatures", () => {
  it("cost a look each for a result, not a look at each other", () => {
    const few = looksAtJobsPerResult(20);
    expect(few).toBeGreaterThan(0);
    expect(looksAtJobsPerResult(200)).toBeLessThanOrEqual(few * 11);
  });
});

describe("a heap of 100,000", () => {
  it("moves an item with a number of comparisons that grows with the logarithm", () => {
    let comparisons = 0;
    const heap = new IndexedHeap<{ at: number }>((a, b) => {
      comparisons++;
      return a.at < b.at;
    });
    const items = Array.from({ length: 100_000 }, (_, i) => ({ at: (i * 7_919) % 100_003 }));
    for (const item of items) heap.upsert(item);
    comparisons = 0;
    for (let i = 0; i < 1_000; i++) {
      const top = heap.peek();
      if (top === undefined) break;
      top.at = 200_000 + i;
      heap.upsert(top);
    }
    expect(comparisons / 1_000).toBeLessThan(2 * Math.log2(100_000) + 4);
  });
});
