/** How everything is, for who looks at one page: the broker, its pace, and what is wrong. Also what the asker may do. */

import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import * as s from "../../model/schema.js";
import { roleAllows } from "../access/roles.js";
import type { Core } from "../core.js";
import { TICK_MS } from "../stats/history.js";
import { oldestWait } from "../stats/load.js";
import { MAX_RECENT_EVENTS } from "../stats/counters.js";
import { eventView } from "./events.js";
import { nothing } from "./shared-fields.js";
import { type AnyOperation, operation } from "./operation.js";
import { problem, problemsOf } from "./problems.js";
import { status } from "./status.js";

/** The pace is told over this time. */
const RATE_WINDOW_MS = 60_000;

const perSecond = s.described(s.number(), "a second, over the last minute");

export const overview = operation({
  name: "overview",
  role: "read",
  method: "GET",
  path: "/overview",
  summary: "How everything is: the broker, its pace, and what is wrong",
  input: nothing,
  output: s.object({
    at: s.described(s.number(), "when this was so, in milliseconds since 1970"),
    status: status.output,
    rate: s.object({ succeeded: perSecond, failed: perSecond, cancelled: perSecond, answered: perSecond }),
    waitMs: s.object({
      p50: s.described(s.number(), "of the tasks handed out in the last minute"),
      p95: s.number(),
      oldest: s.described(s.number(), "for how long the work has waited that waits longest"),
    }),
    disk: s.optional(s.described(s.object({ free: s.number(), total: s.number() }), "where the data lies, in bytes")),
    problems: s.described(s.list(problem, 1_000), "the gravest first"),
    recentEvents: s.described(s.list(eventView, MAX_RECENT_EVENTS), "the latest events, without the ends of tasks"),
  }),
  perform: async (core, _given, context) => {
    const disk = await diskOf(context.info.disk);
    return {
      at: now(),
      status: await status.perform(core, {}, context),
      ...recentRates(core),
      ...(disk === undefined ? {} : { disk }),
      problems: await problemsOf(core, disk),
      recentEvents: [...core.counters.recentEvents] as s.ReadType<typeof eventView>[],
    };
  },
});

/** A disk that does not say how full it is is no reason to say nothing else. */
async function diskOf(ask: (() => Promise<{ free: number; total: number }>) | undefined) {
  return ask?.().catch(() => undefined);
}

function recentRates(core: Core) {
  const points = core.history.recent().slice(-RATE_WINDOW_MS / TICK_MS);
  const seconds = Math.max(1, (points.length * TICK_MS) / 1000);
  const sum = (name: "succeeded" | "failed" | "cancelled" | "answered"): number =>
    points.reduce((total, point) => total + point[name], 0) / seconds;
  const most = (name: "waitP50" | "waitP95"): number => Math.max(0, ...points.map((point) => point[name]));
  return {
    rate: {
      succeeded: sum("succeeded"),
      failed: sum("failed"),
      cancelled: sum("cancelled"),
      answered: sum("answered"),
    },
    waitMs: { p50: most("waitP50"), p95: most("waitP95"), oldest: oldestWait(core, now()) },
  };
}

/** The table of operations is made of this one among others, so it is asked for when it is there. */
export const permissionsOperation = (table: () => Iterable<AnyOperation>) =>
  operation({
    name: "access",
    role: "any",
    method: "GET",
    path: "/access",
    summary: "What the asker may do",
    input: nothing,
    output: s.object({
      role: s.text(),
      operations: s.described(s.list(s.text(), 1_000), "the names of those that its role allows"),
    }),
    perform: (_core, _given, { role }) => {
      const operations = [...table()].filter((one) => roleAllows(role, one.role)).map(({ name }) => name);
      if (operations.length === 0) throw new LaboroError("LABORO_FORBIDDEN", `the role ${role} allows nothing here`);
      return { role, operations };
    },
  });
