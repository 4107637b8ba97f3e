/** What to ask for and what to cancel, by the state of the allocators and the work that waits. Pure. */
import { shortDuration } from "../../base/format.js";
import { type Allocation, type Allocator, type AllocatorState, isLive } from "../../model/allocation.js";
import { type AllocationRules, addAllocation, addLine } from "./decide.js";
import { type Demand, offerOf, takeWork } from "./demand.js";

const isWaiting = ({ state }: Allocation): boolean => state === "asking" || state === "queued";

/** The clock may have been set back since: nothing waits longer than the longest wait. */
const waitOf = ({ notBefore = 0 }: AllocatorState, rules: AllocationRules, now: number): number =>
  Math.min(notBefore - now, rules.pausedMs);

/** Why no more allocations may be requested now, independent of the demand; undefined if one may. */
export function whyNoMore({ spec, state }: Allocator, rules: AllocationRules, now: number): string | undefined {
  const { paused, problem, failures, allocations, removing } = state;
  const wait = waitOf(state, rules, now);
  if (removing !== undefined) return "is being removed";
  if (paused?.by === "user") return `is paused${paused.reason === undefined ? "" : `: ${paused.reason}`}`;
  if (wait > 0)
    return `${paused === undefined ? "asks" : "is paused; it tries"} again in ${shortDuration(wait)}: ${problem?.text ?? ""}`;
  if (problem?.unseen) return `asks for nothing until ${spec.manager} answers: ${problem.text}`;
  const live = allocations.filter(isLive);
  const waiting = live.filter(isWaiting);
  const [first] = waiting;
  const queued = first?.reason === undefined ? "" : ` (${spec.manager}: ${first.reason})`;
  if (failures > 0 && live.some(({ useful, cancelling }) => !useful && !cancelling))
    return `has failed ${failures === 1 ? "once" : `${failures} times`} and tries one allocation${queued}`;
  if (waiting.length >= spec.backlog)
    return `has ${waiting.length === 1 ? "an allocation" : `${waiting.length} allocations`} in the queue${queued}`;
  const workers = live.length * spec.nodes;
  if (workers + spec.nodes > spec.maxWorkers) return `has ${workers} of at most ${spec.maxWorkers} workers`;
  return undefined;
}

/** How many allocations to request, by allocator. Marks those to cancel, and uses up `demand`. */
export function plan(
  allocators: readonly Allocator[],
  demand: readonly Demand[],
  rules: AllocationRules,
  now: number,
): Map<string, number> {
  for (const allocator of allocators) markUnneeded(allocator, demand, rules, now);
  const asks = new Map<string, number>();
  for (const allocator of allocators) {
    cancelQueued(allocator, rules, now);
    if (whyNoMore(allocator, rules, now) !== undefined || !demand.some(({ tasks }) => tasks > 0)) continue;
    const more = structuredClone(allocator);
    let count = 0;
    while (whyNoMore(more, rules, now) === undefined && takeWork(demand, offerOf(more), more.spec.nodes)) {
      addAllocation(more.state, now);
      count++;
    }
    if (count > 0) asks.set(allocator.name, count);
  }
  return asks;
}

/** Pending allocations take their work first, oldest first. */
function markUnneeded(allocator: Allocator, demand: readonly Demand[], rules: AllocationRules, now: number): void {
  const spec = offerOf(allocator);
  for (const one of allocator.state.allocations) {
    if (!isLive(one) || one.cancelling) continue;
    // The workers of its nodes join one after the other. Those that are overdue are no longer expected.
    const overdue = one.joined !== undefined && now - one.joined > rules.joinMs;
    const expected = overdue ? 0 : spec.nodes - (one.workers ?? 0);
    if (takeWork(demand, spec, expected)) delete one.unneeded;
    else if (isWaiting(one)) one.unneeded ??= now;
  }
}

function cancelQueued({ state }: Allocator, rules: AllocationRules, now: number): void {
  const { paused, removing } = state;
  const stops = paused !== undefined && (paused.by === "user" || waitOf(state, rules, now) > 0);
  for (const one of state.allocations) {
    if (one.cancelling || one.id === undefined || !isLive(one)) continue;
    const queued = one.state === "queued";
    // If the clock was set back, the time since is negative.
    const unneeded = one.unneeded !== undefined && Math.abs(now - one.unneeded) >= rules.unneededMs;
    const why =
      removing === "all" || (removing !== undefined && queued)
        ? "the allocator is removed"
        : queued && stops
          ? "the allocator is paused"
          : queued && unneeded && "nothing waits that it could do";
    if (!why) continue;
    one.cancelling = true;
    addLine(state, now, "cancelled", why, one.number);
  }
}

/** What an allocator does about waiting work, as text for people. */
export function statusText(allocator: Allocator, rules: AllocationRules, now: number): string {
  return whyNoMore(allocator, rules, now) ?? "is ready to ask for an allocation";
}
