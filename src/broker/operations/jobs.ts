/** Operations on jobs: submit, read, wait, hold, release, cancel. */

import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import { firstLease, newTaskRangeId, onRemoteCancel, onRemoteHold, signatureOfJob } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import { type JobEnd, type JobSpec, newJob } from "../../model/job.js";
import { jobSpec, submission } from "../../model/job-input.js";
import * as s from "../../model/schema.js";
import type { Write, WriteResult } from "../../model/store.js";
import type { Role } from "../access/roles.js";
import type { Core } from "../core.js";
import { endsOf, refuseFailedDependencies } from "../dependencies.js";
import { tasksAtPeers } from "../group/load.js";
import { waitForNext } from "../watchers.js";
import { END_STATES, jobView, viewOf } from "./job-view.js";
import type { SubmissionBytes } from "./large-submission.js";
import { authorize, operation } from "./operation.js";
import { job, nothing, ranges, requireJob, requireOpenJob, tasksWithin } from "./shared-fields.js";

export const submit = operation({
  name: "submit",
  role: "client",
  method: "POST",
  path: "/jobs",
  summary: "Submit a job; durable when answered",
  input: submission,
  output: s.object({ job: s.count() }),
  bodyLimit: 64 * 1024 * 1024,
  perform: (core, given) => submitJob(core, jobSpec(given)),
});

/** One that is still in its bytes. */
export async function submitLarge(core: Core, given: SubmissionBytes, role: Role): Promise<{ job: JobId }> {
  authorize(submit, role);
  const { readLargeSubmission } = await import("./large-submission.js");
  return submitJob(core, await readLargeSubmission(given));
}

type SubmittedEntries = Submit["entries"];

async function submitJob(
  core: Core,
  { spec, entries }: { readonly spec: JobSpec; readonly entries?: SubmittedEntries },
): Promise<{ job: JobId }> {
  if (spec.after.length === 0) return { job: await submitAtOnce(core, spec, entries) };
  const others = spec.after.map((after) => after.job);
  // What it depends on may have failed since it was submitted for the first time.
  const before = await submittedBefore(core, spec);
  if (before !== undefined) return { job: before };
  refuseFailedDependencies(spec.after, await endsOf(core, others));
  const result = await commitSubmit(core, submitWrite(core, spec, entries));
  if (result.op === "duplicate") return { job: result.job };
  const { job: stored, taskRange } = result;
  // Another job may have ended while this one was stored; then this one must not run as if it had succeeded.
  await core.jobs.withLock(stored.id, async () => {
    core.jobs.stored(stored, taskRange, await endsOf(core, others));
  });
  return { job: stored.id };
}

type Submit = Extract<Write, { op: "submit" }>;

/** In a group, only as many tasks as the workers of this broker can use. */
function leaseOf({ state }: Core, job: JobSpec): number {
  if (!state.shared) return state.settings.maxLeaseTasks;
  return Math.min(job.count, firstLease(state, signatureOfJob(state, job), job));
}

function submitWrite(core: Core, job: JobSpec, entries: SubmittedEntries): Submit {
  const rangeId = newTaskRangeId(core.state);
  const lease = leaseOf(core, job);
  const id = core.jobs.nextNumber();
  const more = { ...(id === undefined ? {} : { id }), ...(entries === undefined ? {} : { entries }) };
  return { op: "submit", job: { ...job, acceptedBy: core.processId }, lease, rangeId, ...more };
}

async function submittedBefore(core: Core, { idempotencyKey }: JobSpec): Promise<JobId | undefined> {
  if (idempotencyKey === undefined) return undefined;
  return (await core.store.jobs({ limit: 1, filter: { idempotencyKey } })).jobs[0]?.id;
}

async function commitSubmit(core: Core, write: Submit): Promise<Extract<WriteResult, { op: "submit" | "duplicate" }>> {
  const result = await core.commit(write);
  if (result.op === "submit" || result.op === "duplicate") return result;
  throw new LaboroError("LABORO_INTERNAL", "the store gave another result");
}

