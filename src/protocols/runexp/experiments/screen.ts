/** What `experiments` says, in the lines that users of queueexp know. */

import type { Status } from "../messages.js";
import { shortDate } from "../runner/dates.js";

export interface ScreenOptions {
  /** One line that is written over: the usual. */
  readonly progress: boolean;
  /** A line for each experiment that is handed out. */
  readonly names: boolean;
  /** Which ends have a line. */
  readonly ends: "all" | "none" | Status;
}

export class Screen {
  readonly #options: ScreenOptions;
  readonly #write: (text: string) => void;

  constructor(options: ScreenOptions, write: (text: string) => void) {
    this.#options = options;
    this.#write = write;
  }

  line(text: string): void {
    this.#write(`${text}\n`);
  }

  /** An experiment was handed out: so many of all are, or were done before. */
  handed(host: string, name: string, done: number, total: number): void {
    const percent = (Math.floor((1000 * done) / total) / 10).toFixed(1).padStart(5);
    if (this.#options.progress) this.#write(`[${percent}%] ${done}/${total}\r`);
    else if (this.#options.names) this.line(`${shortDate(Date.now())} [${percent}%] ${host}: ${name}`);
  }

  ended(host: string, name: string, status: Status): void {
    const { ends } = this.#options;
    if (ends !== "all" && ends !== status) return;
    this.line(`${shortDate(Date.now())} [RESULT] ${host}: finished ${name} with ${status}`);
  }

  about(host: string, text: string): void {
    this.line(`${shortDate(Date.now())} [${host}] ${text}`);
  }
}

/** From the options of the command line: -t and -f are the usual, unless --shownames or -q is given. */
export function screenOptions(given: {
  readonly progress?: boolean;
  readonly shownames?: boolean;
  readonly quiet?: boolean;
  readonly aftermath?: boolean;
  readonly success?: boolean;
  readonly failure?: boolean;
}): ScreenOptions {
  const { progress = false, shownames = false, quiet = false, aftermath, success, failure } = given;
  const plain = !progress && !shownames && !quiet;
  const asked = aftermath || (success && failure) ? "all" : success ? "success" : failure ? "failure" : undefined;
  return { progress: progress || plain, names: shownames && !quiet, ends: asked ?? (plain ? "failure" : "none") };
}
