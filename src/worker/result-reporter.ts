/**
 * Results from the end of a task to the acknowledgement: sent after the task's output, removed when the broker has
 * acknowledged them. A result whose acknowledgement is late is spooled, so that its task need not run again if this
 * process dies. Spooled results of an earlier process of this worker are sent again.
 */
import { Packr } from "msgpackr";
import { asLaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { DoneTask, TaskRef } from "../protocols/laboro/messages.js";
import { type AttemptOutput, attemptKey, type OutputSender } from "./output-sender.js";
import { OutputBuffer } from "./spool/output-buffer.js";
import type { ResultSpool, UnacknowledgedResult } from "./spool/result-spool.js";
import type { RunEnd } from "./task-runner.js";
import type { TaskTracker } from "./task-tracker.js";

/** A result is spooled after this many times the usual time between a result and its acknowledgement. */
const LATE = 5;
/** What counts as usual: times between these. */
const MIN_USUAL_MS = 4;
const MAX_USUAL_MS = 1_000;

interface ReporterDependencies {
  /** Absent if worker and broker are one process, because they end together. */
  readonly spool?: ResultSpool;
  readonly log: Log;
  readonly now: () => number;
}

interface Reported {
  readonly done: DoneTask;
  readonly at: number;
}

export class ResultReporter {
  readonly #deps: ReporterDependencies;
  readonly #tracker: TaskTracker;
  readonly #outputSender: OutputSender;
  readonly #onReady: () => void;
  /** Not acknowledged and not spooled, oldest first. */
  readonly #unspooled = new Map<string, Reported>();
  /** When the results in the spool were reported. */
  readonly #spooledAt = new Map<string, number>();
  /** Moving average of the time from a result to its acknowledgement. */
  #usualMs = MIN_USUAL_MS;
  #timer: NodeJS.Timeout | undefined;

  /** `onReady` is called when there is something to send: the last output of a task, or the DONE that follows it. */
  constructor(deps: ReporterDependencies, tracker: TaskTracker, outputSender: OutputSender, onReady: () => void) {
    this.#deps = deps;
    this.#tracker = tracker;
    this.#outputSender = outputSender;
    this.#onReady = onReady;
  }

  /** DONE is sent after the task's output. */
  report(task: TaskRef, end: RunEnd, output: AttemptOutput): void {
    const done: DoneTask = { ...end, ...task, ...this.#outputSender.end(output) };
    if (this.#deps.spool !== undefined) {
      this.#unspooled.set(attemptKey(task), { done, at: this.#deps.now() });
      this.#timer ??= setTimeout(() => this.#spoolLate(), LATE * this.#usualMs);
    }
    this.deliver(done);
  }

  /** A result that an earlier process of this worker could not deliver. */
  resume(spooled: UnacknowledgedResult): void {
    const entry = decodeResult(spooled.payload);
    if (entry === undefined) {
      this.#deps.log.warn({ key: spooled.key }, "a spooled result cannot be read and is dropped");
      this.#deps.spool?.acknowledge(spooled.key);
      return;
    }
    const { done, packed } = entry;
    this.#tracker.resume(done);
    const output = done.output === undefined ? this.#spooledOutput(done, packed) : undefined;
    if (output !== undefined) this.#outputSender.resumeEnded(done, output);
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
    const { spool, now } = this.#deps;
    if (spool !== undefined) {
      const key = attemptKey(task);
      const at = this.#unspooled.get(key)?.at ?? this.#spooledAt.get(key);
      if (at !== undefined) this.#usualMs += (clamp(now() - at) - this.#usualMs) / 8;
      if (!this.#unspooled.delete(key)) spool.acknowledge(key);
      this.#spooledAt.delete(key);
    }
    this.#outputSender.discard(task);
  }

  /** Spools all that is not acknowledged: this process ends. */
  async spoolAll(): Promise<void> {
    clearTimeout(this.#timer);
    const rest = [...this.#unspooled.values()];
    this.#unspooled.clear();
    await Promise.all(rest.map(({ done }) => this.#spool(done)));
  }

  #spoolLate(): void {
    const now = this.#deps.now();
    const afterMs = LATE * this.#usualMs;
    this.#timer = undefined;
    for (const [key, { done, at }] of this.#unspooled) {
      if (now - at < afterMs) {
        this.#timer = setTimeout(() => this.#spoolLate(), at + afterMs - now);
        return;
      }
      this.#unspooled.delete(key);
      this.#spooledAt.set(key, at);
      void this.#spool(done);
    }
  }

  async #spool(done: DoneTask): Promise<void> {
    try {
      const output = this.#outputSender.outputOf(done);
      const packed = output?.pack();
      if (output !== undefined && packed === undefined) await output.persist();
      // It may have been delivered while its output went to the disk.
      if (this.#tracker.has(done)) this.#deps.spool?.append(attemptKey(done), encodeResult(done, packed));
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

const clamp = (ms: number): number => Math.min(Math.max(ms, MIN_USUAL_MS), MAX_USUAL_MS);

/** A spooled result as bytes: the end of the attempt, and its output if that is small. */
const packr = new Packr({ useRecords: false, variableMapSize: true });

function encodeResult(done: DoneTask, packed: Uint8Array | undefined): Uint8Array {
  return packr.pack(packed === undefined ? { done } : { done, packed });
}

/** Undefined if the bytes are not such a result. Their checksum was right, so another version wrote them. */
function decodeResult(bytes: Uint8Array): { done: DoneTask; packed?: Uint8Array } | undefined {
  const entry = packr.unpack(bytes) as { done?: Partial<DoneTask>; packed?: Uint8Array } | null;
  const { job, index, attempt, started, ended, outputBytes } = entry?.done ?? {};
  const whole = [job, index, attempt, started, ended, outputBytes].every((value) => typeof value === "number");
  if (!whole || entry?.done === undefined) return undefined;
  return entry.packed === undefined
    ? { done: entry.done as DoneTask }
    : { done: entry.done as DoneTask, packed: entry.packed };
}
