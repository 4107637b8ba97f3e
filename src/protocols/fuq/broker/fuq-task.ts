/** A task of laboro as fuq sees it: its number, the description of its job, its log and its outcome. */
import { basename, dirname, isAbsolute, join } from "node:path";
import { now } from "../../../base/clock.js";
import type { Log } from "../../../base/log.js";
import type { Core } from "../../../broker/core.js";
import type { AssignedTask, TaskWorkerProfile } from "../../../broker/sessions/assigned-tasks.js";
import type { Done, WorkerProfile } from "../../../dispatch/index.js";
import { JobId, SessionId, type TaskIndex, type WorkerId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { kindOf } from "../../../model/recipe.js";
import { taskIndex, taskNumber } from "../../../model/task-numbers.js";
import {
  type Hello,
  type Message,
  outcomeFromStatus,
  pairOf,
  RUNNING,
  type Task,
  type TaskPair,
  type Update,
} from "../messages.js";
import type { FuqNode } from "./http/nodes.js";

/** What all workers of fuq have in common. */
export const FUQ_WORKER = { canPrefetch: false, taskKinds: ["numbered"] } as const;

/** Undefined if a fuq worker cannot run it. */
export function toFuqTask(given: Job, index: TaskIndex): Task | undefined {
  const { id: jobId, count: numTasks, recipe } = given;
  if (recipe.kind !== "command" || kindOf(recipe) !== "numbered") return undefined;
  const { dir: workingDir = "", argv } = recipe;
  const [command = ""] = argv;
  const job = { jobId, ...logLocation(given), numTasks, workingDir, command, status: RUNNING };
  return { task: taskNumber(given, index), job };
}

/** Undefined if no open job has this task. */
export function indexOfPair(core: Core, { jobId, task }: TaskPair): TaskIndex | undefined {
  const open = core.job(JobId(jobId));
  return open && taskIndex(open, task);
}

const NUMBERED_LOG = "_{#}.log";

/**
 * A worker writes LOGGING_DIR/NAME_TASK.log. A job without a log path logs into its directory. The name of a job may be
 * a path, such as that of its program, and must not lead to another directory.
 */
function logLocation({ name, recipe }: Job): { name: string; loggingDir: string } {
  const { dir, log } = recipe.kind === "command" ? recipe : {};
  const workingDir = typeof dir === "string" ? dir : "";
  const file = log === undefined ? "" : basename(log);
  return {
    name: file.endsWith(NUMBERED_LOG) ? file.slice(0, -NUMBERED_LOG.length) : name.replaceAll("/", "_"),
    loggingDir: log === undefined ? workingDir : logDirectory(workingDir, log),
  };
}

/** The path of a log is relative to the directory of the task, but a fuq worker would take it relative to its own. */
export const logDirectory = (dir: string, log: string): string =>
  dir === "" || isAbsolute(log) ? dirname(log) : join(dir, dirname(log));

type FuqOutcome = Omit<Done, "outputBytes">;

/**
 * A task past its time limit has timed out, unless it succeeded. By the specification, a cancelled task has no report.
 */
export function outcomeOf(task: AssignedTask<object>, reported?: Update): FuqOutcome {
  const { job, index, attempt, since: started } = task;
  const late = task.timedOut && reported?.success !== true;
  const end = reported === undefined ? {} : outcomeFromStatus(reported.success, reported.status);
  return { job, index, attempt, started, ended: now(), ...end, ...(late ? { timedOut: true } : {}) };
}

/** A fuq worker sends no output. The output of its task says where the log is. */
export function recordOutcome(core: Core, id: WorkerId, done: FuqOutcome, recorded: () => void): void {
  const { job, index, attempt } = done;
  const bytes = Buffer.from(logNotice(core, id, core.job(job), index));
  core.workerOutput(id, [{ job, index, attempt, stream: "stderr", offset: 0, bytes }], () => {});
  core.workerDone(id, [{ ...done, outputBytes: bytes.length }], recorded);
}

function logNotice(core: Core, id: WorkerId, job: Job | undefined, index: TaskIndex): string {
  if (job === undefined) return "";
  const { name, loggingDir } = logLocation(job);
  const path = join(loggingDir, `${name}_${taskNumber(job, index)}.log`);
  return `laboro: the log is ${path} on worker ${core.worker(id)?.profile.name ?? id}\n`;
}

/**
 * Records an UPDATE of a worker that has not joined. Resolves when it is recorded, or if the worker has no such task.
 */
export async function recordBeforeJoin(core: Core, id: WorkerId, update: Update): Promise<void> {
  await core.claimedBy(id);
  const job = JobId(update.jobId);
  const index = indexOfPair(core, update) ?? -1;
  const claim = core.claimOf(id, job, index);
  if (claim === undefined) return;
  const { attempt, startedAt: started = now() } = claim;
  const end = { started, ended: now(), ...outcomeFromStatus(update.success, update.status) };
  await new Promise<void>((resolve) => recordOutcome(core, id, { job, index, attempt, ...end }, resolve));
}

/**
 * The connection of a fuq worker, as its session sees it. `Out`: the messages of the version that the session speaks.
 */
export interface WorkerConnection<Out = Message> {
  readonly core: Core;
  readonly log: Log;
  readonly profile: Pick<WorkerProfile, "protocol" | "pool" | "address" | "graceMs">;
  /** Of the node, or `PREFIX:HOST:PORT` of a raw connection. */
  readonly id: WorkerId;
  /** The worker whose cookie came with a WebSocket. */
  readonly node?: FuqNode;
  send(message: Out): void;
  /** Nothing is sent afterwards. `code` is a WebSocket close code. */
  close(code?: number, reason?: string): void;
  onPeerError(why: string): void;
  onNamed(name: string): void;
}

/** How many tasks of a HELLO are looked up. */
const MAX_LOOKUPS = 64;

/**
 * The worker as the core sees it. A raw connection is known by its address, which changes with each connection. If its
 * HELLO lists a task that is kept for a disconnected worker of the same host, as after a restart of the broker, it is
 * that worker.
 */
export function profileOf({ core, id, node, profile }: WorkerConnection<never>, hello?: Hello): TaskWorkerProfile {
  const common = { ...profile, ...FUQ_WORKER };
  if (node !== undefined) {
    const { uniqueName: name, tags } = node.info;
    return { ...common, id, session: SessionId(name), name, tags, resumable: true };
  }
  const pairs = (hello?.running ?? []).slice(0, MAX_LOOKUPS).map(pairOf);
  const own = absentOwnerOf(core, id, pairs) ?? id;
  const name = own.slice(own.indexOf(":") + 1);
  return { ...common, id: own, session: SessionId(own), name, tags: [], resumable: false };
}

/** The disconnected worker of the same host for which one of these tasks is kept. */
export function absentOwnerOf(core: Core, id: WorkerId, pairs: readonly TaskPair[]): WorkerId | undefined {
  if (pairs.length === 0) return undefined;
  const host = id.slice(0, id.lastIndexOf(":") + 1);
  const isHeldBy = (owner: WorkerId, pair: TaskPair): boolean =>
    core.claimOf(owner, JobId(pair.jobId), indexOfPair(core, pair) ?? -1) !== undefined;
  return core
    .workers()
    .filter(({ connected, profile }) => !connected && profile.id.startsWith(host))
    .find(({ profile }) => pairs.some((pair) => isHeldBy(profile.id, pair)))?.profile.id;
}
