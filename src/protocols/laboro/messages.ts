/**
 * The messages of laboro's own link, WebSocket subprotocol `laboro.1`. A binary frame is a msgpack array of messages; a
 * message is an array whose first element is its type (codec.ts has the order of the fields). Pipelined: no message
 * waits for a reply, except that JOIN is answered by WELCOME before anything else is sent in either direction.
 *
 * A worker link starts with JOIN, a client link with HELLO. The token is in the upgrade request.
 *
 * A deadline is in milliseconds after its sender opened the link: a client with HELLO, the broker with WELCOME. The
 * receiver counts from the time when it read that message, so clocks are never compared. A message read after its
 * deadline is not begun.
 */
import type { ErrorCode } from "../../base/errors.js";
import type { Attempt, JobId, SessionId, TaskIndex } from "../../model/ids.js";
import type { Entries, Limits } from "../../model/job.js";
import type { EndedTask, JobProgress, Outcome, OutputStream } from "../../model/outcome.js";
import type { Range, Ranges } from "../../model/ranges.js";
import type { Recipe, Resources } from "../../model/recipe.js";
import type { RememberedStore } from "../../model/store.js";
import type { Strides } from "../../model/task-numbers.js";
import type { MachineLoad } from "../../model/worker-settings.js";

/** The input of a large submission, in its bytes. */
export class LargeInput {
  readonly bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }
}

export const SUBPROTOCOL = "laboro.1";
/** Both ends must have the same: a broker refuses JOIN and HELLO of any other version. */
export const LINK_VERSION = 1;
/** Bytes of output in one OUTPUT message. */
export const OUTPUT_CHUNK = 64 * 1024;

/** A recipe is sent again once this many others were sent after it on the same connection. */
export const RECIPES_REMEMBERED = 256;

export type HeldState = "prefetched" | "running" | "finished";

/** Tasks that a worker has, in one state. */
export interface HeldTasks extends Range {
  readonly job: JobId;
  readonly attempt: Attempt;
  readonly state: HeldState;
  /** As in the job's `RECIPE`. */
  readonly acceptedBy?: string | undefined;
}

export interface AttemptRange extends Range {
  readonly job: JobId;
  readonly attempt: Attempt;
}

export interface TaskRef {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
  /** As in the job's `RECIPE`. Kept by the worker; on the link only in `held`. */
  readonly acceptedBy?: string | undefined;
}

/** The broker's store. `older`: the worker remembers more of it than there is, so it was restored from a copy. */
export interface StoreInfo {
  readonly identity: string;
  readonly epoch: number;
  readonly older: boolean;
}

/** A task that the worker keeps, and how much of its output the broker has stored. */
export interface ResumedTask extends TaskRef {
  readonly outputStored: number;
}

/** Everything before the offset `end` of a task's relayed output was taken. */
export interface TakenOutput extends TaskRef {
  readonly end: number;
}

/** A piece of a task's output. `offset` counts both streams together. */
export interface TaskOutput extends TaskRef {
  readonly stream: OutputStream;
  readonly offset: number;
  readonly bytes: Uint8Array;
}

export interface DoneTask extends TaskRef, Outcome {
  /** Only to a client, for a value that is left out. */
  readonly valueBytes?: number;
}

export interface Join {
  readonly type: "JOIN";
  readonly version: number;
  /** The worker's id is its hash, see worker-identity.ts. */
  readonly secret: string;
  readonly session: SessionId;
  /** The name that people see. */
  readonly name: string;
  readonly total: Resources;
  readonly tags: readonly string[];
  readonly pool: string;
  readonly services: readonly string[];
  /** Slots that only requests may use. */
  readonly reserveRequests: number;
  readonly held: readonly HeldTasks[];
  /** How long the worker will still run; unlimited if absent. */
  readonly lifetimeMs?: number;
  readonly store?: RememberedStore | undefined;
  /** It comes through a tunnel: the end of the connection does not show that the worker has ended. */
  readonly tunnelled?: true;
}

