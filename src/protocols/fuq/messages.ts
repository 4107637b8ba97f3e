/** The messages of fuq, version 2, in the words of its text; docs/reference/protocols/fuq.md. */
import type { Bytes } from "../../model/recipe.js";

export const MAGIC = 0xc047;

/** LIST is reserved: nobody has said what it means. */
export const TYPES = { OK: 1, HELLO: 2, JOB: 3, UPDATE: 4, CANCEL: 5, LIST: 6, STOP: 7, ERROR: 8, RESET: 9 } as const;
export type TypeName = keyof typeof TYPES;

/** The original numbers the first two; the rest are named by the text and numbered by us. */
export const ERRORS = {
  overflow: 1,
  no_procs: 2,
  bad_seq: 3,
  no_such_job: 4,
  cannot_run_job: 5,
  bad_message: 6,
} as const;
export type ErrorName = keyof typeof ERRORS;

export function errorName(code: number): string {
  for (const [name, number] of Object.entries(ERRORS)) if (number === code) return name;
  return String(code);
}

/** How long after a refusal a request is sent again, if no reply lets it go out sooner. */
export const RETRY_MS = 1_000;

/** What a job's Status stands for, by its number. */
export const STATUSES = ["waiting", "running", "finished", "paused", "cancelled"] as const;
export const RUNNING = 1;

/** STOP with this number is obeyed at once, whatever runs. */
export const STOP_AT_ONCE = 0xffff_ffff;
/** In a CANCEL: every task of the job. */
export const ALL_TASKS = -1;
/** The greatest count of slots or tasks that an OK can carry. */
export const COUNT_LIMIT = 0xffff;
/** OK with both counts at their limit asks for a HELLO. */
export const SEND_HELLO = { type: "OK", nproc: COUNT_LIMIT, nrun: COUNT_LIMIT } as const;

export interface JobDescription {
  readonly jobId: number;
  readonly name: Bytes;
  readonly numTasks: number;
  readonly workingDir: Bytes;
  readonly loggingDir: Bytes;
  readonly command: Bytes;
  readonly status: number;
}

export interface Task {
  /** From 1. */
  readonly task: number;
  readonly job: JobDescription;
}

export interface Hello {
  /** Slots that are free; undefined in a bare list of tasks, which is a HELLO by the letter of the text. */
  readonly numProcs: number | undefined;
  /**
   * What runs, and what has ended and was not acknowledged: a foreman takes what is not listed for lost, and the original ends at an
   * UPDATE for it. `null` is Go's nil slice.
   */
  readonly running: readonly Task[] | null;
}

export interface Update {
  readonly jobId: number;
  readonly task: number;
  readonly success: boolean;
  readonly status: string;
  /** Only workers that poll ask for new work with it. */
  readonly newJob: { readonly numProc: number } | null;
}

export interface TaskPair {
  readonly jobId: number;
  readonly task: number;
}

export const pairOf = ({ task, job: { jobId } }: Task): TaskPair => ({ jobId, task });

/** What a task is kept under. */
export const pairKey = ({ jobId, task }: TaskPair): string => `${jobId}.${task}`;

export interface Ok {
  readonly type: "OK";
  /** Free slots. */
  readonly nproc: number;
  readonly nrun: number;
}

export interface Refusal {
  readonly type: "ERROR";
  readonly code: number;
  /** With `no_procs` as in OK. */
  readonly arg0: number;
}

/** Without `hello` nothing is said of slots or tasks: arg0 = 0. */
export type HelloBody = { readonly type: "HELLO"; readonly hello?: Hello };

export type WorkerRequest = HelloBody | { readonly type: "UPDATE"; readonly update: Update };

export type ForemanRequest =
  | { readonly type: "JOB"; readonly tasks: readonly Task[] }
  /** A list, as the original has it; `single` is written for one pair alone, as the text has it. */
  | { readonly type: "CANCEL"; readonly pairs: readonly TaskPair[]; readonly single?: boolean }
  /** How many slots; 0 all by the text, one for the original. */
  | { readonly type: "STOP"; readonly count: number };

export type Request = WorkerRequest | ForemanRequest;
export type Reply = Ok | Refusal;
/** A request of either side, and the answer to it. `lastReply` is the number of the last reply that its sender gave. */
export type Reset = { readonly type: "RESET"; readonly lastReply: number };
export type Reserved = { readonly type: "LIST"; readonly arg0: number };

export type Body = Request | Reply | Reset | Reserved;
export type Numbered<B> = B & { readonly seq: number };
export type Message = Numbered<Body>;

/** A message whose header can be read and whose content cannot. */
export interface Unreadable {
  readonly type: "?";
  readonly seq: number;
  /** Its type by number. */
  readonly number: number;
  readonly why: string;
}

export const refusal = (name: ErrorName, arg0 = 0): Refusal => ({ type: "ERROR", code: ERRORS[name], arg0 });

export const isStopAtOnce = (body: Body | Unreadable): boolean => body.type === "STOP" && body.count === STOP_AT_ONCE;

/** A JOB without tasks asks a worker for its numbers: it has nothing to refuse, and answers OK(nproc|nrun). */
export const COUNTS_WANTED = { type: "JOB", tasks: [] } as const;
export const wantsCounts = (body: Body): boolean => body.type === "JOB" && body.tasks.length === 0;
