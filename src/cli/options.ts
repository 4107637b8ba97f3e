/** What several verbs share: where data is, how much to say, how to read a value. */
import { homedir } from "node:os";
import { join } from "node:path";
import { InvalidArgumentError } from "commander";
import { pino } from "pino";
import type { Log } from "../broker/log.js";

export const defaultDataDir = (): string => process.env.LABORO_DATA ?? join(homedir(), ".local", "share", "laboro");

/** One JSON line a message, on standard error. */
export const logger = (): Log => pino({ base: null }, pino.destination({ dest: 2, sync: true }));

export function wholeNumber(text: string): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(value)) return value;
  throw new InvalidArgumentError("expected a whole number");
}

export function collect(text: string, before: readonly string[]): readonly string[] {
  return [...before, text];
}

/** Call `stop` on the first SIGINT or SIGTERM; a second one ends the process at once. */
export function onSignals(stop: (signal: NodeJS.Signals) => void): void {
  let stopping = false;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (stopping) process.exit(signal === "SIGINT" ? 130 : 143);
      stopping = true;
      stop(signal);
    });
  }
}
