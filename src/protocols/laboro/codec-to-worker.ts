/** What the broker sends to a worker: the order of the fields on the wire, both ways. */
import { JobId } from "../../model/ids.js";
import { fields, flag, integer, list, unexpectedValue } from "../../model/input.js";
import type { Entries } from "../../model/job.js";
import { FILE_CHUNK } from "../../model/outcome.js";
import { readLinkLimits, readLinkNumbers, readLinkRecipe } from "../../model/recipe.js";
import {
  amount,
  amounts,
  attemptOf,
  body,
  clipped,
  count,
  HEARTBEAT_LIMIT,
  jobId,
  type MessageCodec,
  NAMES_LIMIT,
  name,
  names,
  ROWS_LIMIT,
  type Row,
  rows,
  text,
  textOrBytes,
} from "./codec-fields.js";
import {
  absent,
  chunk,
  HEARTBEAT,
  type MessageCodecs,
  readEnded,
  readRange,
  readTaken,
  tasksMessage,
  writeEnded,
  writeRange,
  writeTaken,
} from "./codec-from-worker.js";
import type { Brokers, ResumedTask, StoreInfo, ToWorker } from "./messages.js";

/** For workers and clients alike. */
export const BROKERS: MessageCodec<Brokers> = {
  number: 30,
  write: (m) => [30, m.urls],
  read: (row) => ({ type: "BROKERS", urls: names(row[1], "urls") }),
};

export const TO_WORKER: MessageCodecs<ToWorker> = {
  HEARTBEAT,
  WELCOME: {
    number: 20,
    write: (m) => [
      20,
      m.version,
      m.broker,
      m.keep.map((task) => [task.job, task.index, task.attempt, task.outputStored]),
      m.drop.map(writeRange),
      m.heartbeatMs,
      m.config,
      m.window,
      m.store,
    ],
    read: (row) => ({
      type: "WELCOME",
      version: count(row[1], "version"),
      broker: name(row[2], "broker"),
      keep: rows(row[3], "keep", readResumedTask),
      drop: rows(row[4], "drop", readRange),
      heartbeatMs: integer(row[5], "heartbeatMs", 1, HEARTBEAT_LIMIT),
      config: fields(row[6], "config"),
      window: count(row[7], "window"),
      store: readStoreInfo(row[8]),
    }),
  },
  RECIPE: {
    number: 21,
    write: (m) => {
      const row: unknown[] = [21, m.job, m.recipe, m.needs, m.limits];
      const rest = [m.numbers, m.acceptedBy, m.key, m.after];
      const last = rest.findLastIndex((field) => field !== undefined);
      for (const field of rest.slice(0, last + 1)) row.push(field ?? null);
      return row;
    },
    read: (row) => ({
      type: "RECIPE",
      job: jobId(row[1]),
      recipe: readLinkRecipe(row[2], "recipe"),
      needs: amounts(row[3], "needs"),
      limits: readLinkLimits(row[4], "limits"),
      ...(absent(row[5]) ? {} : { numbers: readLinkNumbers(row[5]) }),
      ...(absent(row[6]) ? {} : { acceptedBy: name(row[6], "acceptedBy") }),
      ...(absent(row[7]) ? {} : { key: name(row[7], "key") }),
      ...(absent(row[8]) ? {} : { after: list(row[8], "after", NAMES_LIMIT, jobId) }),
    }),
  },
  TASKS: {
    number: 22,
    write: (m) => {
      const row = [22, m.job, m.first, m.last, m.attempt];
      if (m.atOnce !== undefined) return [...row, m.entries ?? null, m.atOnce];
      return m.entries === undefined ? row : [...row, m.entries];
    },
    read: (row) => {
      const range = readRange(row.slice(1));
      return {
        type: "TASKS",
        ...range,
        ...(absent(row[5]) ? {} : { entries: readEntries(row[5], range.last - range.first + 1) }),
        ...(absent(row[6]) ? {} : { atOnce: count(row[6], "atOnce") }),
      };
    },
  },
  ACK: { number: 23, write: (m) => [23, m.seq], read: (row) => ({ type: "ACK", seq: count(row[1], "seq") }) },
  CREDIT: {
    number: 24,
    write: (m) => [24, m.bytes],
    read: (row) => ({ type: "CREDIT", bytes: count(row[1], "bytes") }),
  },
  RETRACT: tasksMessage(25, "RETRACT"),
  CANCEL: tasksMessage(26, "CANCEL"),
  DRAIN: { number: 27, write: () => [27], read: () => ({ type: "DRAIN" }) },
  STOP: {
    number: 28,
    write: (m) => (m.slots === undefined ? [28] : [28, m.slots]),
    read: (row) => ({
      type: "STOP",
      ...(absent(row[1]) ? {} : { slots: row[1] === "now" ? "now" : count(row[1], "slots") }),
    }),
  },
  CONFIG: {
    number: 29,
    write: (m) => [29, m.config],
    read: (row) => ({ type: "CONFIG", config: fields(row[1], "config") }),
  },
  BROKERS,
  CALL: {
    number: 31,
    write: (m) => [31, m.id, m.service, m.body, m.deadline],
    read: (row) => ({
      type: "CALL",
      id: count(row[1], "id"),
      service: name(row[2], "service"),
      body: body(row[3], "body"),
      deadline: amount(row[4], "deadline"),
    }),
  },
  CANCEL_CALL: {
    number: 32,
    write: (m) => [32, m.id],
    read: (row) => ({ type: "CANCEL_CALL", id: count(row[1], "id") }),
  },
  RESULTS: {
    number: 34,
    write: (m) => {
      const row = [34, m.id, m.tasks.map((task) => writeEnded(JobId(0), task)), m.service ?? null, m.next ?? null];
      return m.refused === undefined ? row : [...row, clipped(m.refused)];
    },
    read: (row) => ({
      type: "RESULTS",
      id: count(row[1], "id"),
      tasks: rows(row[2], "tasks", readEnded),
      ...(absent(row[3]) ? {} : { service: name(row[3], "service") }),
      ...(absent(row[4]) ? {} : { next: count(row[4], "next") }),
      ...(absent(row[5]) ? {} : { refused: text(row[5], "refused") }),
    }),
  },
  FILE: {
    number: 35,
    write: (m) => [35, m.id, m.bytes, ...(m.refused === undefined ? [] : [clipped(m.refused)])],
    read: (row) => ({
      type: "FILE",
      id: count(row[1], "id"),
      bytes: chunk(row[2], FILE_CHUNK),
      ...(absent(row[3]) ? {} : { refused: text(row[3], "refused") }),
    }),
  },
  RELAYED: {
    number: 33,
    write: (m) => [33, ...writeTaken(m)],
    read: (row) => ({ type: "RELAYED", ...readTaken(row.slice(1)) }),
  },
};

function readStoreInfo(value: unknown): StoreInfo {
  const { identity, epoch, older } = fields(value, "store");
  return { identity: name(identity, "identity"), epoch: count(epoch, "epoch"), older: flag(older, "older") };
}

function readResumedTask(row: Row): ResumedTask {
  return {
    job: jobId(row[0]),
    index: count(row[1], "index"),
    attempt: attemptOf(row[2]),
    outputStored: count(row[3], "outputStored"),
  };
}

function readEntries(value: unknown, size: number): Entries {
  const entries = list(value, "entries", ROWS_LIMIT, textOrBytes);
  if (entries.length !== size) throw unexpectedValue("entries", `one for each of ${size} tasks`, entries.length);
  return entries;
}
