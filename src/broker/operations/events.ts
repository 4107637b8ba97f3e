/** Operations to observe the broker: events, connections and their decoded messages. */
import { now } from "../../base/clock.js";
import { badInput } from "../../base/errors.js";
import type { TracedConnection } from "../../base/traced-connections.js";
import { END_STATES } from "../../model/job.js";
import type { ReadType } from "../../model/schema.js";
import * as s from "../../model/schema.js";
import { waitForNext } from "../events.js";
import { index, limit, number, operation, progress, rangesOut, waitMs } from "./operation.js";

const EVENT_PAGE = 1_000;
const counters = s.object({ succeeded: s.count(), failed: s.count(), cancelled: s.count() });

/** One object for all kinds; its fields depend on the kind. */
export const eventView = s.object({
  id: s.count(),
  at: s.number("milliseconds since 1970"),
  kind: s.choice(
    "job-added",
    "job-edited",
    "job-held",
    "job-released",
    "job-due",
    "job-cancelled",
    "job-rerun",
    "job-ended",
    "job-removed",
    "tasks-ended",
    "task-progress",
    "worker-joined",
    "worker-disconnected",
    "worker-left",
    "worker-draining",
    "worker-undrained",
    "pool-paused",
    "pool-resumed",
    "schedule-set",
    "schedule-removed",
    "schedule-paused",
    "schedule-resumed",
    "schedule-run",
    "schedule-skipped",
    "allocator-log",
    "broker-halted",
    "broker-resumed",
  ),
  job: s.optional(s.count()),
  name: s.optional(s.text()),
  count: s.optional(s.count()),
  state: s.optional(s.choice(...END_STATES)),
  tasks: s.optional(rangesOut),
  reason: s.optional(s.text()),
  succeeded: s.optional(rangesOut),
  failed: s.optional(rangesOut),
  cancelled: s.optional(rangesOut),
  index: s.optional(index),
  number: s.optional(number),
  attempt: s.optional(s.count()),
  progress: s.optional(progress),
  truncated: s.optional(s.flag("not all tasks are listed; the counters are complete")),
  counters: s.optional(counters),
  worker: s.optional(s.text()),
  pool: s.optional(s.text()),
  schedule: s.optional(s.text()),
  allocator: s.optional(s.text()),
  due: s.optional(s.number("the point in time that a run is for, in milliseconds since 1970")),
  code: s.optional(s.text()),
  message: s.optional(s.text(65_536)),
});

const input = s.object({
  after: s.optional(s.count("the last event that was read; 0 for all that are kept; new events only if absent")),
  job: s.optional(s.integer(1, Number.MAX_SAFE_INTEGER, "of this job only")),
  limit: limit(EVENT_PAGE),
  waitMs,
});

export const events = operation({
  name: "events",
  role: "read",
  method: "GET",
  path: "/events",
  summary: "Events after a given one; over HTTP also as a stream (text/event-stream)",
  input,
  output: s.object({
    events: s.list(eventView, EVENT_PAGE),
    last: s.count("give this as after for the next page"),
    missed: s.flag("events before these are no longer kept"),
  }),
  perform: async (core, given: ReadType<typeof input>, { signal }) => {
    const after = given.after ?? core.events.last;
    const deadline = now() + given.waitMs;
    let missed = false;
    for (let from = after; ; ) {
      const page = core.events.after(from, given.limit, given.job);
      missed ||= page.missedUntil !== undefined;
      const left = deadline - now();
      if (page.events.length > 0 || left <= 0 || signal.aborted || missed)
        return { events: page.events, last: page.last, missed };
      from = page.last;
      await waitForNext((wake: (_?: undefined) => void) => core.events.followers.add(wake), left, signal);
    }
  },
});

const CONNECTION_PAGE = 500;

const shape = {
  id: s.count(),
  protocol: s.text(),
  address: s.text(),
  peer: s.described(s.text(), "its name, if it has sent one"),
  opened: s.number("milliseconds since 1970"),
  recording: s.flag("its messages are being recorded"),
} as const;

/** The fields of a message depend on its protocol. */
const anything: s.Schema<unknown> = { read: (value) => value, json: () => ({}) };

export const connections = operation({
  name: "connections",
  role: "read",
  method: "GET",
  path: "/connections",
  summary: "Open connections, the newest first",
  input: s.object({
    from: s.withDefault(s.count("skip this many"), 0),
    limit: limit(CONNECTION_PAGE, 100),
    find: s.optional(s.described(s.text(), "part of its protocol, address or peer")),
  }),
  output: s.object({
    connections: s.list(s.object(shape), CONNECTION_PAGE),
    total: s.count("how many match"),
  }),
  perform: (_core, given, { info }) => {
    const text = given.find?.toLowerCase();
    const all = [...info.connections.all()].filter((one) => text === undefined || mentions(one, text)).reverse();
    return { connections: all.slice(given.from, given.from + given.limit).map(viewOf), total: all.length };
  },
});

const mentions = ({ protocol, address, peer }: TracedConnection, text: string): boolean =>
  [protocol, address, peer].some((one) => one.toLowerCase().includes(text));

const viewOf = ({ id, protocol, address, peer, opened, recording }: TracedConnection) => ({
  id,
  protocol,
  address,
  peer,
  opened,
  recording,
});

const message = s.object({
  number: s.count(),
  at: s.number("milliseconds since 1970"),
  from: s.choice("peer", "broker"),
  name: s.described(s.text(), "in the words of the protocol"),
  fields: s.described(s.record(anything), "readable by people; long ones are cut"),
  bytes: s.optional(s.count("its size on the wire, if known")),
});

export const connection = operation({
  name: "connection",
  // The messages contain bodies of other people's requests.
  role: "admin",
  method: "GET",
  path: "/connections/{id}",
  summary: "The recorded messages of a connection; the first call starts the recording",
  input: s.object({
    id: s.count("as connections lists it"),
    after: s.withDefault(s.count("the number of the last message that was read"), 0),
  }),
  output: s.object({
    ...shape,
    closed: s.flag("the connection has ended"),
    messages: s.list(message, CONNECTION_PAGE),
  }),
  perform: (_core, given, { info }) => {
    const found = info.connections.get(given.id);
    if (found === undefined) {
      throw badInput(`there is no connection ${given.id}: it was closed and is no longer kept`);
    }
    const messages = found.messagesAfter(given.after);
    return { ...viewOf(found), closed: found.closed, messages };
  },
});
