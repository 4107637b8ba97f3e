/** What a worker sends: the order of the fields on the wire, both ways. */
import { badInput } from "../../base/errors.js";
import { type JobId, SessionId } from "../../model/ids.js";
import { fields, flag, integer, unexpectedValue } from "../../model/input.js";
import { END_STATES } from "../../model/job.js";
import {
  type EndedTask,
  FILE_CHUNK,
  MAX_VALUE,
  OUTPUT_STREAMS,
  SMALL_OUTPUT,
  type SmallOutput,
} from "../../model/outcome.js";
import type { RememberedStore } from "../../model/store.js";
import {
  amount,
  amounts,
  attemptOf,
  body,
  clipped,
  count,
  enumValue,
  errorCode,
  jobId,
  type MessageCodec,
  name,
  names,
  type Row,
  rows,
  SHORTEST_SECRET,
  text,
} from "./codec-fields.js";
import {
  type AttemptRange,
  type DoneTask,
  type FromWorker,
  type HeldState,
  type HeldTasks,
  OUTPUT_CHUNK,
  type ServiceReply,
  type TakenOutput,
  type TaskOutput,
  type TaskRef,
} from "./messages.js";

export type MessageCodecs<Message extends { readonly type: string }> = {
  readonly [Type in Message["type"]]: MessageCodec<Extract<Message, { readonly type: Type }>>;
};

const HELD_STATES: readonly HeldState[] = ["prefetched", "running", "finished"];
const MAX_POSITION = 2 ** 50;

export const HEARTBEAT: MessageCodec<{ readonly type: "HEARTBEAT" }> = {
  number: 0,
  write: () => [0],
  read: () => ({ type: "HEARTBEAT" }),
};

/** From a worker to the broker, and on to a client. */
export const RELAY: MessageCodec<{ readonly type: "RELAY" } & TaskOutput> = {
  number: 10,
  write: (m) => [10, ...writeOutput(m)],
  read: (row) => ({ type: "RELAY", ...readOutput(row.slice(1)) }),
};

export const FROM_WORKER: MessageCodecs<FromWorker> = {
  HEARTBEAT,
  JOIN: {
    number: 1,
    write: (m) => [
      1,
      m.version,
      m.secret,
      m.session,
      m.name,
      m.total,
      m.tags,
      m.pool,
      m.services,
      m.reserveRequests,
      m.held.map(({ state, acceptedBy, ...range }) => {
        const row = [...writeRange(range), HELD_STATES.indexOf(state)];
        return acceptedBy === undefined ? row : [...row, acceptedBy];
      }),
      ...(m.lifetimeMs === undefined && m.store === undefined && m.tunnelled === undefined
        ? []
        : [m.lifetimeMs ?? null]),
      ...(m.store === undefined && m.tunnelled === undefined ? [] : [m.store ?? null]),
      ...(m.tunnelled === undefined ? [] : [1]),
    ],
    read: (row) => ({
      type: "JOIN",
      version: count(row[1], "version"),
      secret: secret(row[2]),
      session: SessionId(name(row[3], "session")),
      name: name(row[4], "name"),
      total: amounts(row[5], "total"),
      tags: names(row[6], "tags"),
      pool: name(row[7], "pool"),
      services: names(row[8], "services"),
      reserveRequests: count(row[9], "reserveRequests"),
      held: rows(row[10], "held", readHeld),
      ...(absent(row[11]) ? {} : { lifetimeMs: amount(row[11], "lifetimeMs") }),
      ...(absent(row[12]) ? {} : { store: readRemembered(row[12]) }),
      ...(row[13] === 1 ? { tunnelled: true as const } : {}),
    }),
  },
  STARTED: {
    number: 2,
    write: (m) => [2, m.tasks.map((task) => [task.job, task.index, task.attempt])],
    read: (row) => ({ type: "STARTED", tasks: rows(row[1], "tasks", readRef) }),
  },
  DONE: {
    number: 3,
    write: (m) => [3, m.seq, m.tasks.map(writeDone)],
    read: (row) => ({ type: "DONE", seq: count(row[1], "seq"), tasks: rows(row[2], "tasks", readDone) }),
  },
  OUTPUT: {
    number: 4,
    write: (m) => [4, ...writeOutput(m)],
    read: (row) => ({ type: "OUTPUT", ...readOutput(row.slice(1)) }),
  },
  RELAY,
  RETRACTED: tasksMessage(5, "RETRACTED"),
  CANCELLED: tasksMessage(6, "CANCELLED"),
  TASK_PROGRESS: {
    number: 11,
    write: (m) => [11, m.tasks.map(({ job, index, attempt, value }) => [job, index, attempt, value])],
    read: (row) => ({
      type: "TASK_PROGRESS",
      tasks: rows(row[1], "tasks", (task) => ({ ...readRef(task), value: text(task[3], "value") })),
    }),
  },
  GET_RESULTS: {
    number: 12,
    write: (m) => [12, m.id, m.job, m.of, m.from, ...(m.limit === undefined ? [] : [m.limit])],
    read: (row) => ({
      type: "GET_RESULTS",
      id: count(row[1], "id"),
      job: jobId(row[2]),
      of: jobId(row[3]),
      from: count(row[4], "from"),
      ...(absent(row[5]) ? {} : { limit: 1 }),
    }),
  },
  GET_FILE: {
    number: 15,
    write: (m) => [15, m.id, m.job, m.file, m.from],
    read: (row) => ({
      type: "GET_FILE",
      id: count(row[1], "id"),
      job: jobId(row[2]),
      file: count(row[3], "file"),
      from: count(row[4], "from"),
    }),
  },
  PUT_FILE: {
    number: 14,
    write: (m) => [14, m.id, m.job, m.index, m.attempt, m.from, m.bytes],
    read: (row) => ({
      ...{ type: "PUT_FILE", id: count(row[1], "id"), ...readRef(row.slice(2)) },
      from: position(row[5], "from"),
      bytes: chunk(row[6], FILE_CHUNK),
    }),
  },
  REPLY: {
    number: 7,
    write: (m) => [7, ...writeReply(m)],
    read: (row) => ({ type: "REPLY", ...readReply(row) }),
  },
  SERVICES: {
    number: 8,
    write: (m) => {
      if (m.paused !== undefined) return [8, m.services, m.tags ?? null, m.total ?? null, clipped(m.paused)];
      if (m.total !== undefined) return [8, m.services, m.tags ?? null, m.total];
      return m.tags === undefined ? [8, m.services] : [8, m.services, m.tags];
    },
    read: (row) => ({
      type: "SERVICES",
      services: names(row[1], "services"),
      ...(absent(row[2]) ? {} : { tags: names(row[2], "tags") }),
      ...(absent(row[3]) ? {} : { total: amounts(row[3], "total") }),
      ...(absent(row[4]) ? {} : { paused: text(row[4], "paused") }),
    }),
  },
  MACHINE: {
    number: 13,
    write: (m) => [13, m.cpus, m.load, m.memory, m.freeMemory],
    read: (row) => ({
      type: "MACHINE",
      cpus: count(row[1], "cpus"),
      load: amount(row[2], "load"),
      memory: count(row[3], "memory"),
      freeMemory: count(row[4], "freeMemory"),
    }),
  },
  LEAVING: { number: 9, write: () => [9], read: () => ({ type: "LEAVING" }) },
};

