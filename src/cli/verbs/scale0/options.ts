/** What the verbs of Scale0 share. */
import { Option } from "commander";
import { LaboroError } from "../../../base/errors.js";
import { readPeerKeys } from "../../../broker/config/curve-keys.js";
import { CONNECT_TIMEOUT_MS } from "../../../protocols/scale0/worker/registration.js";
import type { CurveClient } from "../../../protocols/zeromq/index.js";
import { parseDuration } from "../../lib/duration.js";

export const CURVE_HELP = "the file that laboro keys new NAME wrote, for a broker that asks for CURVE";

export const connectTimeout = (): Option =>
  new Option("--connect-timeout <duration>", "how long a broker may take to answer a CONNECT")
    .argParser(parseDuration)
    .default(CONNECT_TIMEOUT_MS, `${CONNECT_TIMEOUT_MS / 1000}s`);

export const curveOf = (file: string | undefined): { readonly curve?: CurveClient } =>
  file === undefined ? {} : { curve: readPeerKeys(file) };

/** Adds what to do about an unreachable broker: it differs from laboro's own brokers. */
export function withRemedy(cause: unknown, remedy: string): unknown {
  if (!(cause instanceof LaboroError) || cause.code !== "LABORO_BROKER_UNREACHABLE") return cause;
  return new LaboroError(cause.code, `${cause.message}; ${remedy}`, { cause });
}
