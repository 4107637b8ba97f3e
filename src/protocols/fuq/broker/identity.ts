/** Who a worker is, as far as it can be known. */
import type { Core } from "../../../broker/core.js";
import { JobId, SessionId, WorkerId } from "../../../model/ids.js";
import type { Hello, TaskPair } from "../messages.js";
import { indexOfPair } from "./fuq-task.js";

export interface Identity {
  readonly id: WorkerId;
  readonly session: SessionId;
  readonly name: string;
  readonly tags: readonly string[];
  /** It comes back under the same name, and its tasks are kept for it meanwhile. */
  readonly resumable: boolean;
  /** It was asked to stop while it was disconnected. */
  readonly stopping: boolean;
}

/** How many tasks of a list are looked up. */
const MAX_LOOKUPS = 64;

/**
 * A raw connection has no name but where it comes from, which is another one each time. If it lists a task that is kept for a worker from
 * the same host which is away, as it is after a start of the broker, then it is that worker.
 */
export function rawIdentity(
  core: Core,
  prefix: string,
  host: string,
  port: number,
  hello: Hello | undefined,
): Identity {
  const fresh = WorkerId(`${prefix}:${host}:${port}`);
  const running = hello?.running?.slice(0, MAX_LOOKUPS) ?? [];
  const pairs = running.map(({ task, job: { jobId } }) => ({ jobId, task }));
  const id = absentOwnerOf(core, prefix, host, pairs) ?? fresh;
  return { id, session: SessionId(id), name: id.slice(prefix.length + 1), tags: [], resumable: false, stopping: false };
}

/** The worker from this host that is away, and for which one of these tasks is kept. */
export function absentOwnerOf(
  core: Core,
  prefix: string,
  host: string,
  pairs: readonly TaskPair[],
): WorkerId | undefined {
  if (pairs.length === 0) return undefined;
  const isHeldBy = (id: WorkerId, pair: TaskPair): boolean =>
    core.claimOf(id, JobId(pair.jobId), indexOfPair(core, pair) ?? -1) !== undefined;
  return core
    .workers()
    .filter(({ connected, profile }) => !connected && profile.id.startsWith(`${prefix}:${host}:`))
    .find(({ profile }) => pairs.some((pair) => isHeldBy(profile.id, pair)))?.profile.id;
}