/**
 * If this broker numbers the jobs, dispatch need not wait for the store: its decisions follow the submission in the same batch, so the first
 * tasks are sent one commit earlier.
 */
async function submitAtOnce(core: Core, spec: JobSpec, entries: SubmittedEntries): Promise<JobId> {
  if (core.refusing !== undefined) throw core.refusing;
  const write = submitWrite(core, spec, entries);
  const { id } = write;
  if (id === undefined) {
    const result = await commitSubmit(core, write);
    if (result.op === "duplicate") return result.job;
    core.jobs.stored(result.job, result.taskRange, new Map());
    return result.job.id;
  }
  const stored = commitSubmit(core, write);
  const granted = Math.min(write.lease, spec.count);
  const job = newJob(write.job, id, entries !== undefined, granted, now());
  const history = { attempt: 0, failures: 0, crashes: 0, notBefore: 0 };
  core.jobs.stored(job, { id: write.rangeId, job: id, first: 0, last: granted - 1, ...history }, new Map());
  try {
    const result = await stored;
    if (result.op === "submit") return id;
    core.jobs.submitRefused(id);
    return result.job;
  } catch (cause) {
    core.jobs.submitRefused(id);
    throw cause;
  }
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
  perform: async (core, given, { role }) => {
    const found = await requireJob(core, given.job);
    const atPeers = found.ended === undefined ? await tasksAtPeers(core) : undefined;
    return viewOf(core, found, { role, content: given.content, atPeers: atPeers?.get(found.id) });
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
    timeoutMs: s.optional(s.described(s.integer(0, 2 ** 31 - 1), "wait at most this many milliseconds")),
  }),
  output: s.object({ ended: s.flag(), state: s.optional(s.choice(...END_STATES)) }),
  perform: async (core, given, { signal }) => {
    const done = new AbortController();
    const stop = AbortSignal.any([signal, done.signal]);
    // Watch first, then read: an end in between is seen by one of the two.
    const nextEnd = waitForNext(
      (listener: (end: JobEnd) => void) => core.jobs.endWatchers.watch(given.job, listener),
      given.timeoutMs,
      stop,
    );
    try {
      const found = core.state.jobs.has(given.job) ? undefined : await requireJob(core, given.job);
      const end = found?.ended?.state ?? (await nextEnd);
      return end === undefined ? { ended: false } : { ended: true, state: end };
    } finally {
      done.abort();
    }
  },
});

const holdOrRelease = (held: boolean) =>
  operation({
    name: held ? "hold" : "release",
    role: "client",
    method: "POST",
    path: `/jobs/{job}/${held ? "hold" : "release"}`,
    summary: held ? "Assign no more tasks of a job" : "Release a held job",
    input: s.object({ job }),
    output: nothing,
    perform: async (core, given) => {
      await requireOpenJob(core, given.job);
      await setHeld(core, given.job, held);
      return {};
    },
  });

export async function setHeld(core: Core, job: JobId, held: boolean): Promise<void> {
  // Durable first: a write that fails is refused, and nothing has changed.
  await core.commit({ op: "hold", job, held });
  core.decide((out) => onRemoteHold(core.state, out, job, held, now()));
}

export const hold = holdOrRelease(true);
export const release = holdOrRelease(false);

export const cancel = operation({
  name: "cancel",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/cancel",
  summary: "Cancel a job or some of its tasks; they end as cancelled, even if a result still arrives",
  input: s.object({ job, tasks: s.optional(ranges), reason: s.optional(s.text()) }),
  output: nothing,
  perform: async (core, given) => {
    const found = await requireOpenJob(core, given.job);
    const ranges = tasksWithin(found, given.tasks);
    const reason = given.reason === undefined ? {} : { reason: given.reason };
    await core.commit({ op: "cancel", job: given.job, ranges, ...reason });
    core.decide((out) => onRemoteCancel(core.state, out, given.job, ranges));
    return {};
  },
});
