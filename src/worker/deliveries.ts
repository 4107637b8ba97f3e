/**
 * Output on its way to the broker. Each attempt that has written anything has a TaskOutput; what is under way is bounded by the
 * window that WELCOME gave, and CREDIT says, in the order of sending, how much of it is stored.
 */
import { join } from "node:path";
import type { OutputStream } from "../model/outcome.js";
import type { FromWorker, Kept, TaskRef } from "../protocols/laboro/messages.js";
import type { TaskOutput, TaskOutputSettings } from "./spool/task-output.js";

export const attemptKey = ({ job, index, attempt }: TaskRef): string => `${job}.${index}.${attempt}`;

interface Delivery {
  readonly task: TaskRef;
  readonly output: TaskOutput;
  /** All of its output was given to the link. */
  readonly sent: () => void;
}

export class Deliveries {
  readonly #dir: string;
  readonly #onLost: NonNullable<TaskOutputSettings["onLost"]>;
  readonly #onEager: () => void;
  readonly #all = new Map<string, Delivery>();
  /** Those with something to send, in turn. */
  readonly #eager = new Set<Delivery>();
  readonly #underWay: { readonly delivery: Delivery; readonly end: number; bytes: number }[] = [];
  #send: ((message: FromWorker) => void) | undefined;
  #window = 0;

  /** `onEager` is called when there is something to send; the owner decides when to `pump`. */
  constructor(dir: string, onLost: NonNullable<TaskOutputSettings["onLost"]>, onEager: () => void) {
    this.#onEager = onEager;
    this.#dir = dir;
    this.#onLost = onLost;
  }

  settingsFor(task: TaskRef, cap?: number): TaskOutputSettings {
    const path = join(this.#dir, attemptKey(task));
    return { path, onLost: this.#onLost, ...(cap === undefined ? {} : { cap }) };
  }

  /** `sent` is called once the output has ended and all of it was given to the link. */
  open(task: TaskRef, output: TaskOutput, sent: () => void): void {
    const delivery = { task, output, sent };
    this.#all.set(attemptKey(task), delivery);
    this.#eager.add(delivery);
  }

  of(task: TaskRef): TaskOutput | undefined {
    return this.#all.get(attemptKey(task))?.output;
  }

  write(task: TaskRef, stream: OutputStream, bytes: Uint8Array): void {
    const delivery = this.#all.get(attemptKey(task));
    if (delivery === undefined) return;
    delivery.output.write(stream, bytes);
    this.#eager.add(delivery);
    this.#onEager();
  }

  /** The task has ended; its tail may go now. */
  ended(task: TaskRef): void {
    const delivery = this.#all.get(attemptKey(task));
    if (delivery === undefined) return;
    this.#eager.add(delivery);
    this.#onEager();
  }

  discard(task: TaskRef): void {
    const key = attemptKey(task);
    const delivery = this.#all.get(key);
    if (delivery === undefined) return;
    this.#all.delete(key);
    this.#eager.delete(delivery);
    delivery.output.discard();
  }

  /** A new connection: sending restarts at what the broker has stored. */
  resume(keep: readonly Kept[], window: number, send: (message: FromWorker) => void): void {
    this.#underWay.length = 0;
    this.#window = window;
    this.#send = send;
    for (const kept of keep) {
      const delivery = this.#all.get(attemptKey(kept));
      if (delivery === undefined) continue;
      delivery.output.rewind(kept.outputStored);
      this.#eager.add(delivery);
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
      const first = this.#underWay[0];
      if (first === undefined) break;
      const part = Math.min(left, first.bytes);
      left -= part;
      first.bytes -= part;
      if (first.bytes > 0) break;
      first.delivery.output.stored(first.end);
      this.#underWay.shift();
    }
    this.pump();
  }

  /** Send what the window allows, each attempt in turn. */
  pump(): void {
    const send = this.#send;
    if (send === undefined) return;
    for (const delivery of this.#eager) {
      if (this.#window <= 0) return;
      const { output, task } = delivery;
      const chunk = output.next(this.#window);
      this.#eager.delete(delivery);
      if (chunk !== undefined) {
        this.#window -= chunk.bytes.length;
        const { stream, offset, bytes } = chunk;
        this.#underWay.push({ delivery, end: offset + bytes.length, bytes: bytes.length });
        send({ type: "OUTPUT", job: task.job, index: task.index, attempt: task.attempt, stream, offset, bytes });
        // To the end of the line: the loop comes to it again.
        this.#eager.add(delivery);
      } else if (output.sentAll) {
        delivery.sent();
      }
    }
  }

  close(): void {
    this.pause();
    this.#eager.clear();
    this.#all.clear();
  }
}
