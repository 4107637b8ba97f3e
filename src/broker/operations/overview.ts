/** The overview for one page: the broker, its task rates, problems, and the permissions of the caller. */

import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import * as s from "../../model/schema.js";
import { roleAllows } from "../access/tokens.js";
import type { Core } from "../core.js";
import { MAX_RECENT_EVENTS, oldestWait } from "../stats/counters.js";
import { TICK_MS } from "../stats/history.js";
import { eventView } from "./events.js";
import { type AnyOperation, operation } from "./operation.js";
import { problem, problemsOf } from "./problems.js";
import { nothing } from "./shared-fields.js";
import { status } from "./status.js";

/** Rates are averages over this time. */
const RATE_WINDOW_MS = 60_000;

const perSecond = s.number("per second, over the last minute");

export const overview = operation({
  name: "overview",
  role: "read",
  method: "GET",
  path: "/overview",
  summary: "How everything is: the broker, its task rates, and what is wrong",
  input: nothing,
  output: s.object({
    at: s.number("the time of this answer, in milliseconds since 1970"),
    status: status.output,
    rate: s.object({ succeeded: perSecond, failed: perSecond, cancelled: perSecond, requestsCompleted: perSecond }),
    waitMs: s.object({
      p50: s.number("of the tasks assigned in the last minute"),
      p95: s.number(),
      oldest: s.number("for how long the oldest waiting task has waited"),
    }),
    disk: s.optional(s.described(s.object({ free: s.number(), total: s.number() }), "of the data directory, in bytes")),
    problems: s.described(s.list(problem, 1_000), "critical ones first"),
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

/** Without the size of the disk the rest is still answered. */
async function diskOf(ask: (() => Promise<{ free: number; total: number }>) | undefined) {
  return ask?.().catch(() => undefined);
}

function recentRates(core: Core) {
  const points = core.history.recent().slice(-RATE_WINDOW_MS / TICK_MS);
  const seconds = Math.max(1, (points.length * TICK_MS) / 1000);
  const sum = (name: "succeeded" | "failed" | "cancelled" | "requestsCompleted"): number =>
    points.reduce((total, point) => total + point[name], 0) / seconds;
  const most = (name: "waitP50" | "waitP95"): number => Math.max(0, ...points.map((point) => point[name]));
  return {
    rate: {
      succeeded: sum("succeeded"),
      failed: sum("failed"),
      cancelled: sum("cancelled"),
      requestsCompleted: sum("requestsCompleted"),
    },
    waitMs: { p50: most("waitP50"), p95: most("waitP95"), oldest: oldestWait(core, now()) },
  };
}

/** The table contains this operation, so it is read when the operation runs. */
export const permissionsOperation = (table: () => Iterable<AnyOperation>) =>
  operation({
    name: "permissions",
    role: "any",
    method: "GET",
    path: "/permissions",
    summary: "What the caller may do",
    input: nothing,
    output: s.object({
      role: s.text(),
      operations: s.described(s.list(s.text(), 1_000), "the names of the operations that its role allows"),
    }),
    perform: (_core, _given, { role }) => {
      const operations = [...table()].filter((one) => roleAllows(role, one.role)).map(({ name }) => name);
      if (operations.length === 0) throw new LaboroError("LABORO_FORBIDDEN", `the role ${role} allows nothing here`);
      return { role, operations };
    },
  });
