/** Why a task is not running, as text for people. Uses only the state of dispatch. */
import { shortDuration } from "../base/format.js";
import type { JobId, TaskIndex } from "../model/ids.js";
import type { Job } from "../model/job.js";
import { contains } from "../model/ranges.js";
import { ALL, type TaskKind } from "../model/recipe.js";
import { tasksText } from "../model/task-numbers.js";
import { type LimitState, spareRuns } from "./limits.js";
import { hasTimeFor, mayUse } from "./reservation.js";
import { availableOf, canRun, meets, mostOf, whyNotTaking } from "./signature.js";
import { claimOf, type JobState, type Signature, STARTED, type State, type WorkerState } from "./state.js";

export function explain(state: State, id: JobId, index: TaskIndex, now: number): string {
  const job = state.jobs.get(id);
  if (job === undefined) return "its job has ended or does not exist";
  if (index < 0 || index >= job.job.count) return `job ${id} has ${tasksText(job.job)}`;
  for (const { worker } of job.claims) {
    const claim = claimOf(worker, id, index);
    if (claim === undefined) continue;
    const { name } = worker.profile;
    if (!worker.connected) return `worker ${name} has it and is away; it is kept for it during the grace period`;
    if (contains(job.cancels, index)) return `it was cancelled; worker ${name} has not confirmed its end yet`;
    return claim.tasks[index - claim.first] === STARTED ? `it runs on ${name}` : `it is prefetched by ${name}`;
  }
  if (contains(job.cancels, index)) return "it was cancelled";
  return whyWaiting(state, job, index, now);
}

/** For a job with a later start time. */
export const whyDelayed = ({ notBefore = 0 }: Pick<Job, "notBefore">, leftMs: number): string =>
  `its job is delayed until ${new Date(notBefore).toISOString()}, in ${shortDuration(leftMs)}`;

const whyPaused = (state: State, pool: string): string => {
  const reason = state.pausedPools.get(pool);
  return `its pool ${pool} is paused${reason === undefined ? "" : `: ${reason}`}`;
};

/** The tasks of other jobs that it waits for. */
function whyPending({ job: { after }, each }: JobState, index: TaskIndex): string | undefined {
  const others = after.filter(({ job }) => each.has(job) && !contains(each.get(job) ?? [], index));
  const texts = others.map(({ job }) => `the task in place ${index + 1} of job ${job}`);
  return texts.length === 0 ? undefined : `it waits for ${texts.join(" and ")}`;
}

function whyWaiting(state: State, job: JobState, index: TaskIndex, now: number): string {
  const { maxRunning } = job.job.limits;
  if (job.held) return "its job is held";
  if (job.paused) return whyPaused(state, job.job.requirement.pool);
  if (job.blockedBy.size > 0) return `its job waits for job ${[...job.blockedBy].join(", ")}`;
  if (job.delayed) return whyDelayed(job.job, (job.job.notBefore ?? now) - now);
  const pending = whyPending(job, index);
  if (pending !== undefined) return pending;
  for (const waiting of job.inBackoff) {
    if (index < waiting.first || index > waiting.last) continue;
    const { failures, notBefore } = waiting;
    return `it failed ${failures === 1 ? "once" : `${failures} times`}; the next try is in ${shortDuration(notBefore - now)}`;
  }
  if (state.halted !== undefined) return `the broker assigns nothing: ${state.halted}`;
  if (spareRuns(job) <= 0 || job.leaseRefused)
    return `its job may run ${maxRunning === 1 ? "1 task" : `${maxRunning} tasks`} at once, and does`;
  const { signature } = job;
  const limit = signature.full ?? signature.leaseRefusedBy;
  if (limit !== undefined) return whyLimited(limit, state.shared, now);
  if (signature.capable.size === 0) return whyNobody([...state.workers.values()], signature);
  if (signature.reservation !== undefined) {
    return `it needs more than any worker has free; ${signature.reservation.worker.profile.name} is reserved for it`;
  }
  const [available] = availableOf(signature);
  if (available !== undefined && !hasTimeFor(available, job, now))
    return `${available.profile.name} has free slots, but ends before the time ${job.job.limits.timeRequestMs === undefined ? "limit" : "request"} of this task`;
  if (available?.standing === "suspended" && available.assigned > 0)
    return `${available.profile.name} has free slots, but has failed too often and gets one task at a time`;
  if (available !== undefined && !mayUse(state, available, job))
    return `${available.profile.name} has free slots, but is reserved for a wider task`;
  if (available !== undefined) return "it is about to be assigned";
  const { size } = signature.capable;
  const able = size === 1 ? "1 worker can take it, and is busy" : `${size} workers can take it, all are busy`;
  const ready = job.ready === 1 ? "1 task of its job is ready" : `${job.ready} tasks of its job are ready`;
  return [able, ready, ...remarks(signature.capable)].join("; ");
}

