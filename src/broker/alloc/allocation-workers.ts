/** The connected workers of allocations, at every broker of the group. */
import { allocationOfTags } from "../../model/allocation.js";
import type { Core } from "../core.js";
import type { WorkerView } from "../operations/workers.js";

interface AllocationWorkers {
  readonly names: string[];
  /** Tasks that these workers have ended. */
  ended: number;
  /** The slots and resources of one worker. */
  readonly total: Readonly<Record<string, number>>;
}

export async function workersElsewhere({ peers }: Core): Promise<readonly WorkerView[]> {
  const answers = (await peers?.askAll<{ workers: WorkerView[] }>("peer.workers", {})) ?? [];
  return answers.flatMap(({ answer }) => answer.workers.filter(({ connected }) => connected));
}

/** The result is by allocation number. */
export async function workersOf(core: Core, allocator: string): Promise<Map<number, AllocationWorkers>> {
  const found = new Map<number, AllocationWorkers>();
  const add = ({ tags, name, total }: Pick<WorkerView, "tags" | "name" | "total">, results: number): void => {
    const allocation = allocationOfTags(tags);
    if (allocation?.name !== allocator) return;
    const before = found.get(allocation.number) ?? { names: [], ended: 0, total };
    before.names.push(name);
    before.ended += results;
    found.set(allocation.number, before);
  };
  const { workers, standings } = core.state;
  for (const { profile, connected } of workers.values())
    if (connected) add(profile, standings.get(profile.name)?.results ?? 0);
  for (const one of await workersElsewhere(core)) add(one, one.stats.results);
  return found;
}
