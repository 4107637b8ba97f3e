/** What workers are told: looking at it, and setting it. And the word that a broker is to be taken down. */

import { type Config, readConfig } from "../../base/config-value.js";
import { LaboroError } from "../../base/errors.js";
import * as s from "../../model/schema.js";
import { CONFIG_HISTORY } from "../config/worker-config.js";
import { limit, nothing } from "./shared-fields.js";
import { operation } from "./operation.js";

const settings: s.Schema<Config> = {
  read: (value) => readConfig(value),
  json: () => ({ type: "object", additionalProperties: true }),
};

const configView = s.object({
  version: s.described(s.count(), "rises by one with each change; 0 before the first"),
  changed: s.described(s.number(), "milliseconds since 1970"),
  settings: s.described(settings, "any names and values; those that laboro knows are in docs/reference/config.md"),
});

export const config = operation({
  name: "config",
  role: "read",
  method: "GET",
  path: "/config",
  summary: "What workers are told, now or in an earlier version",
  input: s.object({ version: s.optional(s.count()) }),
  output: configView,
  perform: (core, { version }) => {
    const { current, history } = core.config;
    if (version === undefined || version === current.version) return current;
    const found = history.find((one) => one.version === version);
    if (found !== undefined) return found;
    const oldest = history[0]?.version ?? 0;
    throw new LaboroError("LABORO_BAD_INPUT", `version: ${oldest} to ${current.version} are kept, not ${version}`);
  },
});

export const configSet = operation({
  name: "configSet",
  role: "admin",
  method: "POST",
  path: "/config",
  summary: "Set what workers are told; those that are connected hear it at once",
  input: s.object({
    settings: s.described(settings, "all of them: what is left out is no longer set"),
    expectedVersion: s.optional(s.described(s.count(), "refuse where another version is the current one by now")),
  }),
  output: configView,
  perform: (core, given) => core.config.set(given.settings, given.expectedVersion),
});

export const configHistory = operation({
  name: "configHistory",
  role: "read",
  method: "GET",
  path: "/config/history",
  summary: "Earlier versions of what workers are told, newest first",
  input: s.object({ limit: limit(CONFIG_HISTORY) }),
  output: s.object({ versions: s.list(configView, CONFIG_HISTORY) }),
  perform: (core, given) => ({ versions: core.config.history.toReversed().slice(0, given.limit) }),
});

export const drainBroker = operation({
  name: "drainBroker",
  role: "admin",
  method: "POST",
  path: "/drain",
  summary: "Before maintenance: hand out nothing new, and send peers to other brokers where their protocol can",
  input: s.object({ draining: s.described(s.flag(), "false takes it back") }),
  output: nothing,
  perform: (core, { draining }) => {
    core.maintenance.set(draining);
    return {};
  },
});
