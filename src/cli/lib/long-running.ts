/** What long-running verbs share: a log and signals. */
import { pino } from "pino";
import type { Log } from "../../base/log.js";
import { endByHangup, endProcess, onOutputError, onTerminal } from "./interrupt.js";

import { printNotice } from "./print.js";

/** On standard error: plain lines on a terminal, JSON lines otherwise. */
export const logger = (): Log =>
  process.stderr.isTTY ? lines : pino({ base: null }, pino.destination({ dest: 2, sync: true }));

const line = (_fields: object, text: string): void => printNotice(text);
const lines: Log = { info: line, warn: line, error: line };

/**
 * Calls `stop` on the first SIGINT, SIGTERM or SIGHUP. A second SIGINT or SIGTERM ends the process at once. A closed
 * terminal causes several signals and errors, which count as one SIGHUP.
 */
export function onStopSignal(stop: (signal: NodeJS.Signals) => void): void {
  let stopping = false;
  const first = (signal: NodeJS.Signals): void => {
    stopping = true;
    stop(signal);
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (stopping) process.exit(signal === "SIGINT" ? 130 : 143);
      first(signal);
    });
  }
  const hangUp = (): void => {
    if (stopping) return;
    onOutputError(() => {});
    if (onTerminal()) process.once("exit", endByHangup);
    first("SIGHUP");
  };
  process.on("SIGHUP", hangUp);
  onOutputError((error) => (error.code === "EIO" ? hangUp() : endProcess(error)));
}
