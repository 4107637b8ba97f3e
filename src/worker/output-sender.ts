/**
 * Output on its way to the broker. Each attempt that has written anything has an OutputBuffer. The bytes in flight are bounded
 * by the window of WELCOME; CREDIT gives the number of those that are stored, in the order of sending.
 *
 * Where the job relays, what lies past the head is also sent as RELAY, with a window of its own for each attempt: RELAYED says what
 * the clients have taken. While too much of such an attempt is unsent, its pipes are not read.
 */
import { join } from "node:path";
import type { OutputStream } from "../model/outcome.js";
import type { FromWorker, ResumedTask, TakenOutput, TaskRef } from "../protocols/laboro/messages.js";
import { RelayBuffer } from "./relay-buffer.js";
import type { OutputBuffer, OutputBufferSettings } from "./spool/output-buffer.js";

export const attemptKey = ({ job, index, attempt }: TaskRef): string => `${job}.${index}.${attempt}`;

interface PendingOutput {
  readonly task: TaskRef;
  readonly output: OutputBuffer;
  /** Called once all of its output was passed to the link. */
  readonly sent: () => void;
  readonly relay: Relay | undefined;
}

interface Relay {
  readonly buffer: RelayBuffer;
  readonly source: OutputSource;
  paused: boolean;
}

/** The pipes of a task. */
export interface OutputSource {
  pause(): void;
  resume(): void;
}

/** An attempt that relays is not read while more of its head than this waits to be sent. */
const MAX_UNSENT_HEAD = 8 * 1024 * 1024;

export class OutputSender {
  readonly #dir: string;
  readonly #onLost: NonNullable<OutputBufferSettings["onLost"]>;
  readonly #onReady: () => void;
  readonly #all = new Map<string, PendingOutput>();
  /** Outputs with something to send, in order of their turn. */
  readonly #ready = new Set<PendingOutput>();
  readonly #inFlight: { readonly pending: PendingOutput; readonly end: number; bytes: number }[] = [];
  #send: ((message: FromWorker) => void) | undefined;
  #window = 0;

  /** `onReady` is called when there is something to send; the owner decides when to `pump`. */
  constructor(dir: string, onLost: NonNullable<OutputBufferSettings["onLost"]>, onReady: () => void) {
    this.#onReady = onReady;
    this.#dir = dir;
    this.#onLost = onLost;
  }

  settingsFor(task: TaskRef, cap?: number): OutputBufferSettings {
    const path = join(this.#dir, attemptKey(task));
    return { path, onLost: this.#onLost, ...(cap === undefined ? {} : { cap }) };
  }

  /** `sent` is called once the output has ended, all of it was passed to the link, and what is relayed was taken. */
  add(task: TaskRef, output: OutputBuffer, sent: () => void): void {
    this.#add({ task, output, sent, relay: this.#all.get(attemptKey(task))?.relay });
  }

  /** With `source`, what the buffer does not send as it comes is relayed, and the source is paused while it is taken slowly. */
  open(task: TaskRef, output: OutputBuffer, source: OutputSource | undefined): void {
    const relay = source === undefined ? undefined : { buffer: new RelayBuffer(), source, paused: false };
    this.#add({ task, output, sent: () => {}, relay });
  }

  #add(pending: PendingOutput): void {
    this.#all.set(attemptKey(pending.task), pending);
    this.#ready.add(pending);
  }

  outputOf(task: TaskRef): OutputBuffer | undefined {
    return this.#all.get(attemptKey(task))?.output;
  }

  write(task: TaskRef, stream: OutputStream, bytes: Uint8Array): void {
    const pending = this.#all.get(attemptKey(task));
    if (pending === undefined) return;
    const { output, relay } = pending;
    const offset = output.length;
    output.write(stream, bytes);
    if (relay !== undefined) {
      const kept = Math.max(0, output.headEnd - offset);
      if (kept < bytes.length) relay.buffer.write(stream, offset + kept, bytes.subarray(kept));
    }
    this.#ready.add(pending);
    this.#adjustFlow(pending);
    this.#onReady();
  }

  /** The clients have taken relayed output. */
  relayed(taken: TakenOutput): void {
    const pending = this.#all.get(attemptKey(taken));
    if (pending?.relay === undefined) return;
    pending.relay.buffer.markTaken(taken.end);
    this.#ready.add(pending);
    this.#adjustFlow(pending);
    this.#onReady();
  }

  #adjustFlow({ output, relay }: PendingOutput): void {
    if (relay === undefined) return;
    const full = relay.buffer.full || output.unsent > MAX_UNSENT_HEAD;
    if (full === relay.paused) return;
    relay.paused = full;
    if (full) relay.source.pause();
    else relay.source.resume();
  }

  discard(task: TaskRef): void {
    const key = attemptKey(task);
    const pending = this.#all.get(key);
    if (pending === undefined) return;
    this.#all.delete(key);
    this.#ready.delete(pending);
    if (pending.relay?.paused === true) pending.relay.source.resume();
    pending.output.discard();
  }

  /** A new connection: sending restarts at what the broker has stored. */
  resume(keep: readonly ResumedTask[], window: number, send: (message: FromWorker) => void): void {
    this.#inFlight.length = 0;
    this.#window = window;
    this.#send = send;
    for (const task of keep) {
      const pending = this.#all.get(attemptKey(task));
      if (pending === undefined) continue;
      pending.output.rewind(task.outputStored);
      pending.relay?.buffer.rewind();
      this.#ready.add(pending);
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
      first.pending.output.markStored(first.end);
      this.#inFlight.shift();
    }
    this.pump();
  }

  /** Send what the window allows, each attempt in turn. */
  pump(): void {
    const send = this.#send;
    if (send === undefined) return;
    for (const { task, relay } of this.#ready) {
      for (let chunk = relay?.buffer.next(); chunk !== undefined; chunk = relay?.buffer.next())
        send({ type: "RELAY", job: task.job, index: task.index, attempt: task.attempt, ...chunk });
    }
    for (const pending of this.#ready) {
      if (this.#window <= 0) return;
      const { output, task } = pending;
      const chunk = output.next(this.#window);
      this.#ready.delete(pending);
      if (chunk !== undefined) {
        this.#window -= chunk.bytes.length;
        const { stream, offset, bytes } = chunk;
        this.#inFlight.push({ pending, end: offset + bytes.length, bytes: bytes.length });
        send({ type: "OUTPUT", job: task.job, index: task.index, attempt: task.attempt, stream, offset, bytes });
        // Added again at the end of the set, so that the loop reaches it once more.
        this.#ready.add(pending);
        this.#adjustFlow(pending);
      } else if (output.sentAll && pending.relay?.buffer.empty !== false) {
        pending.sent();
      }
    }
  }

  close(): void {
    this.pause();
    this.#ready.clear();
    this.#all.clear();
  }
}
