/** What the operator has the broker tell this worker, under a version number: it comes on top of what the worker was started with. */

import { readConfig } from "../base/config-value.js";
import { readSettings, type Settings } from "../model/worker-settings.js";

export interface PushedConfig {
  readonly version: number;
  readonly heartbeatMs?: number;
  readonly settings: Settings;
}

/** Throws LABORO_BAD_INPUT for what no broker of ours says. A broker that knows nothing of this says nothing. */
export function readPushedConfig({ version, settings, heartbeatMs }: Readonly<Record<string, unknown>>): PushedConfig {
  return {
    version: typeof version === "number" ? version : 0,
    ...(typeof heartbeatMs === "number" && heartbeatMs >= 1 ? { heartbeatMs } : {}),
    settings: readSettings(readConfig(settings ?? {})),
  };
}
