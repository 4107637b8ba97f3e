/** How the broker is, and a link for a browser. */

import { finishedCount } from "../../model/job.js";
import * as s from "../../model/schema.js";
import { now } from "../clock.js";
import type { Core } from "../core.js";
import { nothing } from "./members.js";
import { operation } from "./operation.js";

export const status = operation({
  name: "status",
  role: "any",
  method: "GET",
  path: "/status",
  summary: "How the broker is: what waits, what runs, who is there",
  input: nothing,
  output: s.object({
    version: s.text(),
    epoch: s.described(s.count(), "rises with every start of a broker on this data"),
    started: s.described(s.number(), "milliseconds since 1970"),
    uptimeMs: s.number(),
    doors: s.list(s.object({ name: s.text(), url: s.text() }), 100),
    refusing: s.optional(
      s.described(s.object({ code: s.text(), message: s.text(65_536) }), "why nothing new is taken"),
    ),
    jobs: s.object({ held: s.count(), blocked: s.count(), waiting: s.count(), running: s.count() }),
    tasks: s.object({ waiting: s.count(), running: s.count() }),
    workers: s.object({ connected: s.count(), away: s.count(), draining: s.count() }),
    slots: s.object({ total: s.number(), free: s.number() }),
    requests: s.object({ waiting: s.count(), running: s.count() }),
    lastEvent: s.count(),
  }),
  perform: (core, _given, { broker }) => {
    const { refusing } = core;
    return {
      version: broker.version,
      epoch: core.state.epoch,
      started: core.started,
      uptimeMs: now() - core.started,
      doors: broker.doors(),
      ...(refusing === undefined ? {} : { refusing: { code: refusing.code, message: refusing.message } }),
      ...workIn(core),
      ...workersIn(core),
      requests: requestsIn(core),
      lastEvent: core.events.last,
    };
  },
});

function workIn(core: Core) {
  const jobs = { held: 0, blocked: 0, waiting: 0, running: 0 };
  const tasks = { waiting: 0, running: 0 };
  for (const { id, job, held, blockedBy, out } of core.state.jobs.values()) {
    jobs[held ? "held" : blockedBy.size > 0 ? "blocked" : out > 0 ? "running" : "waiting"]++;
    const left = job.count - finishedCount(core.jobs.countersOf(id) ?? job.counters);
    tasks.running += Math.min(out, left);
    tasks.waiting += Math.max(0, left - out);
  }
  return { jobs, tasks };
}

function workersIn(core: Core) {
  const workers = { connected: 0, away: 0, draining: 0 };
  const slots = { total: 0, free: 0 };
  for (const { connected, draining, profile, free } of core.state.workers.values()) {
    workers[connected ? "connected" : "away"]++;
    if (draining) workers.draining++;
    if (!connected) continue;
    slots.total += profile.total.slots;
    slots.free += Math.max(0, free.slots ?? 0);
  }
  return { workers, slots };
}

function requestsIn(core: Core): { waiting: number; running: number } {
  let waiting = 0;
  for (const { forRequests, requests } of core.state.signatures.values()) if (forRequests) waiting += requests.size;
  return { waiting, running: core.state.requests.size - waiting };
}

export const entry = operation({
  name: "entry",
  role: "read",
  method: "POST",
  path: "/entry",
  summary: "A link that lets a browser in once, with the role of who asks",
  input: nothing,
  output: s.object({ code: s.text(), url: s.text(), expires: s.number() }),
  perform: (_core, _given, { broker, role }) => broker.newEntry(role),
});
