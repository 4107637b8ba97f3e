/** What the verbs share that run for long: a log, signals, options that may be repeated. */
import { pino } from "pino";
import type { Log } from "../../base/log.js";

export { parseWholeNumber as wholeNumber } from "./option-parsers.js";

/** One JSON line a message, on standard error. */
/** For a person who looks, lines; for whoever keeps them, JSON. */
export const logger = (): Log =>
  process.stderr.isTTY ? lines : pino({ base: null }, pino.destination({ dest: 2, sync: true }));

const line = (_fields: object, text: string): void => void process.stderr.write(`laboro: ${text}\n`);
const lines: Log = { info: line, warn: line, error: line };

export function collect(text: string, before: readonly string[]): readonly string[] {
  return [...before, text];
}

/** Call `stop` on the first SIGINT or SIGTERM; a second one ends the process at once. */
export function onStopSignal(stop: (signal: NodeJS.Signals) => void): void {
  let stopping = false;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (stopping) process.exit(signal === "SIGINT" ? 130 : 143);
      stopping = true;
      stop(signal);
    });
  }
}
