/**
 * What ends a run early.
 *   signal       SIGINT (Ctrl-C). Once: no task is started any more, running tasks may finish. Twice: running tasks are
 *                stopped. A third one, or one after the second was handled, ends the process. SIGTERM counts as two,
 *                because batch systems and service managers send it once and SIGKILL soon after
 *   hangup       the terminal was closed: SIGHUP, or EIO on a write. Together they count as one Ctrl-C
 *   lost output  the reader of the output has ended (`| head`), or it cannot be written: running tasks are stopped
 */
import { isatty } from "node:tty";
import { EXIT } from "./failures.js";

export interface Interrupt {
  /** Aborted by the first signal. The reason is SIGTERM if it was that signal. */
  readonly once: AbortSignal;
  readonly twice: AbortSignal;
  /** Aborted when the output cannot be written. */
  readonly outputLost: AbortSignal;
  /** The exit code of a run that was interrupted: as from SIGPIPE if nobody reads its output. */
  readonly exitCode: number;
  /** Does the same as a second signal. */
  stopAtOnce(): void;
  dispose(): void;
  /** Must be the last call, when everything is closed. */
  endAfterHangup(): void;
}

/** With `watchOutput`, lost output ends the run gracefully; otherwise it ends the process. */
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

/** Node aborts when it restores a closed terminal, so SIGHUP ends the process. */
export function endByHangup(): void {
  process.removeAllListeners("SIGHUP");
  process.kill(process.pid, "SIGHUP");
}

/** What happens when standard output or standard error cannot be written. */
type OutputFailure = (error: NodeJS.ErrnoException) => void;

let handler: OutputFailure = endProcess;

/** Called once in a process. A reader that closes the pipe (`| head`) is not an error. */
export function watchOutputErrors(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => handler(error));
  }
}

/** For a verb that has nothing to stop. */
export function endProcess(error: NodeJS.ErrnoException): never {
  if (error.code === "EPIPE") process.exit(process.exitCode ?? EXIT.ok);
  process.stderr.write(`laboro: cannot write: ${error.message}\n`);
  process.exit(EXIT.failed);
}

/** For a verb that has something to stop before it ends. Returns the function that removes the handler. */
export function onOutputError(handle: OutputFailure): () => void {
  handler = handle;
  return () => {
    // The process ends now, so later write errors do not matter.
    handler = () => {};
  };
}
