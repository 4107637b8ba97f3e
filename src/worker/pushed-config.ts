/** The config that the operator keeps for this worker. The broker pushes it, with a version number; it is added to the options of the worker's start. */

import { readConfig } from "../base/config-value.js";
import { readSettings, type Settings } from "../model/worker-settings.js";

export interface PushedConfig {
  readonly version: number;
  readonly heartbeatMs?: number;
  readonly settings: Settings;
}

/** Throws LABORO_BAD_INPUT for a config that laboro's broker does not send. Absent fields are allowed. */
export function readPushedConfig({ version, settings, heartbeatMs }: Readonly<Record<string, unknown>>): PushedConfig {
  return {
    version: typeof version === "number" ? version : 0,
    ...(typeof heartbeatMs === "number" && heartbeatMs >= 1 ? { heartbeatMs } : {}),
    settings: readSettings(readConfig(settings ?? {})),
  };
}
