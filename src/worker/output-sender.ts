/**
 * Output on its way to the broker. Each attempt that has written anything has a TaskOutput; what is under way is bounded by the
 * window that WELCOME gave, and CREDIT says, in the order of sending, how much of it is stored.
 */
import { join } from "node:path";
import type { OutputStream } from "../model/outcome.js";
import type { FromWorker, ResumedTask, TaskRef } from "../protocols/laboro/messages.js";
import type { OutputBuffer, OutputBufferSettings } from "./spool/output-buffer.js";

export const attemptKey = ({ job, index, attempt }: TaskRef): string => `${job}.${index}.${attempt}`;

interface PendingOutput {
  readonly task: TaskRef;
  readonly output: OutputBuffer;
  /** All of its output was given to the link. */
  readonly sent: () => void;
}

export class OutputSender {
  readonly #dir: string;
  readonly #onLost: NonNullable<OutputBufferSettings["onLost"]>;
  readonly #onReady: () => void;
  readonly #all = new Map<string, PendingOutput>();
  /** Those with something to send, in turn. */
  readonly #ready = new Set<PendingOutput>();
  readonly #inFlight: { readonly delivery: PendingOutput; readonly end: number; bytes: number }[] = [];
  #send: ((message: FromWorker) => void) | undefined;
  #window = 0;

  /** `onEager` is called when there is something to send; the owner decides when to `pump`. */
  constructor(dir: string, onLost: NonNullable<OutputBufferSettings["onLost"]>, onReady: () => void) {
    this.#onReady = onReady;
    this.#dir = dir;
    this.#onLost = onLost;
  }

  settingsFor(task: TaskRef, cap?: number): OutputBufferSettings {
    const path = join(this.#dir, attemptKey(task));
    return { path, onLost: this.#onLost, ...(cap === undefined ? {} : { cap }) };
  }

  /** `sent` is called once the output has ended and all of it was given to the link. */
  add(task: TaskRef, output: OutputBuffer, sent: () => void): void {
    const delivery = { task, output, sent };
    this.#all.set(attemptKey(task), delivery);
    this.#ready.add(delivery);
  }

  outputOf(task: TaskRef): OutputBuffer | undefined {
    return this.#all.get(attemptKey(task))?.output;
  }

  write(task: TaskRef, stream: OutputStream, bytes: Uint8Array): void {
    const delivery = this.#all.get(attemptKey(task));
    if (delivery === undefined) return;
    delivery.output.write(stream, bytes);
    this.#ready.add(delivery);
    this.#onReady();
  }

  /** The task has ended; its tail may go now. */
  ended(task: TaskRef): void {
    const delivery = this.#all.get(attemptKey(task));
    if (delivery === undefined) return;
    this.#ready.add(delivery);
    this.#onReady();
  }

  discard(task: TaskRef): void {
    const key = attemptKey(task);
    const delivery = this.#all.get(key);
    if (delivery === undefined) return;
    this.#all.delete(key);
    this.#ready.delete(delivery);
    delivery.output.discard();
  }

  /** A new connection: sending restarts at what the broker has stored. */
  resume(keep: readonly ResumedTask[], window: number, send: (message: FromWorker) => void): void {
    this.#inFlight.length = 0;
    this.#window = window;
    this.#send = send;
    for (const kept of keep) {
      const delivery = this.#all.get(attemptKey(kept));
      if (delivery === undefined) continue;
      delivery.output.rewind(kept.outputStored);
      this.#ready.add(delivery);
    }
    this.pump();
  }

  pause(): void {
    this.#send = undefined;
  }

  credit(bytes: number): void {
    let left = bytes;
    this.#window += bytes;
    while (left > 0) {
      const first = this.#inFlight[0];
      if (first === undefined) break;
      const part = Math.min(left, first.bytes);
      left -= part;
      first.bytes -= part;
      if (first.bytes > 0) break;
      first.delivery.output.markStored(first.end);
      this.#inFlight.shift();
    }
    this.pump();
  }

  /** Send what the window allows, each attempt in turn. */
  pump(): void {
    const send = this.#send;
    if (send === undefined) return;
    for (const delivery of this.#ready) {
      if (this.#window <= 0) return;
      const { output, task } = delivery;
      const chunk = output.next(this.#window);
      this.#ready.delete(delivery);
      if (chunk !== undefined) {
        this.#window -= chunk.bytes.length;
        const { stream, offset, bytes } = chunk;
        this.#inFlight.push({ delivery, end: offset + bytes.length, bytes: bytes.length });
        send({ type: "OUTPUT", job: task.job, index: task.index, attempt: task.attempt, stream, offset, bytes });
        // To the end of the line: the loop comes to it again.
        this.#ready.add(delivery);
      } else if (output.sentAll) {
        delivery.sent();
      }
    }
  }

  close(): void {
    this.pause();
    this.#ready.clear();
    this.#all.clear();
  }
}
