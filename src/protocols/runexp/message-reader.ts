/**
 * Takes the messages of one direction out of a stream that has no marks between them. The caller says what can come now; a word is taken
 * as soon as it is whole, data by its count, and a message with a variable tail, which nothing can follow because its sender waits for the
 * answer:
 *
 *   at once            where all of it came in one piece and the grammar has it for a whole message
 *   after some quiet   where it came in several: another piece could still belong to it
 *
 * What stays undecidable is a piece that is a whole message by itself and yet is not: `LABORO a .sh 1` and then `0`.
 * No clock is in here: the caller says with `quietElapsed()` that nothing has come for QUIET_MS.
 */
import { MAX_MESSAGE, type MessageType, parseVariable, type RunexpMessage, VARIABLE_MESSAGES } from "./messages.js";

export const QUIET_MS = 20;

export type ReadResult<M extends RunexpMessage = RunexpMessage> =
  | { readonly kind: "message"; readonly message: M; readonly bytes: number }
  /** More must come. */
  | { readonly kind: "partial" }
  /** It is a message if nothing more comes for a while. */
  | { readonly kind: "needs-quiet" }
  /** Whatever comes, it will be none of what can come now. */
  | { readonly kind: "wrong"; readonly text: string };

const PARTIAL: ReadResult<never> = { kind: "partial" };
const NEEDS_QUIET: ReadResult<never> = { kind: "needs-quiet" };

export class MessageReader {
  #buffer: Buffer = Buffer.alloc(0);
  /** Where in the buffer the latest piece begins; 0 where nothing older is left. */
  #lastChunkStart = 0;
  #quiet = false;

  get length(): number {
    return this.#buffer.length;
  }

  push(piece: Uint8Array): void {
    this.#lastChunkStart = this.#buffer.length;
    this.#buffer = this.#lastChunkStart === 0 ? Buffer.from(piece) : Buffer.concat([this.#buffer, piece]);
    this.#quiet = false;
  }

  /** Nothing has come for QUIET_MS. */
  quietElapsed(): void {
    this.#quiet = true;
  }

  /** The next message, which can only be one of these. */
  take<T extends MessageType>(expected: readonly T[]): ReadResult<Extract<RunexpMessage, { type: T }>> {
    type M = Extract<RunexpMessage, { type: T }>;
    if (this.#buffer.length === 0) return PARTIAL;
    const text = this.#buffer.toString("latin1", 0, MAX_MESSAGE + 1);
    let possible: ReadResult<M> | undefined;
    for (const type of expected) {
      const tailed = VARIABLE_MESSAGES[type];
      if (tailed === undefined) {
        if (text.startsWith(type)) return this.#taken({ type } as unknown as M, type.length);
        if (type.startsWith(text)) possible = PARTIAL;
      } else if (tailed.prefix.startsWith(text)) {
        possible = PARTIAL;
      } else if (text.startsWith(tailed.prefix) && tailed.partialPattern.test(text.slice(tailed.prefix.length))) {
        const message = text.length > MAX_MESSAGE ? undefined : (parseVariable(type, tailed, text) as M | undefined);
        if (message === undefined) possible = text.length > MAX_MESSAGE ? undefined : PARTIAL;
        else if (this.#lastChunkStart > 0 && !this.#quiet) possible = NEEDS_QUIET;
        else return this.#taken(message, this.#buffer.length);
      }
    }
    return possible ?? { kind: "wrong", text: preview(text) };
  }

  /** Up to so many bytes of data. */
  takeData(most: number): Buffer {
    const data = this.#buffer.subarray(0, most);
    this.#skip(data.length);
    return data;
  }

  #taken<M extends RunexpMessage>(message: M, bytes: number): ReadResult<M> {
    this.#skip(bytes);
    return { kind: "message", message, bytes };
  }

  #skip(bytes: number): void {
    this.#buffer = this.#buffer.subarray(bytes);
    this.#lastChunkStart = Math.max(0, this.#lastChunkStart - bytes);
  }
}

/** The beginning of what came, for a log. */
function preview(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}
