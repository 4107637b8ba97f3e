/** What the sides of a Scale0 door share. */
import { readSettings, type Settings } from "../../broker/config/settings.js";
import type { Core } from "../../broker/core.js";
import type { ErrorCode } from "../../model/errors.js";
import type { Brokers } from "./brokers.js";
import type { MessageId, Parameters, Word } from "./commands.js";
import type { ConfigFormats } from "./config-formats.js";

export interface Parts {
  readonly core: Core;
  readonly pool: string;
  readonly brokers: Brokers;
  readonly formats: ConfigFormats;
  complain(address: string, why: string, code?: ErrorCode): void;
}

/** What goes with a request, for a worker of this protocol: all that the client said. */
export class Asked {
  constructor(
    readonly client: string,
    readonly messageId: MessageId | undefined,
    readonly word: Word,
    readonly parameters: Parameters,
    readonly body: readonly Uint8Array[],
  ) {}
}

/** What comes with an answer, for a client of this protocol. */
export class Answered {
  constructor(
    readonly body: readonly Uint8Array[],
    readonly error: unknown,
  ) {}
}

/** For an end that knows of one body only. */
export const joined = (body: readonly Uint8Array[]): Uint8Array =>
  body.length === 1 && body[0] !== undefined ? body[0] : Buffer.concat(body);

export const DEFAULT_HEARTBEAT_MS = 2_000;
const CLOCK_TOLERANCE_MS = 60_000;

export const settingsOf = (core: Core): Settings => readSettings(core.config.current.settings);

/** What is wrong with a peer's clock, if so much that something must be. */
export function clockFault(core: Core, time: number | undefined, now: number): string | undefined {
  if (time === undefined) return undefined;
  const { clockTolerance = CLOCK_TOLERANCE_MS } = settingsOf(core);
  const off = Math.round(time - now);
  if (Math.abs(off) <= clockTolerance) return undefined;
  return `yours is ${Math.abs(off)} ms ${off > 0 ? "ahead of" : "behind"} the broker's, ${clockTolerance} ms are allowed`;
}
