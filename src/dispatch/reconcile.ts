/** What a worker that joins says it holds, put right with what it is known to have. */
import type { Attempt, JobId } from "../model/ids.js";
import { type Range, rangesOf, difference } from "../model/ranges.js";
import type { Decisions, AttemptRange } from "./decisions.js";
import { loseClaim } from "./results.js";
import { type Claim, claimsOf, claimsWithin, GONE, STARTED, type State, UNSTARTED, type WorkerState } from "./state.js";

export interface ReportedTasks extends Range {
  readonly job: JobId;
  readonly attempt: Attempt;
  readonly state: "stock" | "running" | "finished";
}

export interface Reconciled {
  /** Running or finished tasks that the worker goes on with. */
  readonly keep: readonly { readonly job: JobId; readonly index: number; readonly attempt: Attempt }[];
  /** Tasks that are no longer its own. */
  readonly drop: readonly AttemptRange[];
}

/** What it lists and does not have is to be dropped; what it has and does not list goes back to the line. */
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
  for (const { job, first, last, attempt, state: what } of reported) {
    const known: number[] = [];
    for (const claim of claimsWithin(worker, job, { first, last })) {
      if (claim.attempt !== attempt) continue;
      const listed = has.get(claim) ?? new Set<number>();
      has.set(claim, listed);
      for (let index = Math.max(first, claim.first); index <= Math.min(last, claim.last); index++) {
        if (claim.tasks[index - claim.first] === GONE) continue;
        known.push(index);
        listed.add(index);
        claim.tasks[index - claim.first] = what === "stock" ? UNSTARTED : STARTED;
        if (what !== "stock") keep.push({ job, index, attempt });
      }
    }
    for (const range of difference({ first, last }, rangesOf(known))) drop.push({ job, attempt, ...range });
  }
  for (const claim of claimsOf(worker)) {
    const listed = has.get(claim);
    if (listed?.size === claim.open) continue;
    // In the same life it never arrived; in a new one, what had been started died with the old one.
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