/** Absent fields at the end of a row are left out. An absent field in the middle is nil. */
function writeDone(task: DoneTask): Row {
  // A signal and a code exclude each other, so they share a field.
  const end = task.signal ?? task.code ?? null;
  const row: unknown[] = [task.job, task.index, task.attempt, end, task.started, task.ended, task.outputBytes];
  const rest = [
    task.error === undefined ? undefined : clipped(task.error),
    task.output?.map(({ stream, bytes }) => [OUTPUT_STREAMS.indexOf(stream), bytes]),
    task.value,
    task.retryAfterMs,
    task.valueBytes,
    task.cpuMs,
    task.peakMemory,
  ];
  const last = rest.findLastIndex((field) => field !== undefined);
  if (task.timedOut === true || last >= 0) row.push(task.timedOut === true);
  for (const field of rest.slice(0, last + 1)) row.push(field ?? null);
  return row;
}

function readDone(row: Row): DoneTask {
  const task: { -readonly [Key in keyof DoneTask]: DoneTask[Key] } = {
    job: jobId(row[0]),
    index: count(row[1], "index"),
    attempt: attemptOf(row[2]),
    started: time(row[4], "started"),
    ended: time(row[5], "ended"),
    outputBytes: count(row[6], "outputBytes"),
  };
  const end = row[3];
  if (typeof end === "string") task.signal = name(end, "signal");
  else if (!absent(end)) task.code = integer(end, "code", -0x8000_0000, 0xffff_ffff);
  if (!absent(row[7]) && flag(row[7], "timedOut")) task.timedOut = true;
  if (!absent(row[8])) task.error = text(row[8], "error");
  if (!absent(row[9])) task.output = readSmallOutput(row[9], task.outputBytes);
  if (!absent(row[10])) task.value = readValue(row[10]);
  if (!absent(row[11])) task.retryAfterMs = row[11] === "never" ? "never" : time(row[11], "retryAfterMs");
  if (!absent(row[12])) task.valueBytes = count(row[12], "valueBytes");
  if (!absent(row[13])) task.cpuMs = Math.round(time(row[13], "cpuMs"));
  if (!absent(row[14])) task.peakMemory = count(row[14], "peakMemory");
  return task;
}

/** As in DONE, with fields of the broker. */
export const writeEnded = (job: JobId, task: EndedTask): Row => [
  task.number,
  END_STATES.indexOf(task.state),
  task.worker,
  writeDone({ job, ...task }),
];

