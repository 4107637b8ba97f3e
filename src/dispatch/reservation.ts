/**
 * A wide task would wait for ever while narrow ones take each slot as it frees. So a signature whose next task fits nowhere
 * keeps one worker back: of those that could ever hold it, the one with most free slots takes no work of equal or lower
 * priority until the task fits. One reservation a signature; a task wider than every worker reserves nothing.
 */
import type { JobState, State, WorkerState } from "./state.js";

export function reserveRoom(_state: State, job: JobState): void {
  const { signature } = job;
  if (!signature.wide || signature.fitting.size > 0) return;
  if (signature.reservation !== undefined) {
    signature.reservation.priority = job.job.priority;
    return;
  }
  const passed: WorkerState[] = [];
  for (let worker = signature.roomiest.peek(); worker !== undefined; worker = signature.roomiest.peek()) {
    if (worker.reservedFor === undefined) {
      signature.reservation = { worker, priority: job.job.priority };
      worker.reservedFor = signature;
      break;
    }
    // At most one worker a signature is kept back, so few are passed over here.
    passed.push(worker);
    signature.roomiest.remove(worker);
  }
  for (const worker of passed) signature.roomiest.place(worker);
}

/** Whether a worker that may be kept for a wide task can take one of this job. */
export function mayUse(worker: WorkerState, job: JobState): boolean {
  const reserved = worker.reservedFor;
  if (reserved === undefined || reserved === job.signature || reserved.reservation === undefined) return true;
  return job.job.priority > reserved.reservation.priority;
}
