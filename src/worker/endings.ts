/**
 * Results from the end of a task to the acknowledgement: spooled when the task ends, sent when its output is, forgotten when the
 * broker has them. Those of an earlier life of this worker come in half-way.
 */

import { asLaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { DoneTask, TaskRef } from "../protocols/laboro/messages.js";
import { attemptKey, type Deliveries } from "./deliveries.js";
import type { Ledger } from "./ledger.js";
import { readSpooled, writeSpooled } from "./spool/entry.js";
import type { ResultSpool, UnacknowledgedResult } from "./spool/result-spool.js";
import { TaskOutput } from "./spool/task-output.js";
import type { RunEnd } from "./task-runner.js";

export class Endings {
  readonly #parts: { readonly spool: ResultSpool; readonly log: Log };
  readonly #ledger: Ledger;
  readonly #deliveries: Deliveries;
  readonly #finished: () => void;

  /** `finished` is called when there is something to send: output that has ended, or the DONE that follows it. */
  constructor(
    parts: { readonly spool: ResultSpool; readonly log: Log },
    ledger: Ledger,
    deliveries: Deliveries,
    finished: () => void,
  ) {
    this.#parts = parts;
    this.#ledger = ledger;
    this.#deliveries = deliveries;
    this.#finished = finished;
  }

  /** Spool the result; DONE goes when the task's output has gone. */
  report(task: TaskRef, end: RunEnd): void {
    const output = this.#deliveries.of(task);
    const done: DoneTask = { ...end, ...task, outputEnd: output?.end() ?? 0 };
    void this.#spool(done, output);
    if (output === undefined) this.#ledger.finish(done);
    else this.#deliverThenFinish(done, output);
  }

  /** A result that an earlier life of this worker could not deliver. */
  takeUp(spooled: UnacknowledgedResult): void {
    const entry = readSpooled(spooled.payload);
    if (entry === undefined) {
      this.#parts.log.warn({ key: spooled.key }, "a spooled result cannot be read and is given up");
      this.#parts.spool.acknowledged(spooled.key);
      return;
    }
    const { done, packed } = entry;
    this.#ledger.resume(done);
    const output = this.#spooledOutput(done, packed);
    if (output === undefined) this.#ledger.finish(done);
    else this.#deliverThenFinish(done, output);
  }

  /** The broker has it, or nobody wants it. */
  delivered(task: TaskRef): void {
    this.#parts.spool.acknowledged(attemptKey(task));
    this.#deliveries.discard(task);
  }

  #deliverThenFinish(done: DoneTask, output: TaskOutput): void {
    this.#deliveries.open(done, output, () => {
      if (this.#ledger.finish(done)) this.#finished();
    });
    this.#finished();
  }

  async #spool(done: DoneTask, output: TaskOutput | undefined): Promise<void> {
    try {
      const packed = output?.pack();
      if (output !== undefined && packed === undefined) await output.persist();
      // It may have been delivered while its output went to the disk.
      if (this.#ledger.has(done)) this.#parts.spool.append(attemptKey(done), writeSpooled(done, packed));
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      this.#parts.log.warn({ code, task: attemptKey(done) }, `a result is not spooled: ${message}`);
    }
  }

  #spooledOutput(task: TaskRef, packed: Uint8Array | undefined): TaskOutput | undefined {
    const settings = this.#deliveries.settingsFor(task);
    try {
      return packed === undefined ? TaskOutput.load(settings) : TaskOutput.unpack(packed, settings);
    } catch (cause) {
      // The result counts without its output; the offsets show that some is missing.
      const { code, message } = asLaboroError(cause);
      this.#parts.log.warn({ code, task: attemptKey(task) }, `spooled output is lost: ${message}`);
      return undefined;
    }
  }
}
