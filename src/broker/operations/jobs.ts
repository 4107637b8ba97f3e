/** Operations on jobs: submit, read, wait, hold, release, cancel. */
import { now } from "../../base/clock.js";
import { badInput, LaboroError } from "../../base/errors.js";
import { firstLease, newTaskRangeId, onHold, onRemoteCancel, signatureOfJob } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import { END_STATES, type JobEnd, type JobSpec, newJob } from "../../model/job.js";
import { jobSpec, readSubmission, submission } from "../../model/job-input.js";
import { ALL_TASKS } from "../../model/ranges.js";
import * as s from "../../model/schema.js";
import type { Write, WriteResult } from "../../model/store.js";
import type { TransactionSubmission } from "../../model/store-group.js";
import type { Role } from "../access/tokens.js";
import type { Core } from "../core.js";
import { endsOf } from "../dependencies.js";
import { waitForNext } from "../events.js";
import { tasksAtPeers } from "../group/group-view.js";
import { jobView, viewOf } from "./job-view.js";
import type { SubmissionBytes } from "./large-submission.js";
import { authorize, job, nothing, operation, ranges, requireJob, requireOpenJob, tasksWithin } from "./operation.js";

export const submit = operation({
  name: "submit",
  role: "client",
  method: "POST",
  path: "/jobs",
  summary: "Submit a job; durable when answered",
  input: submission,
  output: s.object({
    job: s.count("the number of the job"),
    existed: s.optional(s.flag("nothing was made: this job has the key")),
    replaced: s.optional(s.count("the job that had the key, and is cancelled")),
  }),
  bodyLimit: 64 * 1024 * 1024,
  perform: (core, given) => submitJob(core, jobSpec(given)),
});

/** Submits a job whose bytes are not parsed yet. */
export async function submitLarge(core: Core, given: SubmissionBytes, role: Role): Promise<SubmitAnswer> {
  authorize(submit, role);
  const { readLargeSubmission } = await import("./large-submission.js");
  return submitJob(core, await readLargeSubmission(given));
}

type SubmittedEntries = Submit["entries"];

type SubmitAnswer = { readonly job: JobId; readonly existed?: boolean; readonly replaced?: JobId };

async function submitJob(
  core: Core,
  given: { readonly spec: JobSpec; readonly entries?: SubmittedEntries },
): Promise<SubmitAnswer> {
  const { entries } = given;
  const { named } = given.spec.limits;
  if (named !== undefined) await core.limits.requireKnown(named);
  const spec = core.delays.withTime(given.spec);
  if (spec.after.length === 0 && spec.key === undefined && spec.notBefore === undefined)
    return submitAtOnce(core, spec, entries);
  const others = spec.after.map((after) => after.job);
  if (others.length > 0) {
    // The first submission counts, even if a dependency has failed since.
    const before = await submittedBefore(core, spec);
    if (before !== undefined) return { job: before };
    // A dependency that has failed already cancels the job, like one that fails later.
    await endsOf(core, others);
    await checkEach(core, spec);
  }
  const number = core.jobNumbers && (await core.jobNumbers.next());
  const result = await commitSubmit(core, submitWrite(core, spec, entries, number));
  if (result.op === "duplicate") return existing(result, spec);
  await addSubmitted(core, result, others);
  const { job, replaced } = result;
  return { job: job.id, ...(replaced !== undefined && { replaced: replaced.job }) };
}

/** Task i comes after task i: both jobs have as many, now and later. */
async function checkEach(core: Core, { after, count, open }: JobSpec): Promise<void> {
  for (const { job: id, each } of after) {
    if (each !== true) continue;
    const other = await requireJob(core, id);
    if (open === true || other.open === true)
      throw badInput(`after: expected jobs that take no more tasks, for each of job ${id}, got one that is open`);
    if (other.count !== count)
      throw badInput(
        `after: expected ${other.count} tasks, as many as job ${id} has, for each of job ${id}, got ${count}`,
      );
  }
}

/** The answer if the job exists already. */
function existing({ job, byKey }: ResultOf<"duplicate">, { key, ifExists }: JobSpec): SubmitAnswer {
  if (byKey !== true) return { job };
  if (ifExists !== "refuse") return { job, existed: true };
  throw new LaboroError("LABORO_KEY_IN_USE", `job ${job} has the key ${key}`);
}

/** A delayed job stays only in the store until its start time. */
async function addSubmitted(
  core: Core,
  { job, taskRange, replaced }: ResultOf<"submit">,
  after: readonly JobId[],
): Promise<void> {
  if (job.delayed === true) core.delays.added(job);
  // Another job may have ended while this one was stored. Its failure must still cancel this one.
  else await core.jobs.withLock(job.id, async () => core.jobs.stored(job, taskRange, await endsOf(core, after)));
  if (replaced !== undefined) core.decide((out) => onRemoteCancel(core.state, out, replaced.job, [ALL_TASKS]));
}

type ResultOf<Op extends WriteResult["op"]> = Extract<WriteResult, { op: Op }>;

