/** The config pushed to workers: reading and setting it. And draining the broker. */

import { badInput } from "../../base/errors.js";
import * as s from "../../model/schema.js";
import { type Config, type ConfigValue, isConfig, readConfig } from "../../model/worker-settings.js";
import type { Role } from "../access/tokens.js";
import { CONFIG_HISTORY } from "../worker-config.js";
import { maySeeEnvironment } from "./job-view.js";
import { operation } from "./operation.js";
import { limit, nothing } from "./shared-fields.js";

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

/**
 * Removes the values of environment variables, of all workers, a pool or one, for roles that may not see those of jobs.
 */
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
