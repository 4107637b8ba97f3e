/** What a client and the broker send each other: the order of the fields on the wire, both ways. */
import { flag, integer } from "../../model/input.js";
import { DEFAULT_POOL } from "../../model/recipe.js";
import { amount, body, clipped, count, errorCode, jobId, name, text } from "./codec-fields.js";
import { absent, HEARTBEAT, type MessageCodecs, RELAY, readTaken, writeTaken } from "./codec-from-worker.js";
import { HEARTBEAT_LIMIT } from "./codec-limits.js";
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
    write: (m) => [44, m.job],
    read: (row) => ({ type: "FOLLOW", job: jobId(row[1]) }),
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
    write: (m) => (m.error === undefined ? [51, m.id, m.body] : [51, m.id, m.body, m.error]),
    read: (row) => ({
      type: "RESPONSE",
      id: count(row[1], "id"),
      body: body(row[2], "body"),
      ...(absent(row[3]) ? {} : { error: errorCode(row[3], "error") }),
    }),
  },
  RESULT: {
    number: 52,
    write: (m) => (m.value === undefined ? [52, m.id] : [52, m.id, m.value]),
    read: (row) => ({ type: "RESULT", id: count(row[1], "id"), value: row[2] }),
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
