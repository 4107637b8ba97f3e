/** The events of a commit: they are published once it is durable, not before. */
import type { JobId } from "../model/ids.js";
import type { Counters, JobEnd } from "../model/job.js";
import type { TaskEnd } from "../model/outcome.js";
import { ALL_TASKS, type Ranges, rangesOf } from "../model/ranges.js";
import type { Write, WriteResult } from "../model/store.js";
import type { EventBody } from "./events.js";

/** Ranges listed in one event; beyond that only the counters are complete. */
const MAX_LISTED_RANGES = 256;

/** The tasks of one job that ended in one commit: one event, however many they are. */
interface JobProgress {
  readonly indices: Readonly<Record<TaskEnd, number[]>>;
  counters: Counters | undefined;
  ended: JobEnd | undefined;
  /** False for writes that only move tasks, which report progress too. */
  countersChanged: boolean;
}

export function eventsOf(writes: readonly Write[], results: readonly WriteResult[]): EventBody[] {
  const events: EventBody[] = [];
  const ends = new Map<JobId, JobProgress>();
  results.forEach((result, i) => {
    const write = writes[i];
    if (write === undefined) return;
    const event = plainEvent(write, result);
    if (event !== undefined) events.push(event);
    const replaced = result.op === "submit" ? result.replaced : undefined;
    if (replaced === undefined) {
      collectEnds(ends, write, result);
      return;
    }
    // As if it had been cancelled by a write of its own.
    const cancel = { op: "cancel", job: replaced.job, ranges: [ALL_TASKS] } as const;
    events.push({
      kind: "job-cancelled",
      job: replaced.job,
      tasks: [],
      reason: `replaced by job ${result.op === "submit" ? result.job.id : ""}`,
    });
    collectEnds(ends, cancel, { op: "cancel", ...(replaced.progress && { progress: replaced.progress }) });
  });
  for (const [job, progress] of ends) events.push(...endEvents(job, progress));
  return events;
}

function plainEvent(write: Write, result: WriteResult): EventBody | undefined {
  if (result.op === "submit") {
    const { id, name, count } = result.job;
    return { kind: "job-added", job: id, name, count };
  }
  if (write.op === "hold") return { kind: write.held ? "job-held" : "job-released", job: write.job };
  if (write.op === "cancel") {
    const tasks = write.ranges.slice(0, MAX_LISTED_RANGES);
    return {
      kind: "job-cancelled",
      job: write.job,
      tasks,
      ...(write.reason === undefined ? {} : { reason: write.reason }),
    };
  }
  if (write.op === "remove" && result.op === "remove" && result.removed) return { kind: "job-removed", job: write.job };
  if (write.op === "rerun" && result.op === "rerun" && result.count > 0) {
    return { kind: "job-rerun", job: write.job, count: result.count };
  }
  return undefined;
}

function collectEnds(ends: Map<JobId, JobProgress>, write: Write, result: WriteResult): void {
  const job =
    result.op === "release" ? result.job : "job" in write && typeof write.job === "number" ? write.job : undefined;
  if (job === undefined || !("progress" in result) || result.progress === undefined) return;
  let progress = ends.get(job);
  if (progress === undefined) {
    progress = {
      indices: { succeeded: [], failed: [], cancelled: [] },
      counters: undefined,
      ended: undefined,
      countersChanged: false,
    };
    ends.set(job, progress);
  }
  progress.counters = result.progress.counters;
  progress.ended = result.progress.ended ?? progress.ended;
  progress.countersChanged ||= write.op !== "replace" || write.cancelled > 0;
  if (write.op !== "settle" || (result.op === "settle" && result.lost)) return;
  for (const { index, state } of write.results) progress.indices[state].push(index);
}

function endEvents(job: JobId, { indices, counters, ended, countersChanged }: JobProgress): EventBody[] {
  if (counters === undefined || !(countersChanged || ended !== undefined)) return [];
  const events: EventBody[] = [];
  let left = MAX_LISTED_RANGES;
  let truncated = false;
  const listed = (state: TaskEnd): Ranges => {
    const all = rangesOf(indices[state].sort((a, b) => a - b));
    const some = all.slice(0, left);
    left -= some.length;
    truncated ||= some.length < all.length;
    return some;
  };
  const [failed, cancelled, succeeded] = [listed("failed"), listed("cancelled"), listed("succeeded")];
  events.push({ kind: "tasks-ended", job, succeeded, failed, cancelled, truncated, counters });
  if (ended !== undefined) events.push({ kind: "job-ended", job, state: ended, counters });
  return events;
}
