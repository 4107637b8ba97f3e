/** A task's output, page by page or followed while it is written. Files of jobs and tasks, a part at a time. */
import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import { type JobId, taskKey } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import { MAX_TASKS } from "../../model/job-input.js";
import { FILE_CHUNK } from "../../model/outcome.js";
import * as s from "../../model/schema.js";
import type { OutputPage } from "../../model/store-reads.js";
import { MAX_FILES } from "../../model/task-files.js";
import { taskNumber } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { waitForNext } from "../events.js";
import { localClaim, taskLocation } from "../group/group-view.js";
import { index, job, limit, operation, requireOpenJob, waitMs } from "./operation.js";
import { requireTask, resultOf } from "./task.js";

const PAGE = 1024 * 1024;
/** Output that arrives at another broker is not announced here, so it is polled. */
const POLL_MS = 300;

const piece = s.object({
  stream: s.choice("stdout", "stderr"),
  offset: s.count("position in the attempt's output, both streams counted together"),
  bytes: s.bytes(),
});

const input = s.object({
  job,
  index,
  attempt: s.optional(s.integer(1, MAX_TASKS, "the latest if absent")),
  stream: s.optional(s.described(s.choice("stdout", "stderr"), "only this stream")),
  from: s.withDefault(s.count("from this offset on"), 0),
  limit: limit(PAGE),
  waitMs,
});

const page = s.object({
  pieces: s.list(piece, PAGE),
  attempt: s.optional(s.count("whose output it is, if known")),
  next: s.optional(s.count("where the next page begins; absent if no more is stored")),
  endOffset: s.count("give this as from to follow"),
  ended: s.flag("this attempt will write nothing more"),
});

export const output = operation({
  name: "output",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}/output",
  summary: "Output of a task; a gap in the offsets is output that the cap dropped",
  input,
  output: page,
  perform: async (core, given, { signal }) => {
    const owner = await requireTask(core, given);
    await core.loadJobs([given.job]);
    const deadline = now() + given.waitMs;
    for (;;) {
      const done = new AbortController();
      const stop = AbortSignal.any([signal, done.signal]);
      // Watch first, then read: bytes that arrive in between are seen by one of the two.
      const nextUpdate = waitForNext(
        (listener: (update: undefined) => void) => core.taskUpdates.watch(taskKey(given.job, given.index), listener),
        Math.min(Math.max(0, deadline - now()), isAtPeer(core, given) ? POLL_MS : Number.POSITIVE_INFINITY),
        stop,
      );
      try {
        const found = await readPage(core, owner, given);
        if (found.pieces.length > 0 || found.ended || now() >= deadline || signal.aborted) return found;
        await nextUpdate;
      } finally {
        done.abort();
      }
    }
  },
});

const isAtPeer = (core: Core, { job, index }: { job: JobId; index: number }): boolean =>
  core.peers !== undefined && localClaim(core, job, index) === undefined;

async function readPage(core: Core, owner: Job, given: s.ReadType<typeof input>): Promise<s.ReadType<typeof page>> {
  const { attempt, ended } = await attemptOf(core, owner, given);
  const { from, limit, stream } = given;
  const found = await core.store.output(given.job, given.index, {
    from,
    limit,
    ...(attempt === undefined ? {} : { attempt }),
    ...(stream === undefined ? {} : { stream }),
  });
  return {
    pieces: found.pieces,
    ...(attempt === undefined ? {} : { attempt }),
    ...(found.next === undefined ? {} : { next: found.next }),
    endOffset: endOf(found, from),
    ended: ended && found.next === undefined,
  };
}

interface AttemptChoice {
  readonly job: JobId;
  readonly index: number;
  readonly attempt?: number;
}

/** The attempt to read, and whether it has ended. Read before its output, so that no output arrives later. */
async function attemptOf(core: Core, owner: Job, given: AttemptChoice): Promise<{ attempt?: number; ended: boolean }> {
  const { attempt } = given;
  const here = localClaim(core, given.job, given.index);
  const result = here === undefined ? await resultOf(core, given) : undefined;
  if (result !== undefined) {
    requireAttempt(owner, given, result.attempt);
    return { attempt: attempt ?? result.attempt, ended: true };
  }
  const at = here ?? (await taskLocation(core, given.job, given.index)).claim;
  requireAttempt(owner, given, at?.attempt);
  if (at !== undefined) return { attempt: attempt ?? at.attempt, ended: attempt !== undefined && attempt < at.attempt };
  // The task waits, or was cancelled before it ran: the store has the output of the latest attempt that wrote any.
  if (attempt === undefined) return { ended: !core.state.jobs.has(given.job) };
  return { attempt, ended: await isEarlier(core, given, attempt) };
}

/** A task has had the attempts from 1 to the last one. */
function requireAttempt(owner: Job, { index, attempt = 1 }: AttemptChoice, last = Number.POSITIVE_INFINITY): void {
  if (attempt >= 1 && attempt <= last) return;
  const had = last === Number.POSITIVE_INFINITY ? "" : `: the last is attempt ${last}`;
  throw new LaboroError(
    "LABORO_NO_SUCH_TASK",
    `task ${taskNumber(owner, index)} of job ${owner.id} has had no attempt ${attempt}${had}`,
  );
}

/**
 * An attempt without a claim may still be running: its result, with small output, may not be committed yet. And while a
 * worker moves to another broker, no broker has the claim of a running attempt.
 */
async function isEarlier(core: Core, { job, index }: { job: JobId; index: number }, attempt: number): Promise<boolean> {
  if (!core.state.jobs.has(job)) return true;
  return (await core.store.earlierAttempts(job, index)).some((one) => one.attempt === attempt);
}

function endOf({ pieces, next }: OutputPage, from: number): number {
  const last = pieces.at(-1);
  return next ?? (last === undefined ? from : last.offset + last.bytes.length);
}

const from = s.withDefault(s.count("from this offset on"), 0);

const part = s.mapped(s.bytes(), (given, what) => {
  s.integer(0, FILE_CHUNK).read(given.length, `the length of ${what}`);
  return given;
});

export const sendFile = operation({
  name: "sendFile",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/files/{file}",
  summary: "Send a part of a file that goes with the job; without bytes, ask how much of it is stored",
  input: s.object({
    job,
    file: s.integer(0, MAX_FILES - 1, "its place in recipe.files.sent"),
    from,
    bytes: s.optional(s.described(part, `at most ${FILE_CHUNK} bytes`)),
  }),
  bodyLimit: 2 * FILE_CHUNK,
  output: s.object({ stored: s.count("how much of the file is stored: the next part begins there") }),
  perform: async (core, { job: id, file, from: at, bytes = new Uint8Array(0) }) => ({
    stored: await core.files.writeSent(await requireOpenJob(core, id), file, at, bytes),
  }),
});

export const returnedFiles = operation({
  name: "returnedFiles",
  role: "client",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}/files",
  summary: "Files that a task has returned, as one stream of records",
  input: s.object({
    job,
    index,
    attempt: s.optional(s.integer(1, MAX_TASKS, "that of the result if absent")),
    from,
  }),
  output: s.object({
    bytes: s.bytes(),
    next: s.optional(s.count("where the next part begins; absent on the last")),
  }),
  perform: async (core, given) => {
    await requireTask(core, given);
    const attempt = given.attempt ?? (await resultOf(core, given))?.attempt;
    if (attempt === undefined) return { bytes: new Uint8Array(0) };
    return core.files.readReturned(given.job, given.index, attempt, given.from);
  },
});
