/**
 * A program that answers one call after the other, and the framing of its messages (FRAMINGS).
 *
 *     idle      waits for a call. Output in this state breaks the framing, and the process is ended
 *     busy      has a call; its next message is the reply
 *     ending    it has died, or was sent SIGTERM, and SIGKILL after the grace: its call was aborted, it broke the
 *               framing, or the worker stops
 *     gone      no process of its group is left; its call fails with the last lines of its standard error
 *
 * It leads a process group, which the guardian watches.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { asLaboroError, badInput, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { REPLY_LIMIT } from "../calls.js";
import { signalGroup, whenGroupGone } from "../processes/guardian.js";
import type { Guardian } from "../processes/index.js";

interface PersistentProcessOptions {
  readonly service: string;
  readonly command: string;
  readonly framing: Framing;
  readonly env: NodeJS.ProcessEnv;
  readonly guardian: Guardian;
  readonly graceMs: number;
  readonly log: Log;
  readonly onGone: (process: PersistentProcess) => void;
}

interface PendingCall {
  readonly resolve: (reply: Buffer) => void;
  readonly reject: (error: LaboroError) => void;
}

/** How long to wait for remaining output after the end of the process. */
const OUTPUT_DRAIN_MS = 500;

export class PersistentProcess {
  readonly #options: PersistentProcessOptions;
  readonly #child: ChildProcess;
  readonly #reader: FrameReader;
  readonly #tail = new StderrTail();
  readonly #whenGone: (() => void)[] = [];
  #state: "idle" | "busy" | "ending" | "gone" = "idle";
  #pendingCall: PendingCall | undefined;
  #fault: LaboroError | undefined;
  #grace: NodeJS.Timeout | undefined;
  #killAt = Number.POSITIVE_INFINITY;

