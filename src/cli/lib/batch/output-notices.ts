/** Says on standard error which tasks have output that is not kept, or that could not be shown. */
import { formatSize } from "../../../base/format.js";
import { printNotice } from "../print.js";
import type { TaskView } from "../views.js";

/** How many tasks are named. */
const MAX_LISTED = 10;

export interface NoticeDependencies {
  /** "task 12 (data/x.csv)" */
  readonly nameOf: (index: number) => string;
  /** How much is kept of a task's output; all if absent. */
  readonly outputCap: number | undefined;
  /** Before a line is written. */
  readonly clear: () => void;
}

export class OutputNotices {
  readonly #deps: NoticeDependencies;
  #notKept = 0;
  #missing = 0;

  constructor(deps: NoticeDependencies) {
    this.#deps = deps;
  }

  /** Some output was not shown. */
  get incomplete(): boolean {
    return this.#missing > 0;
  }

  /** The output of this task was printed, but for so many bytes. `reason`: why these are missing, if known. */
  add({ index, outputBytes }: TaskView, missingBytes: number, reason?: string): void {
    const { nameOf, outputCap = Number.POSITIVE_INFINITY } = this.#deps;
    const total = formatSize(outputBytes);
    if (missingBytes > 0) {
      const why = reason === undefined ? "" : ` (${reason})`;
      if (++this.#missing <= MAX_LISTED)
        this.#print(`${nameOf(index)}: ${formatSize(missingBytes)} of its ${total} of output are lost${why}`);
    } else if (outputBytes > outputCap && ++this.#notKept <= MAX_LISTED) {
      this.#print(
        `${nameOf(index)}: only ${formatSize(outputCap)} of its ${total} of output are kept for laboro logs; --output-cap keeps more`,
      );
    }
  }

  /** How many tasks were not named. */
  summarize(): void {
    if (this.#missing > MAX_LISTED) this.#print(`output of ${this.#missing - MAX_LISTED} more tasks is lost`);
    if (this.#notKept > MAX_LISTED)
      this.#print(`output of ${this.#notKept - MAX_LISTED} more tasks is not kept whole; --output-cap keeps more`);
  }

  #print(line: string): void {
    this.#deps.clear();
    printNotice(line);
  }
}
