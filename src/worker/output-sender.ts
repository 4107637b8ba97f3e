/**
 * Output on its way to the broker. The first output of an attempt is held: if the attempt ends soon and has written
 * little, all of it is sent with the result. Otherwise it goes through an OutputBuffer, from which it is sent as it
 * arrives. The bytes in flight are bounded by the window of WELCOME; CREDIT returns the bytes that the broker has
 * stored, in send order.
 *
 * If the job relays, output past the head is also sent as RELAY, with its own window for each attempt: RELAYED tells
 * what the clients have taken. While too much of such an attempt is unsent, its pipes are not read.
 */
import { join } from "node:path";
import { type OutputStream, SMALL_OUTPUT, SMALL_OUTPUT_MS, type SmallOutput } from "../model/outcome.js";
import {
  type FromWorker,
  OUTPUT_CHUNK,
  type ResumedTask,
  type TakenOutput,
  type TaskRef,
} from "../protocols/laboro/messages.js";
import { OutputBuffer, type OutputBufferSettings, type UnsentOutput } from "./spool/output-buffer.js";

export const attemptKey = ({ job, index, attempt }: TaskRef): string => `${job}.${index}.${attempt}`;

interface PendingOutput {
  readonly task: TaskRef;
  readonly output: OutputBuffer;
  /** Called once all of its output was passed to the link. */
  sent: () => void;
  readonly relay: Relay | undefined;
}

interface Relay {
  readonly buffer: RelayBuffer;
  readonly source: OutputSource;
  paused: boolean;
}

/** The pipes of a task. */
interface OutputSource {
  pause(): void;
  resume(): void;
}

/** What an attempt has written: held in `parts`, or in a buffer. */
export interface AttemptOutput {
  readonly task: TaskRef;
  readonly cap: number;
  /** Set if the job relays: unsent output is relayed, and the source is paused while it is taken slowly. */
  readonly relayFrom: OutputSource | undefined;
  /** From this time on it is not held. */
  readonly holdUntil: number;
  parts: SmallOutput[];
  size: number;
  pending: PendingOutput | undefined;
}

interface OutputSenderOptions {
  readonly directory: string;
  readonly now: () => number;
  readonly onLost: NonNullable<OutputBufferSettings["onLost"]>;
  /** There is something to send; the owner decides when to `pump`. */
  readonly onReady: () => void;
}

/** The process of a relayed attempt is not read while this many bytes of its output wait to be sent. */
const MAX_UNSENT_HEAD = 8 * 1024 * 1024;
/** Output of all attempts in memory, apart from a small part of each. The rest is on disk. */
const SHARED_MEMORY = 32 * 1024 * 1024;
/** Each part has a row in DONE. */
const MAX_PARTS = 64;

export class OutputSender {
  readonly #options: OutputSenderOptions;
  /** Held output of attempts that run. */
  readonly #held = new Set<AttemptOutput>();
  #holdTimer: NodeJS.Timeout | undefined;
  #holdTimerAt = Number.POSITIVE_INFINITY;
  readonly #memory = { free: SHARED_MEMORY };
  readonly #all = new Map<string, PendingOutput>();
  /** Outputs with something to send, in order of their turn. */
  readonly #ready = new Set<PendingOutput>();
  readonly #inFlight: { readonly pending: PendingOutput; readonly end: number; bytes: number }[] = [];
  #send: ((message: FromWorker) => void) | undefined;
  #window = 0;

  constructor(options: OutputSenderOptions) {
    this.#options = options;
  }