  constructor(options: PersistentProcessOptions) {
    const { service, command, env, framing, guardian } = options;
    this.#options = options;
    this.#reader = framing.reader(REPLY_LIMIT);
    const child = spawn("/bin/sh", ["-c", command], { detached: true, env: { ...env, LABORO_SERVICE: service } });
    this.#child = child;
    if (child.pid !== undefined) guardian.watch(child.pid);
    // "exit" reports its end; a write after that has no effect.
    child.stdin?.on("error", () => {});
    child.stdout?.on("data", (bytes: Buffer) => this.#onOutput(bytes));
    child.stderr?.on("data", (bytes: Buffer) => this.#tail.push(bytes));
    child.once("error", (cause) => {
      this.#fault ??= new LaboroError("LABORO_SERVICE_FAILED", describeEnd(service, { error: cause.message }));
      if (child.pid === undefined) this.#gone();
    });
    child.once("exit", () => {
      if (this.#state === "idle") this.#state = "ending";
      // The rest of the group has lost its leader and must not continue unwatched.
      this.#signal("SIGKILL");
      const drainTimer = setTimeout(() => this.#gone(), OUTPUT_DRAIN_MS);
      child.once("close", () => {
        clearTimeout(drainTimer);
        this.#gone();
      });
    });
  }

  get usable(): boolean {
    return this.#state === "idle";
  }

  /** Rejects, once the process is gone, if it dies or `signal` aborts the call. */
  call(body: Uint8Array, signal: AbortSignal): Promise<Buffer> {
    const message = this.#options.framing.encode(body);
    if (this.#state !== "idle") return Promise.reject(this.#endError());
    return new Promise<Buffer>((resolve, reject) => {
      const abort = (): void =>
        this.#stop(new LaboroError("LABORO_DEADLINE", "nobody waits for the answer any more"), this.#options.graceMs);
      const settled = (): void => signal.removeEventListener("abort", abort);
      this.#state = "busy";
      this.#pendingCall = {
        resolve: (reply) => {
          settled();
          resolve(reply);
        },
        reject: (error) => {
          settled();
          reject(error);
        },
      };
      signal.addEventListener("abort", abort, { once: true });
      if (signal.aborted) abort();
      else this.#child.stdin?.write(message);
    });
  }

  /** Ends it; resolves when it is gone. A later call may shorten the grace. */
  close(graceMs: number): Promise<void> {
    if (this.#state === "gone") return Promise.resolve();
    const { service } = this.#options;
    return new Promise((resolve) => {
      this.#whenGone.push(resolve);
      this.#child.stdin?.end();
      this.#stop(new LaboroError("LABORO_SERVICE_FAILED", `the worker that offers ${service} stops`), graceMs);
    });
  }

  #onOutput(bytes: Buffer): void {
    if (this.#state === "ending" || this.#state === "gone") return;
    let messages: Buffer[];
    try {
      messages = this.#reader.push(bytes);
    } catch (cause) {
      this.#stop(asLaboroError(cause), 0);
      return;
    }
    for (const message of messages) {
      if (this.#state !== "busy") {
        this.#stop(
          new LaboroError(
            "LABORO_SERVICE_FAILED",
            `the program of ${this.#options.service} sent output without a request`,
          ),
          0,
        );
        return;
      }
      const pendingCall = this.#pendingCall;
      this.#pendingCall = undefined;
      this.#state = "idle";
      pendingCall?.resolve(message);
    }
  }

  /** A later call can only shorten the grace. */
  #stop(fault: LaboroError, graceMs: number): void {
    if (this.#state === "gone") return;
    if (this.#state !== "ending") {
      this.#state = "ending";
      this.#fault = fault;
      if (graceMs > 0) this.#signal("SIGTERM");
    }
    const killAt = performance.now() + graceMs;
    if (killAt >= this.#killAt) return;
    this.#killAt = killAt;
    clearTimeout(this.#grace);
    if (graceMs > 0) this.#grace = setTimeout(() => this.#signal("SIGKILL"), graceMs);
    else this.#signal("SIGKILL");
  }

  #signal(name: NodeJS.Signals): void {
    if (this.#child.pid !== undefined) signalGroup(this.#child.pid, name);
  }

  #gone(): void {
    if (this.#state === "gone") return;
    this.#state = "gone";
    clearTimeout(this.#grace);
    const { guardian, log, service, onGone } = this.#options;
    const { pid } = this.#child;
    const finish = (): void => {
      if (pid !== undefined) guardian.unwatch(pid);
      const error = this.#endError();
      if (this.#whenGone.length === 0) log.warn({ service, pid, code: error.code }, error.message);
      onGone(this);
      this.#pendingCall?.reject(error);
      for (const resolve of this.#whenGone.splice(0)) resolve();
    };
    if (pid === undefined) finish();
    else whenGroupGone(pid, finish);
  }

  #endError(): LaboroError {
    const { exitCode, signalCode } = this.#child;
    const how = describeEnd(this.#options.service, { code: exitCode, signal: signalCode });
    return this.#fault ?? new LaboroError("LABORO_SERVICE_FAILED", this.#tail.text || how);
  }
}

/** The last bytes of a program's standard error: the error text for its client. */
const MAX_BYTES = 2 * 1024;

export class StderrTail {
  #bytes: Buffer = Buffer.alloc(0);

  push(bytes: Uint8Array): void {
    const all = Buffer.concat([this.#bytes, bytes.subarray(-MAX_BYTES)]);
    this.#bytes = all.subarray(-MAX_BYTES);
  }

  get text(): string {
    // The first bytes may be the end of a cut UTF-8 character.
    let from = 0;
    while (from < 3 && ((this.#bytes[from] ?? 0) & 0xc0) === 0x80) from++;
    return this.#bytes.subarray(from).toString().trim();
  }
}

interface ProgramEnd {
  readonly code?: number | null | undefined;
  readonly signal?: string | null | undefined;
  readonly error?: string | undefined;
}

export function describeEnd(service: string, { code, signal, error }: ProgramEnd): string {
  if (typeof error === "string") return `the program of ${service}: ${error}`;
  return typeof signal === "string"
    ? `the program of ${service} was ended by ${signal}`
    : `the program of ${service} ended with code ${code ?? 0}`;
}

// The framing of requests and replies on the standard input and output of a persistent program:
//   lines    one line in, one line out. The line ending is not part of the message
//   length   four bytes, big-endian: the number of bytes that follow; then these. Both ways
// Pure functions on bytes.

export type FramingName = "lines" | "length";

interface FrameReader {
  /** The messages that these bytes complete. Throws LABORO_BODY_TOO_LARGE. */
  push(bytes: Buffer): Buffer[];
}

interface Framing {
  /** Throws LABORO_BAD_INPUT for a body that cannot be sent this way. */
  encode(body: Uint8Array): Uint8Array;
  reader(limit: number): FrameReader;
}

const NEWLINE = 0x0a;
const LENGTH_BYTES = 4;

export const FRAMINGS: Readonly<Record<FramingName, Framing>> = {
  lines: {
    encode: (body) => {
      const line = body.at(-1) === NEWLINE ? body.subarray(0, -1) : body;
      if (!line.includes(NEWLINE)) return Buffer.concat([line, Buffer.of(NEWLINE)]);
      throw badInput("the body has several lines, this service takes one");
    },
    reader: (limit) => new LineReader(limit),
  },
  length: {
    encode: (body) => {
      const head = Buffer.alloc(LENGTH_BYTES);
      head.writeUInt32BE(body.length);
      return Buffer.concat([head, body]);
    },
    reader: (limit) => new LengthReader(limit),
  },
};

/** Received bytes that are not yet a whole message. */
class ByteQueue {
  #pieces: Buffer[] = [];
  length = 0;

  push(piece: Buffer): void {
    if (piece.length === 0) return;
    this.#pieces.push(piece);
    this.length += piece.length;
  }

  /** Removes the first `count` bytes, which must have been received. */
  take(count: number): Buffer {
    const all = this.#pieces.length === 1 ? (this.#pieces[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#pieces);
    const rest = all.subarray(count);
    this.#pieces = rest.length === 0 ? [] : [rest];
    this.length = rest.length;
    return all.subarray(0, count);
  }
}

class LineReader implements FrameReader {
  readonly #limit: number;
  readonly #pieces = new ByteQueue();

  constructor(limit: number) {
    this.#limit = limit;
  }

  push(bytes: Buffer): Buffer[] {
    const lines: Buffer[] = [];
    let from = 0;
    for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, from)) {
      this.#pieces.push(bytes.subarray(from, at));
      checkLength(this.#pieces.length, this.#limit);
      lines.push(withoutReturn(this.#pieces.take(this.#pieces.length)));
      from = at + 1;
    }
    this.#pieces.push(bytes.subarray(from));
    checkLength(this.#pieces.length, this.#limit);
    return lines;
  }
}

class LengthReader implements FrameReader {
  readonly #limit: number;
  readonly #pieces = new ByteQueue();
  #expected: number | undefined;

  constructor(limit: number) {
    this.#limit = limit;
  }

  push(bytes: Buffer): Buffer[] {
    const messages: Buffer[] = [];
    this.#pieces.push(bytes);
    for (;;) {
      if (this.#expected === undefined) {
        if (this.#pieces.length < LENGTH_BYTES) return messages;
        this.#expected = this.#pieces.take(LENGTH_BYTES).readUInt32BE();
        checkLength(this.#expected, this.#limit);
      }
      if (this.#pieces.length < this.#expected) return messages;
      messages.push(this.#pieces.take(this.#expected));
      this.#expected = undefined;
    }
  }
}

const withoutReturn = (line: Buffer): Buffer => (line.at(-1) === 0x0d ? line.subarray(0, -1) : line);

function checkLength(length: number, limit: number): void {
  if (length <= limit) return;
  throw new LaboroError("LABORO_BODY_TOO_LARGE", `the reply has ${length} bytes or more, the limit is ${limit}`);
}
