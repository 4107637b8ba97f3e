/** What another broker has done to a job, made known here: to dispatch, to those who wait for its end, to those who follow events. */

import { now } from "../../base/clock.js";
import { onCancelHeard, onHoldHeard, onMore, onProgress } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import { type Counters, finishedCount, type Job, type JobEnd } from "../../model/job.js";
import { countOf, type Ranges, difference } from "../../model/ranges.js";
import type { Core } from "../core.js";
import { endsOf } from "../dependencies.js";
import type { EventBody } from "../events.js";

/** Ranges listed in one event. */
const LISTED = 256;

/** A job that another broker took in becomes known to dispatch. */
export async function addRemoteJob(core: Core, job: Job): Promise<void> {
  await core.jobs.withLock(job.id, async () => {
    const others: JobId[] = [];
    // One that is there no more ended as was wanted: otherwise this job would have been cancelled.
    for (const { job: other } of job.after) if ((await core.store.job(other)) !== undefined) others.push(other);
    const ends = others.length === 0 ? new Map<JobId, JobEnd>() : await endsOf(core, others);
    if (core.state.jobs.has(job.id)) return;
    core.jobs.stored(job, undefined, ends);
    core.decide((out) => onMore(core.state, out, job.id));
    core.publish([{ kind: "job-added", job: job.id, name: job.name, count: job.count }]);
  });
}

/** What the store says of a job now; undefined where it has none. Its counters are heeded where `counted`. */
export function applyJob(core: Core, id: JobId, job: Job | undefined, countersValid: boolean): void {
  const known = core.state.jobs.get(id);
  if (job === undefined) {
    // It ended and was removed before anybody looked. Who should not run after it was cancelled by the broker that saw its end.
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
    core.decide((out) => onHoldHeard(core.state, out, id, job.held, now()));
    core.publish([{ kind: job.held ? "job-held" : "job-released", job: id }]);
  }
  applyCancels(core, job, known.cancels);
  if (countersValid) applyProgress(core, id, job.counters);
}

function applyCancels(core: Core, job: Job, before: Ranges): void {
  const known = core.state.jobs.get(job.id);
  const again = before.flatMap((range) => difference(range, job.cancels));
  if (known !== undefined && again.length > 0) {
    // Run again at another broker: there they wait, or are to be leased.
    known.cancels = job.cancels;
    core.decide((out) => onMore(core.state, out, job.id));
    core.publish([{ kind: "job-rerun", job: job.id, count: countOf(again) }]);
  }
  const added = job.cancels.flatMap((range) => difference(range, before));
  if (added.length === 0) return;
  core.decide((out) => onCancelHeard(core.state, out, job.id, added));
  const reason = job.reason === undefined ? {} : { reason: job.reason };
  core.publish([{ kind: "job-cancelled", job: job.id, tasks: added.slice(0, LISTED), ...reason }]);
}

/** How far an open job is by what the store says. */
export function applyProgress(core: Core, id: JobId, counters: Counters): void {
  const before = core.jobs.countersOf(id);
  if (before === undefined || sameCounters(before, counters)) return;
  core.publish([tasksEnded(id, counters)]);
  core.decide((out) => onProgress(core.state, out, id, { counters }, now()));
  // Fewer than before: some run again, and may be there to be leased.
  if (finishedCount(counters) < finishedCount(before)) core.decide((out) => onMore(core.state, out, id));
}

function endJob(core: Core, id: JobId, counters: Counters, ended: JobEnd): void {
  core.publish([tasksEnded(id, counters), { kind: "job-ended", job: id, state: ended, counters }]);
  core.decide((out) => onProgress(core.state, out, id, { counters, ended }, now()));
}

const sameCounters = (a: Counters, b: Counters): boolean =>
  a.succeeded === b.succeeded && a.failed === b.failed && a.cancelled === b.cancelled;

/** Which ones is not known here. */
const tasksEnded = (job: JobId, counters: Counters): EventBody => ({
  kind: "tasks-ended",
  job,
  succeeded: [],
  failed: [],
  cancelled: [],
  truncated: true,
  counters,
});
