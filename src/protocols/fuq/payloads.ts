/**
 * What follows a header: Go structs as msgpack maps, keyed by their field names, in their order. Unknown keys are passed over, missing
 * ones are zero. A Task is written with its JobDescription nested; one version of the original writes it flat, so both are read.
 */
import { badMessage } from "../../base/errors.js";
import type { Bytes } from "../../model/recipe.js";
import { COUNT_LIMIT, type Hello, type JobDescription, type Task, type TaskPair, type Update } from "./messages.js";
import { MsgpackReader } from "./msgpack-reader.js";
import { packMsgpack } from "./msgpack-writer.js";

/** What a list may hold, as an OK can count no more. */
const LIST_LIMIT = COUNT_LIMIT;

// The structs as they are written

export const pairFields = ({ jobId, task }: TaskPair) => ({ JobId: jobId, Task: task });

export const descriptionFields = (job: JobDescription) => ({
  JobId: job.jobId,
  Name: job.name,
  NumTasks: job.numTasks,
  WorkingDir: job.workingDir,
  LoggingDir: job.loggingDir,
  Command: job.command,
  Status: job.status,
});

const taskFields = ({ task, job }: Task) => ({ Task: task, JobDescription: descriptionFields(job) });

export const updateFields = ({ jobId, task, success, status, newJob }: Update) => ({
  JobId: jobId,
  Task: task,
  Success: success,
  Status: status,
  NewJob: newJob && { NumProc: newJob.numProc },
});

export function encodeHello({ numProcs, running }: Hello): Buffer {
  if (numProcs === undefined) return encodeTasks(running ?? []);
  return packMsgpack({ NumProcs: numProcs, Running: running === null ? null : running.map(taskFields) });
}

export const encodeTasks = (tasks: readonly Task[]): Buffer => packMsgpack(tasks.map(taskFields));
export const encodeTask = (task: Task): Buffer => packMsgpack(taskFields(task));
export const encodeUpdate = (update: Update): Buffer => packMsgpack(updateFields(update));

export function encodePairs(pairs: readonly TaskPair[], single = false): Buffer {
  const [first] = pairs;
  return packMsgpack(single && first !== undefined ? pairFields(first) : pairs.map(pairFields));
}

// The structs as they are read. These throw LABORO_BAD_MESSAGE, and nothing else.

const integer = (from: MsgpackReader, key: string): number => from.integer(key);
const flag = (from: MsgpackReader, key: string): boolean => from.flag(key);
const text = (from: MsgpackReader, key: string): Bytes => from.text(key);

const PAIR = { JobId: integer, Task: integer };
const DESCRIPTION = {
  JobId: integer,
  Name: text,
  NumTasks: integer,
  WorkingDir: text,
  LoggingDir: text,
  Command: text,
  Status: integer,
};
const TASK = {
  ...DESCRIPTION,
  Task: integer,
  JobDescription: (from: MsgpackReader, key: string) => from.struct(key, DESCRIPTION),
};
const NEW_JOB = { NumProc: integer };
const UPDATE = {
  ...PAIR,
  Success: flag,
  Status: text,
  NewJob: (from: MsgpackReader, key: string) => from.struct(key, NEW_JOB),
};
const HELLO = {
  NumProcs: integer,
  Running: (from: MsgpackReader, key: string) => from.list(key, LIST_LIMIT, readTask),
};

export function decodeHello(bytes: Uint8Array): Hello {
  const from = new MsgpackReader(bytes);
  if (from.atList()) return { numProcs: undefined, running: decodeTasks(bytes) };
  const { NumProcs: numProcs = 0, Running: running = null } = from.struct("HELLO", HELLO) ?? {};
  if (numProcs < 0 || numProcs > COUNT_LIMIT) throw badMessage(`NumProcs is ${numProcs}, expected 0 to ${COUNT_LIMIT}`);
  return { numProcs, running };
}

export const decodeTasks = (bytes: Uint8Array): readonly Task[] =>
  new MsgpackReader(bytes).list("JOB", LIST_LIMIT, readTask) ?? [];

export const decodeTask = (bytes: Uint8Array): Task => readTask(new MsgpackReader(bytes));

export function decodeUpdate(bytes: Uint8Array): Update {
  const update = new MsgpackReader(bytes).struct("UPDATE", UPDATE);
  if (update === undefined) throw badMessage("UPDATE is nil");
  const { JobId: jobId = 0, Task: task = 0, Success: success = false, Status: status = "", NewJob: newJob } = update;
  return { jobId, task, success, status: asText(status), newJob: newJob ? { numProc: newJob.NumProc ?? 0 } : null };
}

/** A list, as the original has it, or one pair alone, as the text has it. */
export function decodePairs(bytes: Uint8Array): readonly TaskPair[] {
  const from = new MsgpackReader(bytes);
  if (from.nil()) return [];
  return from.atList() ? (from.list("CANCEL", LIST_LIMIT, readPair) ?? []) : [readPair(from)];
}

function readPair(from: MsgpackReader): TaskPair {
  const { JobId: jobId = 0, Task: task = 0 } = from.struct("TaskPair", PAIR) ?? {};
  return { jobId, task };
}

function readTask(from: MsgpackReader): Task {
  const { Task: task = 0, JobDescription: nested, ...flat } = from.struct("Task", TASK) ?? {};
  const described = { ...flat, ...nested };
  const { JobId: jobId = 0, Name: name = "", NumTasks: numTasks = 0, Command: command = "" } = described;
  const { WorkingDir: workingDir = "", LoggingDir: loggingDir = "", Status: status = 0 } = described;
  return { task, job: { jobId, name, numTasks, workingDir, loggingDir, command, status } };
}

const asText = (value: Bytes): string => (typeof value === "string" ? value : Buffer.from(value).toString());
