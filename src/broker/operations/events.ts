/** Following events. */

import { now } from "../../base/clock.js";
import { END_STATES } from "../../model/job.js";
import type { ReadType } from "../../model/schema.js";
import * as s from "../../model/schema.js";
import { waitForNext } from "../watchers.js";
import { operation } from "./operation.js";
import { index, limit, number, progress, rangesOut, waitMs } from "./shared-fields.js";

const PAGE = 1_000;
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
  limit: limit(PAGE),
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
    events: s.list(eventView, PAGE),
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
