/** Applies changes that another broker made to a job: to dispatch, to callers that wait for its end, and to the events. */

import { now } from "../../base/clock.js";
import { onMayLease, onProgress, onRemoteCancel, onRemoteHold } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import { type Counters, finishedCount, type Job, type JobEnd } from "../../model/job.js";
import { countOf, difference, type Ranges } from "../../model/ranges.js";
import type { Core } from "../core.js";
import { endsOf } from "../dependencies.js";
import type { EventBody } from "../events.js";

/** Ranges listed in one event. */
const LISTED = 256;

/** Adds a job that was submitted to another broker to dispatch. */
export async function addRemoteJob(core: Core, job: Job): Promise<void> {
  await core.jobs.withLock(job.id, async () => {
    const others: JobId[] = [];
    // A dependency that was removed has succeeded: otherwise this job would have been cancelled.
    for (const { job: other } of job.after) if ((await core.store.job(other)) !== undefined) others.push(other);
    const ends = others.length === 0 ? new Map<JobId, JobEnd>() : await endsOf(core, others);
    if (core.state.jobs.has(job.id)) return;
    core.jobs.stored(job, undefined, ends);
    core.decide((out) => onMayLease(core.state, out, job.id));
    core.publish([{ kind: "job-added", job: job.id, name: job.name, count: job.count }]);
  });
}

/** Applies a job as the store has it; undefined if it was removed. Its counters are used only if `countersValid`. */
export function applyJob(core: Core, id: JobId, job: Job | undefined, countersValid: boolean): void {
  const known = core.state.jobs.get(id);
  if (job === undefined) {
    // It ended and was removed before it was read here. The broker that saw its end has cancelled the jobs that must not run after it.
    if (known !== undefined) endJob(core, id, core.jobs.countersOf(id) ?? known.job.counters, "succeeded");
    core.publish([{ kind: "job-removed", job: id }]);
    return;
  }
  if (job.ended !== undefined) {
    if (known !== undefined) endJob(core, id, job.counters, job.ended.state);
    else core.jobs.endWatchers.notify(id, job.ended.state);
    return;
  }
  if (known === undefined) return;
  if (known.held !== job.held) {
    core.decide((out) => onRemoteHold(core.state, out, id, job.held, now()));
    core.publish([{ kind: job.held ? "job-held" : "job-released", job: id }]);
  }
  applyCancels(core, job, known.cancels);
  if (countersValid) applyProgress(core, id, job.counters);
}

function applyCancels(core: Core, job: Job, before: Ranges): void {
  const known = core.state.jobs.get(job.id);
  const again = before.flatMap((range) => difference(range, job.cancels));
  if (known !== undefined && again.length > 0) {
    // Rerun at another broker: they wait there, or can be leased.
    known.cancels = job.cancels;
    core.decide((out) => onMayLease(core.state, out, job.id));
    core.publish([{ kind: "job-rerun", job: job.id, count: countOf(again) }]);
  }
  const added = job.cancels.flatMap((range) => difference(range, before));
  if (added.length === 0) return;
  core.decide((out) => onRemoteCancel(core.state, out, job.id, added));
  const reason = job.reason === undefined ? {} : { reason: job.reason };
  core.publish([{ kind: "job-cancelled", job: job.id, tasks: added.slice(0, LISTED), ...reason }]);
}

/** Applies the stored counters of an open job. */
export function applyProgress(core: Core, id: JobId, counters: Counters): void {
  const before = core.jobs.countersOf(id);
  if (before === undefined || sameCounters(before, counters)) return;
  core.publish([tasksEnded(id, counters)]);
  core.decide((out) => onProgress(core.state, out, id, { counters }, now()));
  // Fewer than before: some were rerun, and may be leased here.
  if (finishedCount(counters) < finishedCount(before)) core.decide((out) => onMayLease(core.state, out, id));
}

function endJob(core: Core, id: JobId, counters: Counters, ended: JobEnd): void {
  core.publish([tasksEnded(id, counters), { kind: "job-ended", job: id, state: ended, counters }]);
  core.decide((out) => onProgress(core.state, out, id, { counters, ended }, now()));
}

const sameCounters = (a: Counters, b: Counters): boolean =>
  a.succeeded === b.succeeded && a.failed === b.failed && a.cancelled === b.cancelled;

/** This broker does not know which tasks. */
const tasksEnded = (job: JobId, counters: Counters): EventBody => ({
  kind: "tasks-ended",
  job,
  succeeded: [],
  failed: [],
  cancelled: [],
  truncated: true,
  counters,
});
