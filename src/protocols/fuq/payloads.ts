/**
 * What follows a header: Go structs as msgpack maps, keyed by their field names, in their order. Unknown keys are passed over, missing
 * ones are zero. A Task is written with its JobDescription nested; one version of the original writes it flat, so both are read.
 */
import { badMessage } from "../../base/errors.js";
import type { Bytes } from "../../model/recipe.js";
import { COUNT_LIMIT, type Hello, type JobDescription, type Task, type TaskPair, type Update } from "./messages.js";
import { MsgpackReader } from "./msgpack-reader.js";
import { MsgpackWriter } from "./msgpack-writer.js";

/** What a list may hold, as an OK can count no more. */
const LIST_LIMIT = COUNT_LIMIT;

export function encodeHello({ numProcs, running }: Hello): Buffer {
  if (numProcs === undefined) return encodeTasks(running ?? []);
  const to = new MsgpackWriter();
  to.map(2);
  to.text("NumProcs");
  to.integer(numProcs);
  to.text("Running");
  if (running === null) to.nil();
  else to.list(running, (task) => writeTask(to, task));
  return to.bytes();
}

export function encodeTasks(tasks: readonly Task[]): Buffer {
  const to = new MsgpackWriter();
  to.list(tasks, (task) => writeTask(to, task));
  return to.bytes();
}

export function encodeTask(task: Task): Buffer {
  const to = new MsgpackWriter();
  writeTask(to, task);
  return to.bytes();
}

export function encodeUpdate({ jobId, task, success, status, newJob }: Update): Buffer {
  const to = new MsgpackWriter();
  to.map(5);
  to.text("JobId");
  to.integer(jobId);
  to.text("Task");
  to.integer(task);
  to.text("Success");
  to.flag(success);
  to.text("Status");
  to.text(status);
  to.text("NewJob");
  if (newJob === null) {
    to.nil();
  } else {
    to.map(1);
    to.text("NumProc");
    to.integer(newJob.numProc);
  }
  return to.bytes();
}

export function encodePairs(pairs: readonly TaskPair[], single = false): Buffer {
  const to = new MsgpackWriter();
  const write = ({ jobId, task }: TaskPair): void => {
    to.map(2);
    to.text("JobId");
    to.integer(jobId);
    to.text("Task");
    to.integer(task);
  };
  if (single) pairs.forEach(write);
  else to.list(pairs, write);
  return to.bytes();
}

function writeTask(to: MsgpackWriter, { task, job }: Task): void {
  to.map(2);
  to.text("Task");
  to.integer(task);
  to.text("JobDescription");
  to.map(7);
  to.text("JobId");
  to.integer(job.jobId);
  to.text("Name");
  to.text(job.name);
  to.text("NumTasks");
  to.integer(job.numTasks);
  to.text("WorkingDir");
  to.text(job.workingDir);
  to.text("LoggingDir");
  to.text(job.loggingDir);
  to.text("Command");
  to.text(job.command);
  to.text("Status");
  to.integer(job.status);
}

/** These throw LABORO_BAD_MESSAGE, and nothing else. */
export function decodeHello(bytes: Uint8Array): Hello {
  const from = new MsgpackReader(bytes);
  if (from.atList()) return { numProcs: undefined, running: decodeTasks(bytes) };
  let numProcs = 0;
  let running: readonly Task[] | null = null;
  from.struct("HELLO", (key) => {
    if (key === "NumProcs") numProcs = from.integer(key);
    else if (key === "Running") running = from.list(key, LIST_LIMIT, () => readTask(from)) ?? null;
    else return false;
    return true;
  });
  if (numProcs < 0 || numProcs > COUNT_LIMIT) throw badMessage(`NumProcs is ${numProcs}, expected 0 to ${COUNT_LIMIT}`);
  return { numProcs, running };
}

export function decodeTasks(bytes: Uint8Array): readonly Task[] {
  const from = new MsgpackReader(bytes);
  return from.list("JOB", LIST_LIMIT, () => readTask(from)) ?? [];
}

export const decodeTask = (bytes: Uint8Array): Task => readTask(new MsgpackReader(bytes));

export function decodeUpdate(bytes: Uint8Array): Update {
  const from = new MsgpackReader(bytes);
  const update: Changeable<Update> = { jobId: 0, task: 0, success: false, status: "", newJob: null };
  const there = from.struct("UPDATE", (key) => {
    if (key === "JobId") update.jobId = from.integer(key);
    else if (key === "Task") update.task = from.integer(key);
    else if (key === "Success") update.success = from.flag(key);
    else if (key === "Status") update.status = asText(from.text(key));
    else if (key === "NewJob") update.newJob = readNewJob(from);
    else return false;
    return true;
  });
  if (!there) throw badMessage("UPDATE is nil");
  return update;
}

/** A list, as the original has it, or one pair alone, as the text has it. */
export function decodePairs(bytes: Uint8Array): readonly TaskPair[] {
  const from = new MsgpackReader(bytes);
  if (from.nil()) return [];
  if (!from.atList()) return [readPair(from)];
  return from.list("CANCEL", LIST_LIMIT, () => readPair(from)) ?? [];
}

function readNewJob(from: MsgpackReader): Update["newJob"] {
  let numProc = 0;
  const there = from.struct("NewJob", (key) => {
    if (key !== "NumProc") return false;
    numProc = from.integer(key);
    return true;
  });
  return there ? { numProc } : null;
}

function readPair(from: MsgpackReader): TaskPair {
  const pair: Changeable<TaskPair> = { jobId: 0, task: 0 };
  from.struct("TaskPair", (key) => {
    if (key === "JobId") pair.jobId = from.integer(key);
    else if (key === "Task") pair.task = from.integer(key);
    else return false;
    return true;
  });
  return pair;
}

function readTask(from: MsgpackReader): Task {
  const job = newDescription();
  let task = 0;
  from.struct("Task", (key) => {
    if (key === "Task") task = from.integer(key);
    else if (key === "JobDescription") from.struct(key, (inner) => readDescribed(from, inner, job));
    else return readDescribed(from, key, job);
    return true;
  });
  return { task, job };
}

function readDescribed(from: MsgpackReader, key: string, job: Changeable<JobDescription>): boolean {
  if (key === "JobId") job.jobId = from.integer(key);
  else if (key === "Name") job.name = from.text(key);
  else if (key === "NumTasks") job.numTasks = from.integer(key);
  else if (key === "WorkingDir") job.workingDir = from.text(key);
  else if (key === "LoggingDir") job.loggingDir = from.text(key);
  else if (key === "Command") job.command = from.text(key);
  else if (key === "Status") job.status = from.integer(key);
  else return false;
  return true;
}

const newDescription = (): Changeable<JobDescription> => ({
  jobId: 0,
  name: "",
  numTasks: 0,
  workingDir: "",
  loggingDir: "",
  command: "",
  status: 0,
});

type Changeable<T> = { -readonly [K in keyof T]: T[K] };

const asText = (value: Bytes): string => (typeof value === "string" ? value : Buffer.from(value).toString());
