/**
 * Without a reservation, a wide task would wait for ever while narrow ones take each free slot. So a signature whose
 * next task fits nowhere reserves one worker: the capable one with the most free slots. One reservation per signature;
 * a task wider than every worker reserves nothing.
 *
 * The worker keeps what the wide task needs, and no more. Work of equal or lower priority may pass if it, and all work
 * assigned since the reservation, leaves the wide task's need of the worker's total. So the wide task starts at the
 * latest when all earlier work has ended. Resources that it does not need are not kept.
 *
 * The reservation is made when it is the wide job's turn: no job of equal priority that could use the worker has had
 * fewer slots. Otherwise a job of wide tasks would keep the worker to itself. It ends when the task is assigned there,
 * when nothing of the signature waits (placed elsewhere, held, cancelled, ended), or when the worker leaves.
 */
import { neededOf } from "../model/recipe.js";
import { availableOf } from "./signature.js";
import { type JobState, nextJobOf, type Signature, type State, signaturesFor, type WorkerState } from "./state.js";

export function reserveWorker(state: State, job: JobState): void {
  const { signature } = job;
  if (!signature.wide || signature.reservation !== undefined || availableOf(signature).size > 0) return;
  const worker = mostFreeWorker(signature);
  if (worker === undefined || !itsTurn(state, job, worker)) return;
  signature.reservation = { signature, worker, used: {} };
  worker.reservedFor = signature.reservation;
}

/** The capable worker with the most free slots that is neither reserved for another signature nor on probation. */
function mostFreeWorker({ byFreeSlots }: Signature): WorkerState | undefined {
  const passed: WorkerState[] = [];
  let worker = byFreeSlots.peek();
  // At most one worker is reserved per signature, so few are skipped here.
  while (worker !== undefined && (worker.reservedFor !== undefined || worker.standing !== "good")) {
    passed.push(worker);
    byFreeSlots.remove(worker);
    worker = byFreeSlots.peek();
  }
  for (const one of passed) byFreeSlots.upsert(one);
  return worker;
}

function itsTurn(state: State, job: JobState, worker: WorkerState): boolean {
  for (const signature of signaturesFor(state, worker)) {
    const rival = nextJobOf(signature);
    if (rival === undefined || rival === job || signature.reservation !== undefined) continue;
    if (rival.job.priority === job.job.priority && rival.served < job.served && worker.capableOf.has(signature))
      return false;
  }
  return true;
}

/** Whether a worker may take a task of this job: it has time, delays no wider task, and is not on probation. */
export function mayUse(state: State, worker: WorkerState, job: JobState): boolean {
  if (worker.standing === "suspended" && worker.assigned > 0) return false;
  return hasTimeFor(worker, job, state.now) && mayPass(worker, job);
}

/** Whether a task of this job leaves what the wide task needs that the worker is reserved for. */
function mayPass({ reservedFor, profile }: WorkerState, { job, signature }: JobState): boolean {
  if (reservedFor === undefined || reservedFor.signature === signature) return true;
  const { signature: wide, used } = reservedFor;
  const next = wide.jobs.peek();
  if (next === undefined || job.priority > next.job.priority) return true;
  // It offers fewer slots than the wide task needs, and may never offer more again.
  if (wide.requirement.needs.slots > profile.total.slots - profile.reserveRequests) return true;
  for (const name in wide.requirement.needs) {
    const most = profile.total[name] ?? 0;
    const kept = neededOf(wide.requirement.needs[name] ?? 0, most);
    const need = neededOf(job.requirement.needs[name] ?? 0, most);
    if (kept === 0 || need === 0) continue;
    const total = most - (name === "slots" ? profile.reserveRequests : 0);
    // The small addition allows for rounding errors of sums.
    if ((used[name] ?? 0) + need + kept > total + 1e-9) return false;
  }
  return true;
}

/** A worker that will end takes no task whose time request, or else time limit, exceeds its remaining time. */
export function hasTimeFor({ profile }: WorkerState, { signature }: JobState, now: number): boolean {
  return profile.leavesAt === undefined || now + (signature.timeNeededMs ?? 0) <= profile.leavesAt;
}

/** Ends the reservation; the next `placeWork` considers the worker again. */
export function unreserve(state: State, signature: Signature): void {
  if (signature.reservation === undefined) return;
  delete signature.reservation.worker.reservedFor;
  delete signature.reservation;
  state.needsPlacement = true;
}
