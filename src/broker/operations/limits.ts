/** Named limits: list, set, remove. */
import { badInput } from "../../base/errors.js";
import { limitName, limitRule } from "../../model/limit.js";
import * as s from "../../model/schema.js";
import { LISTED_JOBS } from "../limits.js";
import { nothing, operation } from "./operation.js";

const limitView = s.object({
  name: s.text(),
  ...limitRule,
  used: s.object({
    running: s.count("tasks at workers that count against it"),
    starts: s.count("tasks that were started within the interval of its rate"),
  }),
  waiting: s.count("tasks that are not at a worker, of jobs that name it and are neither held nor blocked"),
  jobs: s.described(s.list(s.count(), LISTED_JOBS), "the oldest jobs of these tasks"),
  jobCount: s.count("how many jobs these tasks belong to"),
  nextMs: s.optional(s.number("milliseconds until its rate allows the next start; absent if it allows one now")),
});

export const limits = operation({
  name: "limits",
  role: "read",
  method: "GET",
  path: "/limits",
  summary: "The named limits, what is used of them and what waits for them",
  input: nothing,
  output: s.object({ limits: s.list(limitView, 100_000) }),
  perform: async (core) => {
    const found = await core.limits.list();
    return {
      limits: found.map(({ rule, running, starts, ...limit }) => ({ ...limit, ...rule, used: { running, starts } })),
    };
  },
});

const name = s.described(limitName, "the name of the limit");

export const limitSet = operation({
  name: "limitSet",
  role: "admin",
  method: "POST",
  path: "/limits/{name}",
  summary: "Set a named limit, or replace its rule; it holds at once for every task that is not assigned yet",
  input: s.object({ name, ...limitRule }),
  output: nothing,
  perform: async (core, { name, running, rate }) => {
    if (running === undefined && rate === undefined) throw badInput("a limit needs running, rate or both");
    await core.limits.set(name, {
      ...(running === undefined ? {} : { running }),
      ...(rate === undefined ? {} : { rate }),
    });
    return {};
  },
});

export const limitRemove = operation({
  name: "limitRemove",
  role: "admin",
  method: "DELETE",
  path: "/limits/{name}",
  summary: "Remove a named limit; jobs that name it run on without it",
  input: s.object({ name }),
  output: nothing,
  perform: async (core, given) => {
    await core.limits.remove(given.name);
    return {};
  },
});