export function readEnded(row: Row): EndedTask {
  if (!Array.isArray(row[3])) throw unexpectedValue("a task that ended", "a row", row[3]);
  const { job: _, ...outcome } = readDone(row[3]);
  return {
    number: count(row[0], "number"),
    state: enumValue(row[1], "state", END_STATES),
    worker: name(row[2], "worker"),
    ...outcome,
  };
}

function readValue(given: unknown): Uint8Array {
  const value = body(given, "value");
  if (value.length > MAX_VALUE) throw unexpectedValue("value", `at most ${MAX_VALUE} bytes`, value.length);
  return value;
}

function readSmallOutput(value: unknown, outputBytes: number): SmallOutput[] {
  const parts = rows(value, "output", (row) => ({
    stream: enumValue(row[0], "stream", OUTPUT_STREAMS),
    bytes: body(row[1], "bytes"),
  }));
  let size = 0;
  for (const { bytes } of parts) size += bytes.length;
  if (size === 0 || size > SMALL_OUTPUT) throw unexpectedValue("output", `1 to ${SMALL_OUTPUT} bytes`, size);
  if (size !== outputBytes) throw unexpectedValue("output", `${outputBytes} bytes, as in outputBytes`, size);
  return parts;
}

function writeOutput({ job, index, attempt, stream, offset, bytes }: TaskOutput): Row {
  return [job, index, attempt, OUTPUT_STREAMS.indexOf(stream), offset, bytes];
}

function readOutput(row: Row): TaskOutput {
  return {
    ...readRef(row),
    stream: enumValue(row[3], "stream", OUTPUT_STREAMS),
    offset: position(row[4], "offset"),
    bytes: chunk(row[5]),
  };
}

export const writeTaken = ({ job, index, attempt, end }: TakenOutput): Row => [job, index, attempt, end];

export const readTaken = (row: Row): TakenOutput => ({ ...readRef(row), end: count(row[3], "end") });

const readHeld = (row: Row): HeldTasks => ({
  ...readRange(row),
  state: enumValue(row[4], "state", HELD_STATES),
  ...(absent(row[5]) ? {} : { acceptedBy: name(row[5], "acceptedBy") }),
});

function readRemembered(value: unknown): RememberedStore {
  const { identity, epoch, job, acceptedBy } = fields(value, "store");
  const known = { identity: name(identity, "identity"), epoch: count(epoch, "epoch"), job: jobId(job) };
  return absent(acceptedBy) ? known : { ...known, acceptedBy: name(acceptedBy, "acceptedBy") };
}

/** A position plus the length of a message must fit into a store's numbers. */
const position = (value: unknown, what: string): number => integer(value, what, 0, MAX_POSITION);

/** Milliseconds. A handler may ask for a wait that no store can hold. */
const time = (value: unknown, what: string): number => Math.min(amount(value, what), MAX_POSITION);

function secret(value: unknown): string {
  const text = name(value, "secret");
  if (text.length >= SHORTEST_SECRET) return text;
  throw badInput(`secret: expected at least ${SHORTEST_SECRET} characters, got ${text.length}`);
}

function readRef(row: Row): TaskRef {
  return { job: jobId(row[0]), index: count(row[1], "index"), attempt: attemptOf(row[2]) };
}

/** A message with nothing but ranges of tasks. */
export function tasksMessage<Type extends string>(
  number: number,
  type: Type,
): MessageCodec<{ readonly type: Type; readonly tasks: readonly AttemptRange[] }> {
  return {
    number,
    write: ({ tasks }) => [number, tasks.map(writeRange)],
    read: (row) => ({ type, tasks: rows(row[1], "tasks", readRange) }),
  };
}

export const writeRange = (range: AttemptRange): Row => [range.job, range.first, range.last, range.attempt];

export function readRange(row: Row): AttemptRange {
  const first = count(row[1], "first");
  const last = count(row[2], "last");
  if (last < first) throw unexpectedValue("last", `${first}, which is first, or more`, last);
  return { job: jobId(row[0]), first, last, attempt: attemptOf(row[3]) };
}

export const absent = (value: unknown): value is null | undefined => value === undefined || value === null;

export function writeReply({ id, body, error, details }: ServiceReply): unknown[] {
  if (error === undefined) return [id, body];
  return details === undefined ? [id, body, error] : [id, body, error, details];
}

export function readReply(row: Row): ServiceReply {
  return {
    id: count(row[1], "id"),
    body: body(row[2], "body"),
    ...(absent(row[3]) ? {} : { error: errorCode(row[3], "error") }),
    ...(absent(row[4]) ? {} : { details: chunk(row[4], MAX_VALUE) }),
  };
}

export function chunk(value: unknown, most = OUTPUT_CHUNK): Uint8Array {
  const bytes = body(value, "bytes");
  if (bytes.length > most) throw unexpectedValue("bytes", `at most ${most} bytes`, bytes);
  return bytes;
}
