/** The output of `experiments`, in the format of queueexp. */
import type { Status } from "../messages.js";
import { shortDate } from "../res-text.js";

interface ProgressOptions {
  /** One line that is overwritten. */
  readonly progress: boolean;
  /** A line for each experiment that is assigned. */
  readonly assignments: boolean;
  /** Which results get a line. */
  readonly ends: "all" | "none" | Status;
}

export class ProgressOutput {
  readonly #options: ProgressOptions;
  readonly #write: (text: string) => void;

  constructor(options: ProgressOptions, write: (text: string) => void) {
    this.#options = options;
    this.#write = write;
  }

  line(text: string): void {
    this.#write(`${text}\n`);
  }

  /** `done`: experiments that are assigned, or were done before. */
  assigned(host: string, name: string, done: number, total: number): void {
    const percent = (Math.floor((1000 * done) / total) / 10).toFixed(1).padStart(5);
    if (this.#options.progress) this.#write(`[${percent}%] ${done}/${total}\r`);
    else if (this.#options.assignments) this.line(`${shortDate(Date.now())} [${percent}%] ${host}: ${name}`);
  }

  ended(host: string, name: string, status: Status): void {
    const { ends } = this.#options;
    if (ends !== "all" && ends !== status) return;
    this.line(`${shortDate(Date.now())} [RESULT] ${host}: finished ${name} with ${status}`);
  }

  hostNotice(host: string, text: string): void {
    this.line(`${shortDate(Date.now())} [${host}] ${text}`);
  }
}

/** From the command line: -t and -f are the default, unless --shownames or -q is given. */
export function progressOptions(given: {
  readonly progress?: boolean;
  readonly shownames?: boolean;
  readonly quiet?: boolean;
  readonly aftermath?: boolean;
  readonly success?: boolean;
  readonly failure?: boolean;
}): ProgressOptions {
  const { progress = false, shownames = false, quiet = false, aftermath, success, failure } = given;
  const plain = !progress && !shownames && !quiet;
  const requested = aftermath || (success && failure) ? "all" : success ? "success" : failure ? "failure" : undefined;
  return {
    progress: progress || plain,
    assignments: shownames && !quiet,
    ends: requested ?? (plain ? "failure" : "none"),
  };
}
