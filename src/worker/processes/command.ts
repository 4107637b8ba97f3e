import type { OutputStream } from "../../model/outcome.js";
import type { Bytes } from "../../model/recipe.js";

/** A program to run, found as exec(2) via PATH would find it. No shell interprets any of it. */
export interface CommandSpec {
  readonly argv: readonly Bytes[];
  /** Where it runs; the agent's own directory where absent. */
  readonly dir?: Bytes;
  /** Added to the base environment. Names are shell names, values hold no NUL. */
  readonly env?: Readonly<Record<string, Bytes>>;
  /** A file as standard input; /dev/null where absent. */
  readonly stdinFile?: string;
  /**
   * As a shell runs it in a pipe. It has ended when no process can write to its standard output any more, not when its own process
   * has. Processes it leaves behind go on while the slot has a shell. A signal that ends it may be reported as exit code 128 plus its
   * number, with the shell's message on its standard error.
   */
  readonly asInPipe?: boolean;
}

/** How it ended: by exit (`code`), by signal (`signal`), or because laboro could not run it to its end (`error`). */
export interface ProcessEnd {
  readonly code?: number;
  /** "SIGKILL". With it `error` may say that the slot's shell died too. */
  readonly signal?: string;
  /** One line for a person: why it did not start, or what happened to the slot. */
  readonly error?: string;
  /** Milliseconds since 1970. */
  readonly started: number;
  readonly ended: number;
  /** See model/outcome.ts. */
  readonly cpuMs?: number;
  readonly peakMemory?: number;
}

/** Both calls come from the event loop, never from within `run`, and none follows `ended`. */
export interface ProcessSink {
  /** The receiver may keep the bytes: nobody else writes to them. */
  output(stream: OutputStream, bytes: Buffer): void;
  /** All output was delivered before; the process is gone. The slot may be used again from within this call. */
  ended(end: ProcessEnd): void;
}

export interface RunningCommand {
  /** SIGTERM to the process group now, SIGKILL when `graceMs` have passed and it is not gone. */
  terminate(graceMs: number): void;
  /** SIGKILL to the process group. */
  kill(): void;
  /** Stops reading its output, so that it blocks when its pipes are full. What they hold at its end is delivered all the same. */
  pause(): void;
  resume(): void;
}
