/** What waiting work needs, and which workers of allocators could do it. Pure. */
import { shortDuration } from "../../base/format.js";
import type { State } from "../../dispatch/index.js";
import { isOpen } from "../../dispatch/job-queue.js";
import { spareRuns } from "../../dispatch/limits.js";
import type { JobState } from "../../dispatch/state.js";
import { type Allocator, type AllocatorSpec, lifetimeOf } from "../../model/allocation.js";
import type { JobId } from "../../model/ids.js";
import { type Counters, finishedCount } from "../../model/job.js";
import { ALL, neededOf, type Requirement } from "../../model/recipe.js";

/** Tasks with the same needs that no worker has, and that could run now. */
export interface Demand {
  /** One of their jobs. */
  readonly job: JobId;
  readonly requirement: Requirement;
  readonly timeMs: number;
  tasks: number;
}

/** `tasksElsewhere`: tasks that workers of other brokers have, by pool. */
export function demandOf(
  state: State,
  countersOf: (job: JobId) => Counters | undefined,
  tasksElsewhere: ReadonlyMap<string, number> = new Map(),
): Demand[] {
  const found = new Map<unknown, Demand>();
  for (const open of state.jobs.values()) {
    const tasks = waitingTasks(state, open, countersOf(open.id));
    if (tasks <= 0) continue;
    const { requirement, timeNeededMs: timeMs = 0 } = open.signature;
    const before = found.get(open.signature);
    if (before === undefined) found.set(open.signature, { job: open.id, requirement, timeMs, tasks });
    else before.tasks += tasks;
  }
  for (const [{ limits = [] }, demand] of found as Map<JobState["signature"], Demand>)
    for (const { rule, running } of limits)
      if (rule?.running !== undefined) demand.tasks = Math.min(demand.tasks, Math.max(0, rule.running - running));
  for (const [pool, count] of tasksElsewhere) {
    let rest = count;
    for (const demand of found.values()) {
      if (demand.requirement.pool !== pool) continue;
      const less = Math.min(rest, demand.tasks);
      demand.tasks -= less;
      rest -= less;
    }
  }
  return [...found.values()].filter(({ tasks }) => tasks > 0);
}

export function waitingTasks(
  { shared }: Pick<State, "shared">,
  open: JobState,
  counters: Counters = open.job.counters,
): number {
  const { job, assigned, inBackoff, leasing, mayLease, ready, signature } = open;
  if (!isOpen(open) || signature.full !== undefined) return 0;
  let tasks = job.count - finishedCount(counters) - assigned;
  for (const { first, last } of inBackoff) tasks -= last - first + 1;
  // Between the end of a task and its commit, only this shows that it no longer waits. In a group, tasks also wait at
  // other brokers.
  const most = shared || mayLease || leasing ? Number.POSITIVE_INFINITY : ready;
  return Math.min(tasks, most, spareRuns(open));
}

/** The spec, with the resources that its workers have detected on their machines. */
export const offerOf = ({ spec, state: { detected } }: Allocator): AllocatorSpec =>
  detected === undefined ? spec : { ...spec, resources: { ...detected, ...spec.resources } };

type Needs = Pick<Demand, "requirement" | "timeMs">;

/** Why the workers of an allocator cannot do such tasks; undefined if they can. */
export function whyUnfit(spec: AllocatorSpec, { requirement, timeMs }: Needs): string | undefined {
  const { pool, tags, service, needs } = requirement;
  if (pool !== spec.pool) return `its workers are in pool ${spec.pool}, not ${pool}`;
  if (service !== undefined) return `its workers do not offer service ${service}`;
  const tag = tags.find((one) => !spec.tags.includes(one));
  if (tag !== undefined) return `its workers do not have the tag ${tag}`;
  for (const [name, need] of Object.entries(needs)) {
    const have = name === "slots" ? spec.slots : spec.resources[name];
    const needed = need === ALL ? `all ${name} of a worker` : `${need} ${name}`;
    if (have === undefined)
      return `the task needs ${needed}, and its workers are not known to have any; --resource ${name}=N declares it`;
    if (have <= 0 || neededOf(need, have) > have) return `its workers have ${have} ${name}, and the task needs ${need}`;
  }
  const lifetime = lifetimeOf(spec);
  if (timeMs > lifetime)
    return `its workers live for ${shortDuration(lifetime)}, and the task needs ${shortDuration(timeMs)}`;
  return undefined;
}

/** How many such tasks one of its workers runs at once. */
function tasksAtOnce({ slots, resources }: AllocatorSpec, { needs }: Requirement): number {
  let count = Number.POSITIVE_INFINITY;
  for (const [name, need] of Object.entries(needs)) {
    if (need <= 0) continue;
    const have = name === "slots" ? slots : (resources[name] ?? 0);
    count = Math.min(count, Math.floor(have / neededOf(need, have) + 1e-9));
  }
  return Number.isFinite(count) ? count : slots;
}

/** Takes the work of this many workers from the demand. Returns whether there was any. */
export function takeWork(demand: readonly Demand[], spec: AllocatorSpec, workers: number): boolean {
  let free = workers;
  for (const one of demand) {
    if (free <= 0) break;
    if (one.tasks <= 0 || whyUnfit(spec, one) !== undefined) continue;
    const atOnce = tasksAtOnce(spec, one.requirement);
    const taken = Math.min(one.tasks, Math.ceil(free * atOnce));
    one.tasks -= taken;
    free -= taken / atOnce;
  }
  return free < workers;
}
