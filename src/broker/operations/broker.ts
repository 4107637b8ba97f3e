/** Operations on the broker: its status, a login link, the config pushed to workers, drain, paused pools. */
import { now } from "../../base/clock.js";
import { badInput } from "../../base/errors.js";
import * as s from "../../model/schema.js";
import { type Config, type ConfigValue, isConfig, readConfig } from "../../model/worker-settings.js";
import type { Role } from "../access/tokens.js";
import { groupLoad } from "../group/group-view.js";
import { CONFIG_HISTORY } from "../worker-config.js";
import { maySeeEnvironment } from "./job-view.js";
import { limit, nothing, operation } from "./operation.js";

const pool = s.described(s.text(), "the name of the pool; it need not have workers");

const pausedPool = s.object({
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
    halted: s.optional(s.described(s.text(65_536), "why this broker assigns no tasks: such as that it is drained")),
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
      ...(core.state.halted === undefined ? {} : { halted: core.state.halted }),
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

const settings: s.Schema<Config> = {
  read: (value) => readConfig(value),
  json: () => ({ type: "object", additionalProperties: true }),
};

const configView = s.object({
  version: s.count("rises by one with each change; 0 before the first"),
  changed: s.number("milliseconds since 1970"),
  settings: s.described(settings, "any names and values; docs/reference/config.md lists those that laboro knows"),
});

type ConfigView = s.ReadType<typeof configView>;

/** Removes the values of environment variables, for roles that may not see those of jobs. */
function visibleTo(role: Role, { settings, ...config }: ConfigView): ConfigView {
  if (maySeeEnvironment(role)) return { ...config, settings };
  const hidden = JSON.stringify(settings, (name, value: ConfigValue) =>
    name === "environment" && isConfig(value)
      ? Object.fromEntries(Object.keys(value).map((one) => [one, "(hidden)"]))
      : value,
  );
  return { ...config, settings: JSON.parse(hidden) as Config };
}

export const config = operation({
  name: "config",
  role: "read",
  method: "GET",
  path: "/config",
  summary: "The config pushed to workers, the current or an earlier version",
  input: s.object({ version: s.optional(s.count()) }),
  output: configView,
  perform: (core, { version }, { role }) => {
    const { current, history } = core.config;
    const found = [current, ...history].find((one) => one.version === (version ?? current.version));
    if (found !== undefined) return visibleTo(role, found);
    const oldest = history[0]?.version ?? 0;
    throw badInput(`version: ${oldest} to ${current.version} are kept, not ${version}`);
  },
});

export const configSet = operation({
  name: "configSet",
  role: "admin",
  method: "POST",
  path: "/config",
  summary: "Set the config pushed to workers; connected workers get it at once",
  input: s.object({
    settings: s.described(settings, "all of them: a setting that is left out is removed"),
    expectedVersion: s.optional(s.count("refuse if the current version is another one")),
  }),
  output: configView,
  perform: (core, given) => core.config.set(given.settings, given.expectedVersion),
});

export const configHistory = operation({
  name: "configHistory",
  role: "read",
  method: "GET",
  path: "/config/history",
  summary: "Versions of the config pushed to workers, newest first",
  input: s.object({ limit: limit(CONFIG_HISTORY) }),
  output: s.object({ versions: s.described(s.list(configView, CONFIG_HISTORY), "newest first") }),
  perform: (core, given, { role }) => {
    const versions = core.config.history.toReversed().slice(0, given.limit);
    return { versions: versions.map((one) => visibleTo(role, one)) };
  },
});

export const drainBroker = operation({
  name: "drainBroker",
  role: "admin",
  method: "POST",
  path: "/drain",
  summary: "Before maintenance: assign nothing new, and send peers to other brokers if their protocol can",
  input: s.object({ draining: s.flag("false ends it") }),
  output: nothing,
  perform: (core, { draining }) => {
    core.maintenance.set(draining);
    return {};
  },
});
