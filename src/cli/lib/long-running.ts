/** What long-running verbs share: a log and signals. */
import { pino } from "pino";
import type { Log } from "../../base/log.js";
import { printNotice } from "./print.js";

/** On standard error: plain lines on a terminal, JSON lines otherwise. */
export const logger = (): Log =>
  process.stderr.isTTY ? lines : pino({ base: null }, pino.destination({ dest: 2, sync: true }));

const line = (_fields: object, text: string): void => printNotice(text);
const lines: Log = { info: line, warn: line, error: line };

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