  settingsFor(task: TaskRef, cap?: number): OutputBufferSettings {
    const path = join(this.#options.directory, attemptKey(task));
    return { path, onLost: this.#options.onLost, shared: this.#memory, ...(cap === undefined ? {} : { cap }) };
  }

  /** An attempt starts. */
  begin(task: TaskRef, cap: number, relayFrom: OutputSource | undefined): AttemptOutput {
    const holdUntil = this.#options.now() + SMALL_OUTPUT_MS;
    return { task, cap, relayFrom, holdUntil, parts: [], size: 0, pending: undefined };
  }

  write(attempt: AttemptOutput, stream: OutputStream, bytes: Uint8Array): void {
    if (attempt.pending === undefined) {
      if (hasRoom(attempt, bytes.length)) {
        this.#hold(attempt, stream, bytes);
        return;
      }
      this.#buffer(attempt);
    }
    if (attempt.pending !== undefined) this.#write(attempt.pending, stream, bytes);
  }

  /** The attempt has ended. Returns its length, and all of its output if that is still held. */
  end(attempt: AttemptOutput): { readonly outputBytes: number; readonly output?: readonly SmallOutput[] } {
    this.#held.delete(attempt);
    const { pending, parts, size } = attempt;
    if (pending !== undefined) return { outputBytes: pending.output.end() };
    return size === 0 ? { outputBytes: 0 } : { outputBytes: size, output: parts };
  }

  /** The attempt was dropped while it runs: held output is not sent. Another store may assign the same attempt. */
  drop(attempt: AttemptOutput): void {
    this.#held.delete(attempt);
  }

  /** Output of an attempt that ended in an earlier process. */
  resumeEnded(task: TaskRef, output: OutputBuffer): void {
    this.#open(task, output, undefined);
  }

  outputOf(task: TaskRef): OutputBuffer | undefined {
    return this.#all.get(attemptKey(task))?.output;
  }

  /**
   * `sent` is called when the output has ended, all of it was passed to the link, and the relayed part was taken.
   * Returns false if there is no output to send.
   */
  whenSent(task: TaskRef, sent: () => void): boolean {
    const pending = this.#all.size === 0 ? undefined : this.#all.get(attemptKey(task));
    if (pending === undefined) return false;
    pending.sent = sent;
    this.#ready.add(pending);
    return true;
  }

  /** The clients have taken relayed output. */
  relayed(taken: TakenOutput): void {
    const pending = this.#all.get(attemptKey(taken));
    if (pending?.relay === undefined) return;
    pending.relay.buffer.markTaken(taken.end);
    this.#ready.add(pending);
    this.#adjustFlow(pending);
    this.#options.onReady();
  }

  /** Forgets the output of a task that is delivered or was dropped. */
  discard(task: TaskRef): void {
    if (this.#all.size === 0) return;
    const key = attemptKey(task);
    const pending = this.#all.get(key);
    if (pending === undefined) return;
    this.#all.delete(key);
    this.#ready.delete(pending);
    if (pending.relay?.paused === true) pending.relay.source.resume();
    pending.output.discard();
  }

  /** A new connection: sending restarts after the output that the broker has stored. */
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

  /** Sends what the window allows, each attempt in turn. */
  pump(): void {
    const send = this.#send;
    if (send === undefined) return;
    this.#bufferDue();
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
    clearTimeout(this.#holdTimer);
    this.#held.clear();
    this.#ready.clear();
    this.#all.clear();
  }

  #hold(attempt: AttemptOutput, stream: OutputStream, bytes: Uint8Array): void {
    const last = attempt.parts.at(-1);
    if (last?.stream === stream)
      attempt.parts[attempt.parts.length - 1] = { stream, bytes: Buffer.concat([last.bytes, bytes]) };
    else attempt.parts.push({ stream, bytes });
    attempt.size += bytes.length;
    this.#held.add(attempt);
    if (this.#options.now() >= attempt.holdUntil) this.#options.onReady();
    else if (attempt.holdUntil < this.#holdTimerAt) this.#setHoldTimer(attempt.holdUntil);
  }

  #setHoldTimer(at: number): void {
    clearTimeout(this.#holdTimer);
    this.#holdTimerAt = at;
    this.#holdTimer = setTimeout(() => this.#holdOver(), at - this.#options.now());
  }

  /** Most attempts whose output was held have ended meanwhile. */
  #holdOver(): void {
    this.#holdTimerAt = Number.POSITIVE_INFINITY;
    const now = this.#options.now();
    let next = Number.POSITIVE_INFINITY;
    for (const { holdUntil } of this.#held) if (holdUntil > now) next = Math.min(next, holdUntil);
    if (next < Number.POSITIVE_INFINITY) this.#setHoldTimer(next);
    if (this.#held.size > 0) this.#options.onReady();
  }

  /** Attempts that have run too long for their output to ride in the result: it is buffered and sent from now on. */
  #bufferDue(): void {
    if (this.#held.size === 0) return;
    const now = this.#options.now();
    for (const attempt of this.#held) if (now >= attempt.holdUntil) this.#buffer(attempt);
  }

  #buffer(attempt: AttemptOutput): void {
    this.#held.delete(attempt);
    const { task, cap, relayFrom, parts } = attempt;
    const pending = this.#open(task, new OutputBuffer(this.settingsFor(task, cap)), relayFrom);
    attempt.pending = pending;
    attempt.parts = [];
    for (const { stream, bytes } of parts) this.#write(pending, stream, bytes);
  }

  #open(task: TaskRef, output: OutputBuffer, relayFrom: OutputSource | undefined): PendingOutput {
    const relay = relayFrom === undefined ? undefined : { buffer: new RelayBuffer(), source: relayFrom, paused: false };
    const pending = { task, output, sent: () => {}, relay };
    this.#all.set(attemptKey(task), pending);
    this.#ready.add(pending);
    return pending;
  }

  #write(pending: PendingOutput, stream: OutputStream, bytes: Uint8Array): void {
    const { output, relay } = pending;
    const offset = output.length;
    output.write(stream, bytes);
    if (relay !== undefined) {
      const kept = Math.max(0, output.headEnd - offset);
      if (kept < bytes.length) relay.buffer.write(stream, offset + kept, bytes.subarray(kept));
    }
    this.#ready.add(pending);
    this.#adjustFlow(pending);
    this.#options.onReady();
  }

  #adjustFlow({ output, relay }: PendingOutput): void {
    if (relay === undefined) return;
    const full = relay.buffer.full || output.unsent > MAX_UNSENT_HEAD;
    if (full === relay.paused) return;
    relay.paused = full;
    if (full) relay.source.pause();
    else relay.source.resume();
  }
}

/** Held output is never more than the part of the cap that is sent as it comes. */
const hasRoom = ({ size, cap, parts }: AttemptOutput, more: number): boolean =>
  size + more <= Math.min(SMALL_OUTPUT, cap / 2) && parts.length < MAX_PARTS;

/** Bytes of one task that may be sent and not yet taken. */
const WINDOW = 1024 * 1024;

/**
 * Output beyond the cap, for the clients that follow the job. Keeps in memory what they have not taken yet, to send it
 * again after a reconnect. It never refuses a write: while it is full, its owner stops reading the task's pipes.
 */
class RelayBuffer {
  readonly #chunks: UnsentOutput[] = [];
  #bytes = 0;
  /** How many of the chunks are sent, and their bytes. */
  #sent = 0;
  #sentBytes = 0;

  get empty(): boolean {
    return this.#chunks.length === 0;
  }

  get full(): boolean {
    return this.#bytes >= WINDOW;
  }

  write(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at += OUTPUT_CHUNK) {
      this.#chunks.push({ stream, offset: offset + at, bytes: bytes.subarray(at, at + OUTPUT_CHUNK) });
    }
    this.#bytes += bytes.length;
  }

  /** The next chunk to send; undefined while there is none, or the window is full. */
  next(): UnsentOutput | undefined {
    const chunk = this.#chunks[this.#sent];
    if (chunk === undefined || this.#sentBytes >= WINDOW) return undefined;
    this.#sent++;
    this.#sentBytes += chunk.bytes.length;
    return chunk;
  }

  /** Everything before this offset was taken. */
  markTaken(end: number): void {
    for (let first = this.#chunks[0]; first !== undefined; first = this.#chunks[0]) {
      if (first.offset + first.bytes.length > end) return;
      this.#chunks.shift();
      this.#bytes -= first.bytes.length;
      if (this.#sent === 0) continue;
      this.#sent--;
      this.#sentBytes -= first.bytes.length;
    }
  }

  /** A new connection: all that was not taken is sent again. */
  rewind(): void {
    this.#sent = 0;
    this.#sentBytes = 0;
  }
}