/** The database has assigned its number. It exists even if jobs that it depends on are gone. */
export async function submitFromTransaction(core: Core, given: TransactionSubmission): Promise<void> {
  const { id, task, inputs, options } = given;
  if ((await core.store.job(id)) !== undefined) return;
  const recipe = { kind: "call", service: task };
  const idempotencyKey = `transaction-${id}`;
  const { spec: read, entries } = readSubmission({ ...options, recipe, entries: inputs, idempotencyKey });
  const spec = core.delays.withTime(read);
  const others = spec.after.map((after) => after.job);
  await endsOf(core, others);
  const result = await commitSubmit(core, { ...submitWrite(core, spec, entries), id });
  if (result.op === "duplicate") existing(result, { ...spec, ifExists: "refuse" });
  // After a lost connection, two brokers may have tried. Only the one that created the job continues.
  if (result.op === "duplicate" || (await core.store.job(id))?.acceptedBy !== core.processId) return;
  await addSubmitted(core, result, others);
}

type Submit = Extract<Write, { op: "submit" }>;

/** In a group, only as many tasks as the workers of this broker can use. */
function leaseOf({ state }: Core, job: JobSpec): number {
  if (!state.shared) return job.notBefore === undefined ? state.settings.maxLeaseTasks : 0;
  return Math.min(job.count, firstLease(state, signatureOfJob(state, job), job));
}

export function submitWrite(core: Core, job: JobSpec, entries: SubmittedEntries, id = core.jobs.nextNumber()): Submit {
  const rangeId = newTaskRangeId(core.state);
  const lease = leaseOf(core, job);
  const more = { ...(id === undefined ? {} : { id }), ...(entries === undefined ? {} : { entries }) };
  return { op: "submit", job: { ...job, acceptedBy: core.processId }, lease, rangeId, ...more };
}

async function submittedBefore(core: Core, { idempotencyKey }: JobSpec): Promise<JobId | undefined> {
  if (idempotencyKey === undefined) return undefined;
  return (await core.store.jobs({ limit: 1, filter: { idempotencyKey } })).jobs[0]?.id;
}

async function commitSubmit(core: Core, write: Submit): Promise<ResultOf<"submit" | "duplicate">> {
  const result = await core.commit(write);
  if (result.op === "submit" || result.op === "duplicate") return result;
  throw new LaboroError("LABORO_INTERNAL", "the store gave another result");
}

/**
 * With its number known, dispatch need not wait until the job is stored: its decisions follow the submission in the
 * same batch, so the first tasks are sent one commit earlier.
 */
async function submitAtOnce(core: Core, spec: JobSpec, entries: SubmittedEntries): Promise<SubmitAnswer> {
  if (core.refusing !== undefined) throw core.refusing;
  const number = core.jobNumbers && (await core.jobNumbers.next());
  const write = submitWrite(core, spec, entries, number);
  const { id } = write;
  if (id === undefined) {
    const result = await commitSubmit(core, write);
    if (result.op === "duplicate") return existing(result, spec);
    core.jobs.stored(result.job, result.taskRange, NO_ENDS);
    return { job: result.job.id };
  }
  const stored = commitSubmit(core, write);
  const granted = Math.min(write.lease, spec.count);
  const job = newJob(write.job, id, entries !== undefined, granted, now());
  const first = { id: write.rangeId, job: id, first: 0, last: granted - 1, ...NO_HISTORY };
  // A poll of the jobs in the store must not consider it removed.
  if (core.jobNumbers !== undefined) void core.jobs.withLock(id, () => stored).catch(() => {});
  core.jobs.stored(job, granted > 0 || core.jobNumbers === undefined ? first : undefined, NO_ENDS);
  try {
    const result = await stored;
    if (result.op === "submit") return { job: id };
    core.jobs.submitRefused(id);
    return existing(result, spec);
  } catch (cause) {
    core.jobs.submitRefused(id);
    throw cause;
  }
}

const NO_ENDS: ReadonlyMap<JobId, JobEnd> = new Map();
const NO_HISTORY = { attempt: 0, failures: 0, crashes: 0, notBefore: 0 };

export const jobOperation = operation({
  name: "job",
  role: "read",
  method: "GET",
  path: "/jobs/{job}",
  summary: "One job",
  input: s.object({
    job,
    content: s.withDefault(s.flag("with the bytes of its recipe: stdin, script, body"), false),
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
    timeoutMs: s.optional(s.integer(0, 2 ** 31 - 1, "wait at most this many milliseconds")),
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
  core.decide((out) => onHold(core.state, out, job, held, now()));
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
    // All tasks of an open job include those to come.
    const ranges = given.tasks === undefined ? [ALL_TASKS] : tasksWithin(found, given.tasks);
    const reason = given.reason === undefined ? {} : { reason: given.reason };
    await core.commit({ op: "cancel", job: given.job, ranges, ...reason });
    core.decide((out) => onRemoteCancel(core.state, out, given.job, ranges));
    return {};
  },
});
