/** What a client and the broker send each other: the order of the fields on the wire, both ways. */
import { flag, integer, unexpectedValue } from "../../model/input.js";
import { type Counters, END_STATES } from "../../model/job.js";
import type { RunningTask } from "../../model/outcome.js";
import type { Ranges } from "../../model/ranges.js";
import { DEFAULT_POOL } from "../../model/recipe.js";
import {
  amount,
  attemptOf,
  body,
  clipped,
  count,
  enumValue,
  errorCode,
  HEARTBEAT_LIMIT,
  jobId,
  name,
  type Row,
  rows,
  text,
} from "./codec-fields.js";
import {
  absent,
  HEARTBEAT,
  type MessageCodecs,
  RELAY,
  readEnded,
  readReply,
  readTaken,
  writeEnded,
  writeReply,
  writeTaken,
} from "./codec-from-worker.js";
import { BROKERS } from "./codec-to-worker.js";
import type { FromClient, ToClient } from "./messages.js";

export const FROM_CLIENT: MessageCodecs<FromClient> = {
  HEARTBEAT,
  HELLO: {
    number: 40,
    write: (m) => [40, m.version, m.name],
    read: (row) => ({ type: "HELLO", version: count(row[1], "version"), name: name(row[2], "name") }),
  },
  REQUEST: {
    number: 41,
    // The default pool and no retry are what most requests have: left out, they cost nothing.
    write: (m) => {
      const row: unknown[] = [41, m.id, m.service, m.body, m.deadline];
      if (m.retry || m.pool !== DEFAULT_POOL) row.push(m.pool);
      if (m.retry) row.push(true);
      return row;
    },
    read: (row) => ({
      type: "REQUEST",
      id: count(row[1], "id"),
      service: name(row[2], "service"),
      body: body(row[3], "body"),
      deadline: amount(row[4], "deadline"),
      pool: absent(row[5]) ? DEFAULT_POOL : name(row[5], "pool"),
      retry: absent(row[6]) ? false : flag(row[6], "retry"),
    }),
  },
  CANCEL_REQUEST: {
    number: 42,
    write: (m) => [42, m.id],
    read: (row) => ({ type: "CANCEL_REQUEST", id: count(row[1], "id") }),
  },
  OPERATION: {
    number: 43,
    // The input comes last: a large one is read in another thread.
    write: (m) => {
      const head = [43, m.id, m.deadline ?? null, m.operation];
      return m.input === undefined ? head : [...head, m.input];
    },
    read: (row) => ({
      type: "OPERATION",
      id: count(row[1], "id"),
      ...(absent(row[2]) ? {} : { deadline: amount(row[2], "deadline") }),
      operation: name(row[3], "operation"),
      input: row[4],
    }),
  },
  FOLLOW: {
    number: 44,
    write: (m) => [44, m.id, m.job, m.tasks, m.live, m.relay, m.has.map(({ first, last }) => [first, last])],
    read: (row) => ({
      type: "FOLLOW",
      id: count(row[1], "id"),
      job: jobId(row[2]),
      tasks: flag(row[3], "tasks"),
      live: flag(row[4], "live"),
      relay: flag(row[5], "relay"),
      has: readHas(row[6]),
    }),
  },
  FOLLOW_CREDIT: {
    number: 46,
    write: (m) => [46, m.id, m.tasks],
    read: (row) => ({ type: "FOLLOW_CREDIT", id: count(row[1], "id"), tasks: count(row[2], "tasks") }),
  },
  TAKEN: {
    number: 45,
    write: (m) => [45, ...writeTaken(m)],
    read: (row) => ({ type: "TAKEN", ...readTaken(row.slice(1)) }),
  },
};

export const TO_CLIENT: MessageCodecs<ToClient> = {
  HEARTBEAT,
  BROKERS,
  RELAY,
  HELLO_ACK: {
    number: 50,
    write: (m) => [50, m.version, m.broker, m.heartbeatMs],
    read: (row) => ({
      type: "HELLO_ACK",
      version: count(row[1], "version"),
      broker: name(row[2], "broker"),
      heartbeatMs: integer(row[3], "heartbeatMs", 1, HEARTBEAT_LIMIT),
    }),
  },
  RESPONSE: {
    number: 51,
    write: (m) => [51, ...writeReply(m)],
    read: (row) => ({ type: "RESPONSE", ...readReply(row) }),
  },
  RESULT: {
    number: 52,
    write: (m) => (m.value === undefined ? [52, m.id] : [52, m.id, m.value]),
    read: (row) => ({ type: "RESULT", id: count(row[1], "id"), value: row[2] }),
  },
  PROGRESS: {
    number: 54,
    write: (m) => [
      54,
      m.id,
      m.job,
      m.tasks.map((task) => writeEnded(m.job, task)),
      m.counters === undefined ? null : [m.counters.succeeded, m.counters.failed, m.counters.cancelled],
      m.running?.map(({ index, number, attempt }) => [index, number, attempt]) ?? null,
      m.held ?? null,
      m.ended === undefined ? null : END_STATES.indexOf(m.ended),
    ],
    read: (row) => ({
      type: "PROGRESS",
      id: count(row[1], "id"),
      job: jobId(row[2]),
      tasks: rows(row[3], "tasks", readEnded),
      ...(absent(row[4]) ? {} : { counters: readCounters(row[4]) }),
      ...(absent(row[5]) ? {} : { running: rows(row[5], "running", readRunning) }),
      ...(absent(row[6]) ? {} : { held: flag(row[6], "held") }),
      ...(absent(row[7]) ? {} : { ended: enumValue(row[7], "ended", END_STATES) }),
    }),
  },
  ERROR: {
    number: 53,
    write: (m) => [53, m.id, m.code, clipped(m.message)],
    read: (row) => ({
      type: "ERROR",
      id: count(row[1], "id"),
      code: errorCode(row[2], "code"),
      message: text(row[3], "message"),
    }),
  },
};

const readRunning = (row: Row): RunningTask => ({
  index: count(row[0], "index"),
  number: count(row[1], "number"),
  attempt: attemptOf(row[2]),
});

function readCounters(value: unknown): Counters {
  if (!Array.isArray(value)) throw unexpectedValue("counters", "a row", value);
  const [succeeded, failed, cancelled] = value as unknown[];
  return {
    succeeded: count(succeeded, "succeeded"),
    failed: count(failed, "failed"),
    cancelled: count(cancelled, "cancelled"),
  };
}

/** In order, without overlaps, as ranges are everywhere. */
function readHas(value: unknown): Ranges {
  let end = -2;
  return rows(value, "has", (row) => {
    const first = integer(row[0], "first", end + 2, Number.MAX_SAFE_INTEGER);
    end = integer(row[1], "last", first, Number.MAX_SAFE_INTEGER);
    return { first, last: end };
  });
}
