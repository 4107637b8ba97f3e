/** The outcome of a task, in fuq's terms and in laboro's. */
import { constants } from "node:os";
import type { Outcome } from "../../model/outcome.js";

/** What fuq's own runner puts before the reason of a failure. */
const ENCOUNTERED = "error encountered: ";

/** The words of Go's os/exec for signals, where they are not the signal's name. */
const SIGNAL_WORDS: Readonly<Record<string, string>> = {
  SIGABRT: "aborted",
  SIGALRM: "alarm clock",
  SIGBUS: "bus error",
  SIGFPE: "floating point exception",
  SIGHUP: "hangup",
  SIGILL: "illegal instruction",
  SIGINT: "interrupt",
  SIGKILL: "killed",
  SIGPIPE: "broken pipe",
  SIGQUIT: "quit",
  SIGSEGV: "segmentation fault",
  SIGTERM: "terminated",
  SIGTRAP: "trace/breakpoint trap",
  SIGUSR1: "user defined signal 1",
  SIGUSR2: "user defined signal 2",
};

type End = Pick<Outcome, "code" | "signal" | "error">;

export const DONE = "done";

/** The status text of an end, as the original writes it. */
export function statusText({ code, signal, error }: End): string {
  if (error !== undefined) return `${ENCOUNTERED}${error}`;
  if (signal !== undefined) return `${ENCOUNTERED}signal: ${SIGNAL_WORDS[signal] ?? signal}`;
  return code === 0 ? DONE : `${ENCOUNTERED}exit status ${code ?? "unknown"}`;
}

/** What a status text says; a text that says neither code nor signal is kept as the reason. */
export function outcomeFromStatus(success: boolean, status: string): End {
  if (success) return { code: 0 };
  const reason = status.startsWith(ENCOUNTERED) ? status.slice(ENCOUNTERED.length) : status;
  const code = /^exit status (\d{1,3})$/.exec(reason)?.[1];
  if (code !== undefined && code !== "0") return { code: Number(code) };
  const word = /^signal: (.+?)(?: \(core dumped\))?$/.exec(reason)?.[1];
  const signal = Object.keys(constants.signals).find((name) => name === word || SIGNAL_WORDS[name] === word);
  if (word !== undefined && signal !== undefined) return { signal };
  return { error: reason === "" ? "it failed, and its worker gave no reason" : reason.slice(0, 1024) };
}
