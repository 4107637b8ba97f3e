/** Pausing the tasks of a pool. */
import * as s from "../../model/schema.js";
import { operation } from "./operation.js";
import { nothing } from "./shared-fields.js";

const pool = s.described(s.text(), "the name of the pool; it need not have workers");

export const pausedPool = s.object({
  pool: s.text(),
  since: s.number("milliseconds since 1970"),
  reason: s.optional(s.text(4096)),
});

export const poolPause = operation({
  name: "poolPause",
  role: "admin",
  method: "POST",
  path: "/pools/{pool}/pause",
  summary: "Start no task of a pool until it is resumed, at all brokers; tasks that run end, requests are answered",
  input: s.object({ pool, reason: s.optional(s.text(4096)) }),
  output: nothing,
  perform: async (core, { pool, reason }) => {
    await core.pools.set(pool, { since: Date.now(), ...(reason === undefined ? {} : { reason }) });
    return {};
  },
});

export const poolResume = operation({
  name: "poolResume",
  role: "admin",
  method: "POST",
  path: "/pools/{pool}/resume",
  summary: "Start the tasks of a paused pool again",
  input: s.object({ pool }),
  output: s.object({ paused: s.flag("whether it was paused") }),
  perform: async (core, { pool }) => {
    const paused = core.pools.list().some((one) => one.pool === pool);
    await core.pools.set(pool, null);
    return { paused };
  },
});
