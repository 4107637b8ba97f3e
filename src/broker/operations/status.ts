/** How the broker is, and a link for a browser. */

import { now } from "../../base/clock.js";
import * as s from "../../model/schema.js";
import { groupLoad } from "../group/load.js";
import { nothing } from "./shared-fields.js";
import { operation } from "./operation.js";

export const status = operation({
  name: "status",
  role: "any",
  method: "GET",
  path: "/status",
  summary: "How the broker is, and what waits, what runs, who is there, at all brokers of its group",
  input: nothing,
  output: s.object({
    version: s.text(),
    epoch: s.described(s.count(), "rises with every start of a broker on this data"),
    started: s.described(s.number(), "milliseconds since 1970"),
    uptimeMs: s.number(),
    listeners: s.list(s.object({ name: s.text(), url: s.text() }), 100),
    refusing: s.optional(
      s.described(s.object({ code: s.text(), message: s.text(65_536) }), "why nothing new is taken"),
    ),
    jobs: s.object({ held: s.count(), blocked: s.count(), waiting: s.count(), running: s.count() }),
    tasks: s.object({ waiting: s.count(), running: s.count() }),
    workers: s.object({ connected: s.count(), disconnected: s.count(), draining: s.count() }),
    slots: s.object({ total: s.number(), free: s.number() }),
    requests: s.object({ waiting: s.count(), running: s.count() }),
    lastEvent: s.count(),
  }),
  perform: async (core, _given, { info: broker }) => {
    const load = await groupLoad(core);
    const { refusing } = core;
    return {
      version: broker.version,
      epoch: core.state.epoch,
      started: core.started,
      uptimeMs: now() - core.started,
      listeners: broker.listeners(),
      ...(refusing === undefined ? {} : { refusing: { code: refusing.code, message: refusing.message } }),
      ...load,
      lastEvent: core.events.last,
    };
  },
});

export const loginLink = operation({
  name: "entry",
  role: "read",
  method: "POST",
  path: "/entry",
  summary: "A link that lets a browser in once, with the role of who asks",
  input: nothing,
  output: s.object({ code: s.text(), url: s.text(), expires: s.number() }),
  perform: (_core, _given, { info: broker, role }) => broker.newLoginLink(role),
});
