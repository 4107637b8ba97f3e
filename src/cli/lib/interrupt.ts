/**
 * What ends a run early.
 *
 *   signal       SIGINT (Ctrl-C). Once: nothing new is started, what runs may end. Twice: what runs is stopped. A third time, or once
 *                the second has been obeyed, the process ends. SIGTERM is as both at once: batch systems and service managers send
 *                one, and SIGKILL soon after
 *   hangup       the terminal was closed: SIGHUP, or EIO when it is written to. Together they count as one Ctrl-C
 *   lost output  nobody reads the output any more (`| head`), or it cannot be written: what runs is stopped at once
 */
import { isatty } from "node:tty";
import { EXIT } from "./failures.js";
import { onOutputError } from "./output-errors.js";

export interface Interrupt {
  /** Aborted by the first signal; the reason is SIGTERM where it was that. */
  readonly once: AbortSignal;
  readonly twice: AbortSignal;
  /** Aborted when the output cannot be written. */
  readonly outputLost: AbortSignal;
  /** The exit code of a run that was interrupted: as from SIGPIPE if nobody reads its output. */
  readonly exitCode: number;
  /** As a second signal does. */
  stopAtOnce(): void;
  dispose(): void;
  /** The last call, when everything is closed. */
  endAfterHangup(): void;
}

/** With `watchOutput`, lost output ends the run in order; otherwise it ends the process. */
export function onInterrupt({ watchOutput = false } = {}): Interrupt {
  const once = new AbortController();
  const twice = new AbortController();
  const outputLost = new AbortController();
  let exitCode: number = EXIT.interrupted;
  const signalled = (): void => {
    if (twice.signal.aborted) process.exit(exitCode);
    if (once.signal.aborted) twice.abort();
    else once.abort();
  };
  const terminated = (): void => {
    if (twice.signal.aborted) process.exit(130);
    once.abort("SIGTERM");
    twice.abort();
  };
  const terminal = onTerminal();
  let hungUp = false;
  const hangUp = (): void => {
    if (hungUp) return;
    hungUp = true;
    signalled();
  };
  const ignoreErrors = watchOutput ? onOutputError(lost) : () => {};
  function lost(error: NodeJS.ErrnoException): void {
    if (error.code === "EIO") hangUp();
    if (error.code === "EIO" || outputLost.signal.aborted) return;
    exitCode = error.code === "EPIPE" ? EXIT.outputClosed : EXIT.failed;
    if (error.code !== "EPIPE") process.stderr.write(`laboro: cannot write: ${error.message}\n`);
    outputLost.abort();
  }
  process.on("SIGINT", signalled);
  process.on("SIGTERM", terminated);
  process.on("SIGHUP", hangUp);
  return {
    once: once.signal,
    twice: twice.signal,
    outputLost: outputLost.signal,
    get exitCode() {
      return exitCode;
    },
    stopAtOnce: () => twice.abort(),
    dispose: () => {
      ignoreErrors();
      process.off("SIGINT", signalled);
      process.off("SIGTERM", terminated);
      process.off("SIGHUP", hangUp);
    },
    endAfterHangup: () => {
      if (hungUp && terminal) endByHangup();
    },
  };
}

export const onTerminal = (): boolean => [0, 1, 2].some((fd) => isatty(fd));

/** Node aborts when it restores a terminal that is gone, so SIGHUP ends the process. */
export function endByHangup(): void {
  process.removeAllListeners("SIGHUP");
  process.kill(process.pid, "SIGHUP");
}
