/** Messages in readable form, with the field names that are on the wire. */
import type { TracedMessage } from "../../base/traced-connections.js";
import type { Bytes } from "../../model/recipe.js";
import { splitCounts } from "./codec.js";
import type { MessageV1, UnreadableV1 } from "./codec-v1.js";
import { ERRORS, errorName, type Message, STATUSES, STOP_AT_ONCE, type Task, type Unreadable } from "./messages.js";
import { descriptionFields, pairFields, updateFields } from "./payloads.js";

type Fields = TracedMessage["fields"];

export function describeMessage(message: Message | Unreadable): TracedMessage {
  return { name: message.type, fields: fieldsOf(message) };
}

function fieldsOf(message: Message | Unreadable): Fields {
  const { seq } = message;
  switch (message.type) {
    case "OK":
      return { seq, nproc: message.nproc, nrun: message.nrun };
    case "HELLO":
      return message.hello === undefined
        ? { seq }
        : { seq, NumProcs: message.hello.numProcs, Running: message.hello.running?.map(taskFields) ?? null };
    case "JOB":
      return { seq, tasks: message.tasks.map(taskFields) };
    case "UPDATE":
      return { seq, ...updateFields(message.update) };
    case "CANCEL":
      return { seq, tasks: message.pairs.map(pairFields) };
    case "STOP":
      return { seq, n: describeCount(message.count) };
    case "ERROR":
      return { seq, code: errorName(message.code), ...errorArgument(message.code, message.arg0) };
    case "RESET":
      return { seq, lastReply: message.lastReply };
    case "LIST":
      return { seq, arg0: message.arg0 };
    case "?":
      return { seq, type: message.number };
  }
}

export function describeMessageV1(message: MessageV1 | UnreadableV1): TracedMessage {
  return { name: message.type, fields: fieldsOfV1(message) };
}

function fieldsOfV1(message: MessageV1 | UnreadableV1): Fields {
  switch (message.type) {
    case "OK":
      return { nproc: message.nproc };
    case "JOB":
      return taskFields(message.task);
    case "UPDATE":
      return updateFields(message.update);
    case "STOP":
      return { n: describeCount(message.count) };
    case "ERROR":
      return { code: errorName(message.code) };
    case "?":
      return { type: message.number };
  }
}

function taskFields({ task, job }: Task): Fields {
  const { name, workingDir, loggingDir, command, status } = job;
  return {
    Task: task,
    ...descriptionFields(job),
    Name: text(name),
    WorkingDir: text(workingDir),
    LoggingDir: text(loggingDir),
    Command: text(command),
    Status: STATUSES[status] ?? status,
  };
}

function errorArgument(code: number, arg0: number): Fields {
  if (code === ERRORS.no_procs) return splitCounts(arg0);
  return arg0 === 0 ? {} : { arg0 };
}

const describeCount = (count: number): number | string => (count === STOP_AT_ONCE ? "at once" : count);

const text = (value: Bytes): string => (typeof value === "string" ? value : Buffer.from(value).toString("latin1"));
