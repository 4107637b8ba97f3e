/** What a session of a fuq worker needs, whatever transport carries it. */

import type { Log } from "../../../base/log.js";
import type { Core } from "../../../broker/core.js";
import type { WorkerProfile } from "../../../dispatch/index.js";
import type { WorkerId } from "../../../model/ids.js";
import type { Hello, Message, TaskPair } from "../messages.js";
import type { Side } from "../sequence-numbers.js";
import type { Identity } from "./identity.js";

export interface WorkerConnection {
  send(message: Message): void;
  /** Nothing is sent after it. The code is a WebSocket's. */
  close(code: number, reason: string): void;
}

export interface FuqSessionContext {
  readonly core: Core;
  readonly log: Log;
  readonly connection: WorkerConnection;
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
  /** How long the UPDATE of a cancelled task is waited for. */
  readonly settleMs?: number;
  /** The same where the worker does not have the task. */
  readonly missingMs?: number;
}
