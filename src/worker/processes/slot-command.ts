/** A command in a slot. */
import type { HelperEnd } from "./helper.js";
import type { CommandSpec, ProcessEnd, ProcessSink } from "./script.js";
import type { Place } from "./start-error.js";

export type EndReason = Pick<ProcessEnd, "code" | "signal" | "error">;

export interface SlotCommand {
  readonly spec: CommandSpec;
  readonly sink: ProcessSink;
  /** It is a command of the shell itself, whose messages get into its standard error. */
  direct: boolean;
  /** The end of its standard error, which may be such a message. */
  held?: Buffer;
  holdTimer?: NodeJS.Timeout;
  /** When it was sent to the shell; before that, when `run` was called. */
  started: number;
  /**
   *   waiting    for a shell
   *   cancelled  before it was sent; `ended` follows
   *   begun      sent to the shell
   *   open       the shell has opened its output, after it reset the signals
   *   killed     the grace is over, and the shell was killed with it
   */
  stage: "waiting" | "cancelled" | "begun" | "open" | "killed";
  termAgain?: NodeJS.Timeout;
  grace?: NodeJS.Timeout;
}

export interface TaskScript {
  readonly text: string;
  /** Undefined for a subshell. */
  readonly place: Place | undefined;
}

/** The end of a task whose shell has died. */
export function endedWithShell(task: SlotCommand, end: HelperEnd): EndReason {
  if (task.stage === "killed") return { signal: "SIGKILL" };
  const error = `the slot's shell ended while the command ran (${end.reason})`;
  return end.signal === undefined ? { error } : { signal: end.signal, error };
}