/** The answer to a request. `details`: of an error, what the handler threw, as JSON (task-definition.ts). */
export interface ServiceReply {
  readonly id: number;
  readonly error?: ErrorCode;
  readonly body: Uint8Array;
  readonly details?: Uint8Array | undefined;
}

export type FromWorker =
  | Join
  | { readonly type: "STARTED"; readonly tasks: readonly TaskRef[] }
  | { readonly type: "DONE"; readonly seq: number; readonly tasks: readonly DoneTask[] }
  | ({ readonly type: "OUTPUT" } & TaskOutput)
  /** Output that is not kept, for the clients that follow the job. */
  | ({ readonly type: "RELAY" } & TaskOutput)
  /** Given back unstarted: after RETRACT, a refusal, or before an orderly stop. */
  | { readonly type: "RETRACTED"; readonly tasks: readonly AttemptRange[] }
  /** Cancelled before they were started. One that ran comes back as DONE. */
  | { readonly type: "CANCELLED"; readonly tasks: readonly AttemptRange[] }
  /** The progress of handlers, as JSON. */
  | { readonly type: "TASK_PROGRESS"; readonly tasks: readonly (TaskRef & { readonly value: string })[] }
  /** A task of `job` asks for results of the job `of`. With `limit` 1 there is a value of any size. */
  | {
      readonly type: "GET_RESULTS";
      readonly id: number;
      readonly job: JobId;
      readonly of: JobId;
      readonly from: TaskIndex;
      readonly limit?: 1 | undefined;
    }
  /** A task of `job` needs a part of the file at this place of `sent` in the recipe's files. */
  | {
      readonly type: "GET_FILE";
      readonly id: number;
      readonly job: JobId;
      readonly file: number;
      readonly from: number;
    }
  /** A part of a returned file. DONE follows when all parts are stored. */
  | ({
      readonly type: "PUT_FILE";
      readonly id: number;
      readonly from: number;
      readonly bytes: Uint8Array;
    } & TaskRef)
  | ({ readonly type: "REPLY" } & ServiceReply)
  /** What the worker offers has changed. */
  | {
      readonly type: "SERVICES";
      readonly services: readonly string[];
      readonly tags?: readonly string[];
      readonly total?: Resources;
      /** Why it takes no tasks from now on, until a SERVICES without it. */
      readonly paused?: string;
    }
  /** Every ten seconds; nothing depends on it. */
  | ({ readonly type: "MACHINE" } & MachineLoad)
  /** Orderly stop: assign nothing more. The worker closes when it has nothing left. */
  | { readonly type: "LEAVING" }
  | { readonly type: "HEARTBEAT" };

export interface Welcome {
  readonly type: "WELCOME";
  readonly version: number;
  readonly broker: string;
  readonly keep: readonly ResumedTask[];
  readonly drop: readonly AttemptRange[];
  /** Milliseconds between HEARTBEATs; three missed end the connection. */
  readonly heartbeatMs: number;
  /** `version`, `settings` as the operator keeps them for this worker, `heartbeatMs`. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Bytes of OUTPUT that may be sent without an acknowledgement. */
  readonly window: number;
  readonly store: StoreInfo;
}

/** The URLs of the brokers of the group, the best first. */
export interface Brokers {
  readonly type: "BROKERS";
  readonly urls: readonly string[];
}

/** What a worker needs to know of a job; sent once a connection. */
export interface JobRecipe {
  readonly job: JobId;
  readonly recipe: Recipe;
  readonly needs: Resources;
  readonly limits: Pick<Limits, "timeLimitMs" | "timeLimitPercent" | "timeRequestMs" | "outputCap" | "relay">;
  /** As in the job's spec. */
  readonly numbers?: Strides;
  readonly acceptedBy?: string | undefined;
  /** For handlers: the job's key, and the jobs that it came after. */
  readonly key?: string | undefined;
  readonly after?: readonly JobId[] | undefined;
}

