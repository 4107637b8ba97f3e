/** The status of the broker, and a login link for a browser. */

import { now } from "../../base/clock.js";
import * as s from "../../model/schema.js";
import { groupLoad } from "../group/group-view.js";
import { operation } from "./operation.js";
import { pausedPool } from "./pools.js";
import { nothing } from "./shared-fields.js";

export const status = operation({
  name: "status",
  role: "any",
  method: "GET",
  path: "/status",
  summary: "The broker, and the jobs, tasks, workers and requests at all brokers of its group",
  input: nothing,
  output: s.object({
    version: s.described(s.text(), "of laboro"),
    epoch: s.count("rises with every start of a broker on this data"),
    started: s.number("milliseconds since 1970"),
    uptimeMs: s.number(),
    listeners: s.described(s.list(s.object({ name: s.text(), url: s.text() }), 100), "where the broker listens"),
    refusing: s.optional(
      s.described(s.object({ code: s.text(), message: s.text(65_536) }), "why nothing new is accepted"),
    ),
    damage: s.described(
      s.list(s.text(65_536), 1_000),
      "acknowledged data that is missing, until its report is removed",
    ),
    pausedPools: s.list(pausedPool, 100_000),
    jobs: s.described(
      s.object({ held: s.count(), blocked: s.count(), delayed: s.count(), waiting: s.count(), running: s.count() }),
      "open jobs, by state",
    ),
    tasks: s.described(s.object({ waiting: s.count(), running: s.count() }), "of open jobs"),
    workers: s.described(s.object({ connected: s.count(), disconnected: s.count(), draining: s.count() }), "by state"),
    slots: s.described(s.object({ total: s.number(), free: s.number() }), "of connected workers"),
    requests: s.object({ waiting: s.count(), running: s.count("at workers") }),
    lastEvent: s.count("the number of the latest event"),
  }),
  perform: async (core, _given, { info }) => {
    const load = await groupLoad(core);
    const { refusing } = core;
    return {
      version: info.version,
      epoch: core.state.epoch,
      started: core.started,
      uptimeMs: now() - core.started,
      listeners: info.listeners(),
      ...(refusing === undefined ? {} : { refusing: { code: refusing.code, message: refusing.message } }),
      damage: await info.damage(),
      pausedPools: [...core.pools.list()],
      ...load,
      lastEvent: core.events.last,
    };
  },
});

export const loginLink = operation({
  name: "loginLink",
  role: "read",
  method: "POST",
  path: "/login-link",
  summary: "A link that logs a browser in once, with the role of the caller",
  input: nothing,
  output: s.object({ code: s.text(), url: s.text(), expires: s.number() }),
  perform: (_core, _given, { info, role }) => info.newLoginLink(role),
});
