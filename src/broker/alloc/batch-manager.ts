/** What the broker needs of a batch system. Each has one file, and a line in `BATCH_MANAGERS`. */
import { asLaboroError } from "../../base/errors.js";
import type { AllocatorSpec } from "../../model/allocation.js";

export interface AskRequest {
  /** The name of the allocator. All of its jobs have this name, see `list`. */
  readonly name: string;
  /** The job script, and the file that it writes to. The script's path tells one allocation from another. */
  readonly script: string;
  readonly output: string;
  readonly timeLimitMs: number;
  readonly nodes: number;
  readonly slots: number;
  readonly args: readonly string[];
}

export interface QueueEntry {
  readonly id: string;
  /** `unknown`: a word of a newer version. The earlier state is kept. */
  readonly state: "queued" | "running" | "ended" | "unknown";
  /** The batch system's own word for the state. */
  readonly word: string;
  /** It ended without a failure. */
  readonly good: boolean;
  /** The batch system took its nodes away: preempted, or a node failed. */
  readonly taken: boolean;
  /** The job can never start with its present request. */
  readonly never: boolean;
  readonly reason?: string;
  readonly script: string;
}

/**
 * refused       the request is wrong: asking again gives the same answer
 *   full          the queue takes no more jobs for now
 *   unreachable   the batch system does not answer
 *   missing       its commands are not installed here
 *   lost          there was no answer in time: it may have been accepted
 */
export type FailureKind = "refused" | "full" | "unreachable" | "missing" | "lost";

export class BatchError extends Error {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** Any failure of a request: files that cannot be written count as a batch system that cannot be used for now. */
export const asBatchError = (cause: unknown): BatchError =>
  cause instanceof BatchError ? cause : new BatchError("unreachable", asLaboroError(cause).message);

export interface BatchManager {
  /** Parts of its job scripts. The shell expands the first two: the id of the job, and the number of the node in it. */
  readonly script: {
    readonly jobId: string;
    readonly node: string;
    /** Starts the command that follows once on each node. */
    onEachNode(slots: number): string;
  };
  /** Its commands are installed here. */
  available(): boolean;
  /** Resolves with the id of the job. Rejects with a BatchError. */
  ask(request: AskRequest): Promise<string>;
  /** The command that `ask` runs, for people. */
  command(request: AskRequest): readonly string[];
  /** Requests nothing, and returns the batch system's opinion of the request. Rejects with a BatchError. */
  test(request: AskRequest): Promise<string>;
  /** The jobs of these allocators that the batch system knows, also ended ones. Rejects with a BatchError. */
  list(names: readonly string[]): Promise<readonly QueueEntry[]>;
  /** Ends jobs. Rejects with a BatchError. One that has ended already is no failure. */
  cancel(ids: readonly string[]): Promise<void>;
}

export const BATCH_MANAGERS: Readonly<Record<AllocatorSpec["manager"], () => Promise<BatchManager>>> = {
  slurm: async () => new (await import("./slurm.js")).Slurm(),
};