export type ToWorker =
  | Welcome
  | ({ readonly type: "RECIPE" } & JobRecipe)
  /** `atOnce`: how many tasks of the job the worker may run at once from now on. */
  | ({ readonly type: "TASKS"; readonly entries?: Entries; readonly atOnce?: number } & AttemptRange)
  /** Every DONE up to seq is recorded. */
  | { readonly type: "ACK"; readonly seq: number }
  | { readonly type: "CREDIT"; readonly bytes: number }
  /** All clients that follow the job have taken the relayed output up to here. */
  | ({ readonly type: "RELAYED" } & TakenOutput)
  | { readonly type: "RETRACT"; readonly tasks: readonly AttemptRange[] }
  | { readonly type: "CANCEL"; readonly tasks: readonly AttemptRange[] }
  | { readonly type: "DRAIN" }
  /** The worker leaves when its tasks have ended. `slots`: only this many slots end, or all of them now. */
  | { readonly type: "STOP"; readonly slots?: number | "now" }
  | { readonly type: "CONFIG"; readonly config: Readonly<Record<string, unknown>> }
  | Brokers
  | {
      readonly type: "CALL";
      readonly id: number;
      readonly service: string;
      readonly body: Uint8Array;
      readonly deadline: number;
    }
  /** The answer to GET_RESULTS: a page, or why there is none. `service`: what the tasks of that job call. */
  | {
      readonly type: "RESULTS";
      readonly id: number;
      readonly service?: string | undefined;
      readonly tasks: readonly EndedTask[];
      readonly next?: TaskIndex | undefined;
      readonly refused?: string | undefined;
    }
  /** The answer to GET_FILE, and without bytes to PUT_FILE; or why there is none. */
  | { readonly type: "FILE"; readonly id: number; readonly bytes: Uint8Array; readonly refused?: string | undefined }
  /** The caller no longer waits. */
  | { readonly type: "CANCEL_CALL"; readonly id: number }
  | { readonly type: "HEARTBEAT" };

/** What a client wants to know of a job. */
export interface FollowRequest {
  readonly job: JobId;
  /** Tasks that the client has: they are not sent. */
  readonly has: Ranges;
  /** Tasks that end, counters and holds; without it the end of the job alone. */
  readonly tasks: boolean;
  /** Tasks that run and have output. */
  readonly live: boolean;
  /** RELAY the output of the job that is not kept. */
  readonly relay: boolean;
}

export type FromClient =
  | { readonly type: "HELLO"; readonly version: number; readonly name: string }
  /** A message for a service. */
  | {
      readonly type: "REQUEST";
      readonly id: number;
      readonly service: string;
      readonly body: Uint8Array;
      readonly deadline: number;
      readonly pool: string;
      /** Send it to another worker once, if the first is lost. */
      readonly retry: boolean;
    }
  /** The caller no longer waits for this REQUEST or OPERATION. */
  | { readonly type: "CANCEL_REQUEST"; readonly id: number }
  /** An operation of the broker itself: submit, wait, results… */
  | {
      readonly type: "OPERATION";
      readonly id: number;
      readonly operation: string;
      readonly input: unknown;
      /** None if absent. */
      readonly deadline?: number;
    }
  /** From now on, PROGRESS of this job is sent, until it has ended or a CANCEL_REQUEST with this id comes. */
  | ({ readonly type: "FOLLOW"; readonly id: number } & FollowRequest)
  /** The client has taken this many ended tasks of a FOLLOW. */
  | { readonly type: "FOLLOW_CREDIT"; readonly id: number; readonly tasks: number }
  | ({ readonly type: "TAKEN" } & TakenOutput)
  | { readonly type: "HEARTBEAT" };

export type ToClient =
  | { readonly type: "HELLO_ACK"; readonly version: number; readonly broker: string; readonly heartbeatMs: number }
  | Brokers
  | ({ readonly type: "RESPONSE" } & ServiceReply)
  | { readonly type: "RESULT"; readonly id: number; readonly value: unknown }
  | { readonly type: "ERROR"; readonly id: number; readonly code: ErrorCode; readonly message: string }
  | ({ readonly type: "PROGRESS"; readonly id: number; readonly job: JobId } & JobProgress)
  | ({ readonly type: "RELAY" } & TaskOutput)
  | { readonly type: "HEARTBEAT" };

export type LinkMessage = FromWorker | ToWorker | FromClient | ToClient;
