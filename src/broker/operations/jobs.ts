/** Operations on jobs: submit, look, wait, hold, cancel, run again, remove. */

import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import { firstLease, newParcelId, onCancelHeard, onHoldHeard, signatureOfJob } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import { type Entries, type JobEnd, type JobSpec, newJob } from "../../model/job.js";
import { jobSpec, submission } from "../../model/job-input.js";
import * as s from "../../model/schema.js";
import type { WriteResult, Write } from "../../model/store.js";
import type { Core } from "../core.js";
import { endsOf, refuseFailedDependencies } from "../dependencies.js";
import { tasksAtPeers } from "../group/load.js";
import { waitForNext } from "../watchers.js";
import { END_STATES, jobView, viewOf } from "./job-view.js";
import { requireJob, job, nothing, requireOpenJob, ranges, tasksWithin } from "./shared-fields.js";
import { operation } from "./operation.js";

export const submit = operation({
  name: "submit",
  role: "client",
  method: "POST",
  path: "/jobs",
  summary: "Submit a job; durable when answered",
  input: submission,
  output: s.object({ job: s.count() }),
  bodyLimit: 64 * 1024 * 1024,
  perform: async (core, given) => {
    const { spec: request, entries } = jobSpec(given);
    if (request.after.length === 0) return { job: await submitAtOnce(core, request, entries) };
    const others = request.after.map((after) => after.job);
    refuseFailedDependencies(request.after, await endsOf(core, others));
    const { job: stored, taskRange: parcel } = await commitSubmit(core, submitWrite(core, request, entries));
    // One of the others may have ended while this one was stored; then it must not run as if that had succeeded.
    await core.jobs.withLock(stored.id, async () => {
      core.jobs.stored(stored, parcel, await endsOf(core, others));
    });
    return { job: stored.id };
  },
});

type Submit = Extract<Write, { op: "submit" }>;

/** Where brokers share the store: what workers here can use. */
function leaseOf({ state }: Core, job: JobSpec): number {
  if (!state.shared) return state.settings.maxLeaseTasks;
  return Math.min(job.count, firstLease(state, signatureOfJob(state, job), job));
}

function submitWrite(core: Core, job: JobSpec, entries: Entries | undefined): Submit {
  const parcel = newParcelId(core.state);
  const lease = leaseOf(core, job);
  const id = core.jobs.nextNumber();
  const more = { ...(id === undefined ? {} : { id }), ...(entries === undefined ? {} : { entries }) };
  return { op: "submit", job, lease, rangeId: parcel, ...more };
}

async function commitSubmit(core: Core, write: Submit): Promise<Extract<WriteResult, { op: "submit" }>> {
  const answer = await core.commit(write);
  if (answer.op === "submit") return answer;
  throw new LaboroError("LABORO_INTERNAL", "the store gave another answer");
}

/**
 * Where this broker numbers the jobs, dispatch need not wait for the store: what it decides stands behind the submission in the same
 * batch, so that the first tasks leave one commit earlier.
 */
async function submitAtOnce(core: Core, request: JobSpec, entries: Entries | undefined): Promise<JobId> {
  if (core.refusing !== undefined) throw core.refusing;
  const write = submitWrite(core, request, entries);
  const { id } = write;
  if (id === undefined) {
    const { job: stored, taskRange: parcel } = await commitSubmit(core, write);
    core.jobs.stored(stored, parcel, new Map());
    return stored.id;
  }
  const stored = commitSubmit(core, write);
  const granted = Math.min(write.lease, request.count);
  const job = newJob(request, id, entries !== undefined, granted, now());
  const history = { attempt: 0, failures: 0, crashes: 0, notBefore: 0 };
  core.jobs.stored(job, { id: write.rangeId, job: id, first: 0, last: granted - 1, ...history }, new Map());
  try {
    await stored;
  } catch (cause) {
    core.jobs.submitRefused(id);
    throw cause;
  }
  return id;
}

export const jobOperation = operation({
  name: "job",
  role: "read",
  method: "GET",
  path: "/jobs/{job}",
  summary: "One job",
  input: s.object({
    job,
    content: s.withDefault(s.described(s.flag(), "with the bytes of its recipe: stdin, script, body"), false),
  }),
  output: jobView,
  perform: async (core, given) => {
    const found = await requireJob(core, given.job);
    const elsewhere = found.ended === undefined ? await tasksAtPeers(core) : undefined;
    return viewOf(core, found, given.content, elsewhere?.get(found.id));
  },
});

export const wait = operation({
  name: "wait",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/wait",
  summary: "Wait until a job has ended",
  input: s.object({
    job,
    timeoutMs: s.optional(s.described(s.integer(0, 2 ** 31 - 1), "no longer than so many milliseconds")),
  }),
  output: s.object({ ended: s.flag(), state: s.optional(s.choice(...END_STATES)) }),
  perform: async (core, given, { signal: gone }) => {
    const over = new AbortController();
    const stop = AbortSignal.any([gone, over.signal]);
    // Watched first, then looked: an end in between is seen by one of the two.
    const nextEnd = waitForNext(
      (told: (end: JobEnd) => void) => core.jobs.endWatchers.watch(given.job, told),
      given.timeoutMs,
      stop,
    );
    try {
      const found = core.state.jobs.has(given.job) ? undefined : await requireJob(core, given.job);
      const end = found?.ended?.state ?? (await nextEnd);
      return end === undefined ? { ended: false } : { ended: true, state: end };
    } finally {
      over.abort();
    }
  },
});

const holdOrRelease = (held: boolean) =>
  operation({
    name: held ? "hold" : "release",
    role: "client",
    method: "POST",
    path: `/jobs/{job}/${held ? "hold" : "release"}`,
    summary: held ? "Hand out nothing more of a job" : "Let a held job go on",
    input: s.object({ job }),
    output: nothing,
    perform: async (core, given) => {
      await requireOpenJob(core, given.job);
      // On disk first: what cannot be written can still be refused, and has not happened.
      await core.commit({ op: "hold", job: given.job, held });
      core.decide((out) => onHoldHeard(core.state, out, given.job, held, now()));
      return {};
    },
  });

export const hold = holdOrRelease(true);
export const release = holdOrRelease(false);

export const cancel = operation({
  name: "cancel",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/cancel",
  summary: "Cancel a job or some of its tasks; they end cancelled, whatever arrives",
  input: s.object({ job, tasks: s.optional(ranges), reason: s.optional(s.text()) }),
  output: nothing,
  perform: async (core, given) => {
    const found = await requireOpenJob(core, given.job);
    const ranges = tasksWithin(found, given.tasks);
    const reason = given.reason === undefined ? {} : { reason: given.reason };
    await core.commit({ op: "cancel", job: given.job, ranges, ...reason });
    core.decide((out) => onCancelHeard(core.state, out, given.job, ranges));
    return {};
  },
});
