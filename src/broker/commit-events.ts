/** The events that follow from a commit: what was decided has happened once it is on disk, and not before. */
import type { JobId } from "../model/ids.js";
import type { Counters, JobEnd } from "../model/job.js";
import type { TaskEnd } from "../model/outcome.js";
import { type Ranges, rangesOf } from "../model/ranges.js";
import type { Answer, Write } from "../model/store.js";
import type { EventBody } from "./events.js";

/** Stretches listed in one event; beyond that only the counters tell. */
const STRETCHES_LISTED = 256;

/** All ends of tasks of one job in one commit: one event, however many they are. */
interface Ends {
  readonly indices: Readonly<Record<TaskEnd, number[]>>;
  counters: Counters | undefined;
  ended: JobEnd | undefined;
  /** The counters have moved: progress is told of writes that only move tasks about, too. */
  moved: boolean;
}

export function eventsOf(writes: readonly Write[], answers: readonly Answer[]): EventBody[] {
  const events: EventBody[] = [];
  const ends = new Map<JobId, Ends>();
  answers.forEach((answer, i) => {
    const write = writes[i];
    if (write === undefined) return;
    const event = plainEvent(write, answer);
    if (event !== undefined) events.push(event);
    gatherEnds(ends, write, answer);
  });
  for (const [job, gathered] of ends) events.push(...endEvents(job, gathered));
  return events;
}

function plainEvent(write: Write, answer: Answer): EventBody | undefined {
  if (answer.op === "submit") {
    const { id, name, count } = answer.job;
    return { kind: "job-added", job: id, name, count };
  }
  if (write.op === "hold") return { kind: write.held ? "job-held" : "job-released", job: write.job };
  if (write.op === "cancel") {
    const tasks = write.ranges.slice(0, STRETCHES_LISTED);
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

function gatherEnds(ends: Map<JobId, Ends>, write: Write, answer: Answer): void {
  const job =
    answer.op === "release" ? answer.job : "job" in write && typeof write.job === "number" ? write.job : undefined;
  if (job === undefined || !("progress" in answer) || answer.progress === undefined) return;
  let gathered = ends.get(job);
  if (gathered === undefined) {
    gathered = {
      indices: { succeeded: [], failed: [], cancelled: [] },
      counters: undefined,
      ended: undefined,
      moved: false,
    };
    ends.set(job, gathered);
  }
  gathered.counters = answer.progress.counters;
  gathered.ended = answer.progress.ended ?? gathered.ended;
  gathered.moved ||= write.op !== "replace" || write.cancelled > 0;
  if (write.op !== "settle" || (answer.op === "settle" && answer.lost)) return;
  for (const { index, state } of write.results) gathered.indices[state].push(index);
}

function endEvents(job: JobId, { indices, counters, ended, moved }: Ends): EventBody[] {
  if (counters === undefined || !(moved || ended !== undefined)) return [];
  const events: EventBody[] = [];
  let left = STRETCHES_LISTED;
  let partly = false;
  const listed = (state: TaskEnd): Ranges => {
    const all = rangesOf(indices[state].sort((a, b) => a - b));
    const some = all.slice(0, left);
    left -= some.length;
    partly ||= some.length < all.length;
    return some;
  };
  const [failed, cancelled, succeeded] = [listed("failed"), listed("cancelled"), listed("succeeded")];
  events.push({ kind: "tasks-ended", job, succeeded, failed, cancelled, partly, counters });
  if (ended !== undefined) events.push({ kind: "job-ended", job, state: ended, counters });
  return events;
}
