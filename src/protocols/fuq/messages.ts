/** The messages of fuq, with the words of its specification. docs/reference/protocols/fuq.md describes them. */
import { constants } from "node:os";
import type { Outcome } from "../../model/outcome.js";
import type { Bytes } from "../../model/recipe.js";

/** LIST is reserved. */
export const TYPES = { OK: 1, HELLO: 2, JOB: 3, UPDATE: 4, CANCEL: 5, LIST: 6, STOP: 7, ERROR: 8, RESET: 9 } as const;
export type TypeName = keyof typeof TYPES;

/** The original defines the first two numbers. The specification names the others; laboro chose their numbers. */
export const ERRORS = {
  overflow: 1,
  no_procs: 2,
  bad_seq: 3,
  no_such_job: 4,
  cannot_run_job: 5,
  bad_message: 6,
} as const;

export const errorName = (code: number): string =>
  Object.entries(ERRORS).find(([, number]) => number === code)?.[0] ?? String(code);

/** The names of a job's Status, by its number. */
export const STATUSES = ["waiting", "running", "finished", "paused", "cancelled"] as const;
export const RUNNING = 1;

/** STOP with this number also ends running tasks. */
export const STOP_AT_ONCE = 0xffff_ffff;
/** In a CANCEL: every task of the job. */
export const ALL_TASKS = -1;
/** The largest count of slots or tasks in an OK. */
export const COUNT_LIMIT = 0xffff;
/** OK with both counts at their limit asks for a HELLO. */
export const SEND_HELLO = { type: "OK", nproc: COUNT_LIMIT, nrun: COUNT_LIMIT } as const;
/** When a request that ERROR(overflow) refused is sent again, unless a good reply allows it sooner. */
export const RETRY_MS = 1_000;

export interface TaskPair {
  readonly jobId: number;
  readonly task: number;
}

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

export const pairOf = ({ task, job: { jobId } }: Task): TaskPair => ({ jobId, task });
export const pairKey = ({ jobId, task }: TaskPair): string => `${jobId}.${task}`;

export interface Hello {
  /** Free slots; undefined in a bare list of tasks, which the specification allows. */
  readonly numProcs: number | undefined;
  /** Tasks that run, or whose UPDATE is not acknowledged. `null` is Go's nil slice. */
  readonly running: readonly Task[] | null;
}

export interface Update extends TaskPair {
  readonly success: boolean;
  readonly status: string;
  /** Polling workers request new work with it. */
  readonly newJob: { readonly numProc: number } | null;
}

export type Request =
  /** From the worker. Without `hello`, arg0 is 0 and the message has no slots or tasks. */
  | { readonly type: "HELLO"; readonly hello?: Hello }
  | { readonly type: "UPDATE"; readonly update: Update }
  /** From the foreman. */
  | { readonly type: "JOB"; readonly tasks: readonly Task[] }
  /** A list, as in the original; with `single` one bare pair, as in the specification. */
  | { readonly type: "CANCEL"; readonly pairs: readonly TaskPair[]; readonly single?: boolean }
  /** A number of slots. 0 means all in the specification, one in the original. */
  | { readonly type: "STOP"; readonly count: number };

export interface Ok {
  readonly type: "OK";
  readonly nproc: number;
  readonly nrun: number;
}

interface Refusal {
  readonly type: "ERROR";
  readonly code: number;
  /** With `no_procs` as in OK. */
  readonly arg0: number;
}

export type Reply = Ok | Refusal;

export type Body =
  | Request
  | Reply
  /** A request of either side, and the reply to it. `lastReply` is the number of the sender's last reply. */
  | { readonly type: "RESET"; readonly lastReply: number }
  | { readonly type: "LIST"; readonly arg0: number };
export type Numbered<B> = B & { readonly seq: number };
export type Message = Numbered<Body>;

export type MessageV1 =
  /** Slots of the client. The server mostly repeats them. */
  | { readonly type: "OK"; readonly nproc: number }
  | { readonly type: "JOB"; readonly task: Task }
  | { readonly type: "UPDATE"; readonly update: Update }
  | { readonly type: "STOP"; readonly count: number }
  | { readonly type: "ERROR"; readonly code: number };

/** A message with a valid header and invalid content. */
export interface UnreadableV1 {
  readonly type: "?";
  readonly number: number;
  readonly why: string;
}
export type Unreadable = Numbered<UnreadableV1>;

export const refusal = (name: keyof typeof ERRORS, arg0 = 0): Refusal => ({ type: "ERROR", code: ERRORS[name], arg0 });

export const isStopAtOnce = (body: Body | Unreadable): boolean => body.type === "STOP" && body.count === STOP_AT_ONCE;

/** A JOB without tasks asks a worker for its counts: it always answers OK(nproc|nrun). */
export const COUNTS_WANTED = { type: "JOB", tasks: [] } as const;
export const wantsCounts = (body: Body): boolean => body.type === "JOB" && body.tasks.length === 0;

// The status text of an UPDATE

type End = Pick<Outcome, "code" | "signal" | "error">;

const FAILURE_PREFIX = "error encountered: ";

/** The words of Go's os/exec for signals. */
const SIGNAL_WORDS: Readonly<Record<string, string>> = {
  SIGABRT: "aborted",
  SIGALRM: "alarm clock",
  SIGBUS: "bus error",
  SIGFPE: "floating point exception",
  SIGHUP: "hangup",
  SIGILL: "illegal instruction",
  SIGINT: "interrupt",
  SIGKILL: "killed",
  SIGPIPE: "broken pipe",
  SIGQUIT: "quit",
  SIGSEGV: "segmentation fault",
  SIGTERM: "terminated",
  SIGTRAP: "trace/breakpoint trap",
  SIGUSR1: "user defined signal 1",
  SIGUSR2: "user defined signal 2",
};

/** As the original writes it. */
export function statusText({ code, signal, error }: End): string {
  if (error !== undefined) return `${FAILURE_PREFIX}${error}`;
  if (signal !== undefined) return `${FAILURE_PREFIX}signal: ${SIGNAL_WORDS[signal] ?? signal}`;
  return code === 0 ? "done" : `${FAILURE_PREFIX}exit status ${code ?? "unknown"}`;
}

/** A text without exit code or signal is kept as the reason. */
export function outcomeFromStatus(success: boolean, status: string): End {
  if (success) return { code: 0 };
  const reason = status.startsWith(FAILURE_PREFIX) ? status.slice(FAILURE_PREFIX.length) : status;
  const code = /^exit status (\d{1,3})$/.exec(reason)?.[1];
  if (code !== undefined && code !== "0") return { code: Number(code) };
  const word = /^signal: (.+?)(?: \(core dumped\))?$/.exec(reason)?.[1];
  const signal = Object.keys(constants.signals).find((name) => name === word || SIGNAL_WORDS[name] === word);
  if (word !== undefined && signal !== undefined) return { signal };
  return { error: reason === "" ? "it failed, and its worker gave no reason" : reason.slice(0, 1024) };
}
