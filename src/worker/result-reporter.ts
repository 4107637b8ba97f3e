/**
 * Results from the end of a task to the acknowledgement: spooled when the task ends, sent when its output is sent, removed when
 * the broker has acknowledged them. Spooled results of an earlier process of this worker are sent again.
 */

import { asLaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { DoneTask, TaskRef } from "../protocols/laboro/messages.js";
import { attemptKey, type OutputSender } from "./output-sender.js";
import { OutputBuffer } from "./spool/output-buffer.js";
import { decodeResult, encodeResult } from "./spool/result-codec.js";
import type { ResultSpool, UnacknowledgedResult } from "./spool/result-spool.js";
import type { RunEnd } from "./task-runner.js";
import type { TaskTracker } from "./task-tracker.js";

export class ResultReporter {
  readonly #deps: { readonly spool: ResultSpool; readonly log: Log };
  readonly #tracker: TaskTracker;
  readonly #outputSender: OutputSender;
  readonly #onReady: () => void;

  /** `onReady` is called when there is something to send: the last output of a task, or the DONE that follows it. */
  constructor(
    deps: { readonly spool: ResultSpool; readonly log: Log },
    tracker: TaskTracker,
    outputSender: OutputSender,
    onReady: () => void,
  ) {
    this.#deps = deps;
    this.#tracker = tracker;
    this.#outputSender = outputSender;
    this.#onReady = onReady;
  }

  /** Spools the result. DONE is sent after the task's output. */
  report(task: TaskRef, end: RunEnd): void {
    const output = this.#outputSender.outputOf(task);
    const done: DoneTask = { ...end, ...task, outputBytes: output?.end() ?? 0 };
    void this.#spool(done, output);
    this.deliver(done);
  }

  /** A result that an earlier process of this worker could not deliver. */
  resume(spooled: UnacknowledgedResult): void {
    const entry = decodeResult(spooled.payload);
    if (entry === undefined) {
      this.#deps.log.warn({ key: spooled.key }, "a spooled result cannot be read and is dropped");
      this.#deps.spool.acknowledge(spooled.key);
      return;
    }
    const { done, packed } = entry;
    this.#tracker.resume(done);
    const output = this.#spooledOutput(done, packed);
    if (output !== undefined) this.#outputSender.open(done, output, undefined);
    this.deliver(done);
  }

  /** Sends the result again or for the first time: DONE follows when all output of the task was passed to the link. */
  deliver(done: DoneTask): void {
    const finish = (): void => {
      if (this.#tracker.finish(done)) this.#onReady();
    };
    if (this.#outputSender.whenSent(done, finish)) this.#onReady();
    else finish();
  }

  /** The result is acknowledged, or was dropped. */
  acknowledge(task: TaskRef): void {
    this.#deps.spool.acknowledge(attemptKey(task));
    this.#outputSender.discard(task);
  }

  async #spool(done: DoneTask, output: OutputBuffer | undefined): Promise<void> {
    try {
      const packed = output?.pack();
      if (output !== undefined && packed === undefined) await output.persist();
      // It may have been delivered while its output went to the disk.
      if (this.#tracker.has(done)) this.#deps.spool.append(attemptKey(done), encodeResult(done, packed));
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      this.#deps.log.warn({ code, task: attemptKey(done) }, `a result is not spooled: ${message}`);
    }
  }

  #spooledOutput(task: TaskRef, packed: Uint8Array | undefined): OutputBuffer | undefined {
    const settings = this.#outputSender.settingsFor(task);
    try {
      return packed === undefined ? OutputBuffer.load(settings) : OutputBuffer.unpack(packed, settings);
    } catch (cause) {
      // The result counts without its output; the offsets show that some is missing.
      const { code, message } = asLaboroError(cause);
      this.#deps.log.warn({ code, task: attemptKey(task) }, `spooled output is lost: ${message}`);
      return undefined;
    }
  }
}
