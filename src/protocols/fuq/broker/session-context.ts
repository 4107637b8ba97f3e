/** What a session of a fuq worker needs, whatever transport carries it, and who the worker is, as far as it can be known. */
import type { Log } from "../../../base/log.js";
import type { Core } from "../../../broker/core.js";
import type { WorkerProfile } from "../../../dispatch/index.js";
import { JobId, SessionId, WorkerId } from "../../../model/ids.js";
import { type Hello, type Message, pairOf, type TaskPair } from "../messages.js";
import type { Side } from "../sequence-numbers.js";
import { indexOfPair } from "./fuq-task.js";

/** `Out`: the messages of the version that the session speaks. */
export interface FuqSessionContext<Out = Message> {
  readonly core: Core;
  readonly log: Log;
  readonly connection: WorkerConnection<Out>;
  /** Who the worker is, by its first HELLO. */
  readonly identify: (hello: Hello | undefined) => Identity;
  /** The same, where it is known before. */
  readonly knownWorker?: WorkerId;
  /** The worker that is away and for which this task is kept, where this may be that worker under another name. */
  readonly absentOwnerOf?: (pair: TaskPair) => WorkerId | undefined;
  readonly profile: Pick<WorkerProfile, "protocol" | "pool" | "address" | "graceMs">;
  /** The peer has done something that it should not have done. */
  readonly onPeerError: (why: string) => void;
  /** The worker can never report its tasks, and must not come back. */
  readonly onStuck?: () => void;
  /** The worker has identified itself. */
  readonly onNamed: (name: string) => void;
}

export interface WorkerConnection<Out> {
  send(message: Out): void;
  /** Nothing is sent after it. The code is a WebSocket's. */
  close(code?: number, reason?: string): void;
}

export interface FuqSessionOptions {
  readonly greeting: Side;
  /** The worker may be an original program. */
  readonly original: boolean;
  readonly maxSequence?: number;
  readonly queueLimit?: number;
  /** How long an original program may be silent before it is asked for its numbers. */
  readonly silenceMs?: number;
  /** How long after a refusal a request is sent again. */
  readonly retryMs?: number;
  /** How long the UPDATE of a task is waited for that the worker does not have any more. */
  readonly missingMs?: number;
}

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
export function rawIdentity(core: Core, prefix: string, host: string, port: number, hello?: Hello): Identity {
  const pairs = (hello?.running ?? []).slice(0, MAX_LOOKUPS).map(pairOf);
  const id = absentOwnerOf(core, prefix, host, pairs) ?? WorkerId(`${prefix}:${host}:${port}`);
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
