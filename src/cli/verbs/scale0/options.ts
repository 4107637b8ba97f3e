/** What the verbs of Scale0 share. */

import { LaboroError } from "../../../base/errors.js";
import { readPeerKeys } from "../../../broker/config/curve-keys.js";
import type { CurveClient } from "../../../protocols/zeromq/index.js";

export const CURVE_HELP = "the file that laboro keys new NAME wrote, for a broker that asks for CURVE";

export const curveOf = (file: string | undefined): { readonly curve?: CurveClient } =>
  file === undefined ? {} : { curve: readPeerKeys(file) };

/** Adds what to do about an unreachable broker: it differs from laboro's own brokers. */
export function withRemedy(cause: unknown, remedy: string): unknown {
  if (!(cause instanceof LaboroError) || cause.code !== "LABORO_BROKER_UNREACHABLE") return cause;
  return new LaboroError(cause.code, `${cause.message}; ${remedy}`, { cause });
}