function whyLimited({ name, rule, running, timer }: LimitState, shared: boolean, now: number): string {
  const starts = rule?.rate && `${rule.rate.starts} starts in ${shortDuration(rule.rate.intervalMs)}`;
  const rules = [
    ...(rule?.running === undefined ? [] : [`at most ${rule.running} running`]),
    ...(starts ? [starts] : []),
  ];
  const next =
    timer === undefined
      ? `${running} ${shared ? "of them run at this broker" : "run here"}`
      : `the next start is in ${Math.max(1, Math.ceil((timer.at - now) / 1000))} s`;
  return `it waits for limit ${name} (${rules.join(", ")}); ${next}`;
}

/** The remarks of the first few workers that could take it. */
function remarks(workers: Iterable<WorkerState>): string[] {
  const found: string[] = [];
  for (const { profile } of workers) {
    if (profile.remark !== undefined) found.push(`${profile.name} ${profile.remark}`);
    if (found.length === MAX_REMARKS) break;
  }
  return found;
}

const MAX_REMARKS = 3;

function whyNotTaken(could: readonly WorkerState[], signature: Signature): string {
  const reasons = could
    .slice(0, MAX_REMARKS)
    .map((worker) => `${worker.profile.name} could take it, but ${whyNotTaking(worker, signature)}`);
  const others = could.length - reasons.length;
  return [
    ...reasons,
    ...(others > 0 ? [`${others} more could take it, but ${others === 1 ? "does" : "do"} not`] : []),
  ].join("; ");
}

const WHAT: Readonly<Record<TaskKind, string>> = {
  command: "a command like this one",
  numbered: "a command",
  script: "a script",
  call: "a call of a service",
  files: "a task with files: only laboro's own workers do",
};

/** Why capable workers do not take it. Without such workers: the first requirement that no worker meets. */
function whyNobody(workers: readonly WorkerState[], signature: Signature): string {
  const { requirement, kind } = signature;
  const could = workers.filter((worker) => meets(worker, signature));
  if (could.length > 0) return whyNotTaken(could, signature);
  const there = workers.filter((worker) => worker.connected);
  if (there.length === 0) return "no worker is connected";
  const pool = there.filter((worker) => worker.profile.pool === requirement.pool);
  if (pool.length === 0) return `no worker is in pool ${requirement.pool}`;
  const { service } = requirement;
  const serving = pool.filter((worker) => service === undefined || worker.profile.services.includes(service));
  if (serving.length === 0) return `no worker offers service ${service}`;
  const able = serving.filter((worker) => kind === undefined || canRun(worker.profile, kind));
  if (able.length === 0 && kind !== undefined) return `no worker here can run ${WHAT[kind]}`;
  const tagged = able.filter((worker) => requirement.tags.every((tag) => worker.profile.tags.includes(tag)));
  if (tagged.length === 0) return `no worker has the tags ${requirement.tags.join(", ")}`;
  for (const [name, need] of Object.entries(requirement.needs)) {
    const most = Math.max(...tagged.map((worker) => mostOf(worker, name, false)));
    if (need === ALL && most <= 0) return `it needs all ${name} of a worker, and no worker has any`;
    if (need !== ALL && need > most)
      return [`it needs ${need} ${name}, the most that a worker has is ${most}`, ...remarks(tagged)].join("; ");
  }
  return "no single worker has all that it needs";
}
