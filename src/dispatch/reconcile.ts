/** Compares the tasks that a joining worker lists with the tasks assigned to it. */
import type { Attempt, JobId } from "../model/ids.js";
import { difference, type Range, rangesOf } from "../model/ranges.js";
import { setTaskState } from "./claims.js";
import type { AttemptRange, Decisions } from "./decisions.js";
import { loseClaim } from "./results.js";
import { type Claim, claimsOf, claimsWithin, GONE, STARTED, type State, UNSTARTED, type WorkerState } from "./state.js";

export interface ReportedTasks extends Range {
  readonly job: JobId;
  readonly attempt: Attempt;
  readonly state: "prefetched" | "running" | "finished";
  /** The broker process that accepted the job, if the worker knows it. A job of another store may have the same number. */
  readonly acceptedBy?: string | undefined;
}

export interface Reconciled {
  /** Running or finished tasks that the worker goes on with. */
  readonly keep: readonly { readonly job: JobId; readonly index: number; readonly attempt: Attempt }[];
  /** Tasks that are no longer its own. */
  readonly drop: readonly AttemptRange[];
}

/** Tasks that it lists but that are not assigned to it are to be dropped. Assigned tasks that it does not list return to the queue. */
export function reconcile(
  state: State,
  out: Decisions,
  worker: WorkerState,
  reported: readonly ReportedTasks[],
  sameSession: boolean,
  now: number,
): Reconciled {
  const keep: { job: JobId; index: number; attempt: Attempt }[] = [];
  const drop: AttemptRange[] = [];
  const has = new Map<Claim, Set<number>>();
  for (const { job, first, last, attempt, acceptedBy, state: what } of reported) {
    const known: number[] = [];
    for (const claim of claimsWithin(worker, job, { first, last })) {
      if (claim.attempt !== attempt) continue;
      if (acceptedBy !== undefined && acceptedBy !== claim.job.job.acceptedBy) continue;
      const listed = has.get(claim) ?? new Set<number>();
      has.set(claim, listed);
      for (let index = Math.max(first, claim.first); index <= Math.min(last, claim.last); index++) {
        if (claim.tasks[index - claim.first] === GONE) continue;
        known.push(index);
        listed.add(index);
        setTaskState(claim, index, what === "prefetched" ? UNSTARTED : STARTED);
        if (what !== "prefetched") keep.push({ job, index, attempt });
      }
    }
    for (const range of difference({ first, last }, rangesOf(known))) drop.push({ job, attempt, ...range });
  }
  for (const claim of claimsOf(worker)) {
    const listed = has.get(claim);
    if (listed?.size === claim.open) continue;
    // In the same session they never arrived. In a new session, started tasks were lost with the old process.
    loseClaim(
      state,
      out,
      claim,
      () => !sameSession,
      now,
      (index) => listed?.has(index) !== true,
    );
  }
  return { keep, drop };
}
