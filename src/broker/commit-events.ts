/** The events that follow from a commit: what was decided has happened once it is on disk, and not before. */
import type { JobId } from "../model/ids.js";
import type { Counters, JobEnd } from "../model/job.js";
import type { TaskEnd } from "../model/outcome.js";
import { type Ranges, rangesOf } from "../model/ranges.js";
import type { WriteResult, Write } from "../model/store.js";
import type { EventBody } from "./events.js";

/** Stretches listed in one event; beyond that only the counters tell. */
const MAX_LISTED_RANGES = 256;

/** All ends of tasks of one job in one commit: one event, however many they are. */
interface JobProgress {
  readonly indices: Readonly<Record<TaskEnd, number[]>>;
  counters: Counters | undefined;
  ended: JobEnd | undefined;
  /** The counters have moved: progress is told of writes that only move tasks about, too. */
  countersChanged: boolean;
}

export function eventsOf(writes: readonly Write[], answers: readonly WriteResult[]): EventBody[] {
  const events: EventBody[] = [];
  const ends = new Map<JobId, JobProgress>();
  answers.forEach((answer, i) => {
    const write = writes[i];
    if (write === undefined) return;
    const event = plainEvent(write, answer);
    if (event !== undefined) events.push(event);
    collectEnds(ends, write, answer);
  });
  for (const [job, gathered] of ends) events.push(...endEvents(job, gathered));
  return events;
}

function plainEvent(write: Write, answer: WriteResult): EventBody | undefined {
  if (answer.op === "submit") {
    const { id, name, count } = answer.job;
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
  if (write.op === "remove" && answer.op === "remove" && answer.removed) return { kind: "job-removed", job: write.job };
  if (write.op === "rerun" && answer.op === "rerun" && answer.count > 0) {
    return { kind: "job-rerun", job: write.job, count: answer.count };
  }
  return undefined;
}

function collectEnds(ends: Map<JobId, JobProgress>, write: Write, answer: WriteResult): void {
  const job =
    answer.op === "release" ? answer.job : "job" in write && typeof write.job === "number" ? write.job : undefined;
  if (job === undefined || !("progress" in answer) || answer.progress === undefined) return;
  let gathered = ends.get(job);
  if (gathered === undefined) {
    gathered = {
      indices: { succeeded: [], failed: [], cancelled: [] },
      counters: undefined,
      ended: undefined,
      countersChanged: false,
    };
    ends.set(job, gathered);
  }
  gathered.counters = answer.progress.counters;
  gathered.ended = answer.progress.ended ?? gathered.ended;
  gathered.countersChanged ||= write.op !== "replace" || write.cancelled > 0;
  if (write.op !== "settle" || (answer.op === "settle" && answer.lost)) return;
  for (const { index, state } of write.results) gathered.indices[state].push(index);
}

function endEvents(job: JobId, { indices, counters, ended, countersChanged: moved }: JobProgress): EventBody[] {
  if (counters === undefined || !(moved || ended !== undefined)) return [];
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
