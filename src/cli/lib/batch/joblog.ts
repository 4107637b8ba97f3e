/** `--joblog FILE`: one line per ended task, with the columns of GNU parallel. */
import { closeSync, fstatSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import { constants } from "node:os";
import { badInput } from "../../../base/errors.js";
import type { TaskView } from "../views.js";
import type { StartedBatch } from "./resume.js";

const signals: Readonly<Record<string, number>> = constants.signals;
const HEAD = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

export class JobLog {
  readonly #file: string;
  readonly #fd: number;

  constructor(file: string) {
    this.#file = file;
    try {
      this.#fd = openSync(file, "a");
    } catch (cause) {
      throw badInput(`cannot write --joblog ${file}: ${cause instanceof Error ? cause.message : String(cause)}`);
    }
  }

  /**
   * A resumed batch keeps the lines of its earlier runs and adds lines that are missing. Another batch replaces the
   * file.
   */
  begin({ job, resumed, earlier, commandOf }: StartedBatch): void {
    const isFile = fstatSync(this.#fd).isFile();
    if (!resumed && isFile) ftruncateSync(this.#fd);
    const lines = isFile ? readFileSync(this.#file, "utf8").split("\n") : [""];
    if (lines[0] === "") writeSync(this.#fd, HEAD);
    const logged = new Set(lines.map((line) => line.split("\t", 1)[0]));
    const ended = earlier.find((one) => one.job.id === job)?.ended;
    this.add(
      (ended ?? []).filter(({ number }) => !logged.has(String(number))),
      commandOf,
    );
  }

  add(results: readonly TaskView[], commandOf: (index: number) => string): void {
    if (results.length > 0) writeSync(this.#fd, results.map((one) => lineOf(one, commandOf(one.index))).join(""));
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** Seq is the number of the task, for a list from 1 as in GNU parallel. */
function lineOf(result: TaskView, label: string): string {
  const start = (result.started / 1000).toFixed(3);
  const runtime = ((result.ended - result.started) / 1000).toFixed(3);
  const signal = result.signal === undefined ? 0 : (signals[result.signal] ?? -1);
  const code = result.code ?? (result.signal === undefined ? -1 : 0);
  const fields = [
    result.number,
    result.worker,
    start,
    runtime,
    0,
    result.outputBytes,
    code,
    signal,
    label.replace(/[\t\n]/g, " "),
  ];
  return `${fields.join("\t")}\n`;
}
