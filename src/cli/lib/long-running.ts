/**
 * What long-running verbs share: a log, signals, and the state for systemd. Apart from interrupt.ts: pino is slow to
 * load.
 */
import { execFile } from "node:child_process";
import { pino } from "pino";
import type { Log } from "../../base/log.js";
import { endByHangup, endProcess, onOutputError, onTerminal } from "./interrupt.js";
import { printNotice } from "./print.js";

/** On standard error: plain lines on a terminal, JSON lines otherwise. */
export const logger = (): Log =>
  process.stderr.isTTY ? lines : pino({ base: null }, pino.destination({ dest: 2, sync: true }));

/** The fault of a peer means nothing without its address. */
const line = (fields: { readonly peer?: string; readonly listener?: string }, text: string): void =>
  printNotice(fields.peer === undefined ? text : `${fields.peer}, listener ${fields.listener}: ${text}`);
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

let notifySocket = "";
let lastNotice: Promise<void> = Promise.resolve();

/**
 * Tells systemd (Type=notify) that the service is ready, and its state. Node has no datagrams on Unix sockets, so
 * systemd's own program sends them. Elsewhere it does nothing.
 */
export function notifySystemd(status: string): void {
  const { NOTIFY_SOCKET, ...env } = process.env;
  notifySocket = NOTIFY_SOCKET || notifySocket;
  // Not inherited: a task must not speak for the service.
  delete process.env.NOTIFY_SOCKET;
  if (notifySocket === "") return;
  const call = { env: { ...env, NOTIFY_SOCKET: notifySocket } };
  // One after the other, because the last one counts.
  lastNotice = lastNotice.then(
    () =>
      new Promise((resolve) => {
        execFile("systemd-notify", ["READY=1", `STATUS=${status}`], call, (error) => {
          if (error !== null) printNotice(`systemd was not told that this is ready: ${error.message.trim()}`);
          resolve();
        });
      }),
  );
}
