/**
 * A worker written from the text alone: its own header, msgpack by a library, sequence numbers counted here. It does what a test tells it
 * to do and nothing else.
 */

import { connect, type Socket } from "node:net";
import { Unpackr } from "msgpackr";
import { WebSocket } from "ws";
import { packr } from "../../../support/packr.js";

export const OK = 1;
export const HELLO = 2;
export const JOB = 3;
export const UPDATE = 4;
export const CANCEL = 5;
export const STOP = 7;
export const ERROR = 8;
export const RESET = 9;

const NAMES = ["?", "OK", "HELLO", "JOB", "UPDATE", "CANCEL", "LIST", "STOP", "ERROR", "RESET"];

export interface Frame {
  readonly type: number;
  readonly subtype: number;
  readonly seq: number;
  readonly arg0: number;
  /** The payload, unpacked. */
  readonly rest: unknown;
  readonly payload?: Buffer;
}

export interface TaskOf {
  readonly Task: number;
  readonly JobDescription: {
    readonly JobId: number;
    readonly Name: string;
    readonly NumTasks: number;
    readonly WorkingDir: string;
    readonly LoggingDir: string;
    readonly Command: string;
    readonly Status: number;
  };
}

/** Carries bytes; a raw stream or a WebSocket. */
interface Line {
  send(bytes: Buffer): void;
  cut(): void;
}

const unpackr = new Unpackr({ useRecords: false });

export class LiteralWorker {
  readonly #line: Line;
  readonly #frames: Frame[] = [];
  readonly #waiting: ((frame: Frame | "closed") => void)[] = [];
  #bytes = Buffer.alloc(0);
  /** What a WebSocket was closed with; "" for a stream. */
  closed: string | undefined;
  /** The bytes behind the header of what was given out last. */
  lastPayload: Buffer = Buffer.alloc(0);
  /** One line for each message, both ways: for a person who reads a failure. */
  readonly log: string[] = [];

  private constructor(makeLine: (worker: LiteralWorker) => Line) {
    this.#line = makeLine(this);
  }

  static onStream(port: number): Promise<LiteralWorker> {
    return new Promise((resolve, reject) => {
      const socket: Socket = connect(port, "127.0.0.1");
      socket.once("error", reject);
      socket.once("connect", () => {
        resolve(
          new LiteralWorker((worker) => {
            socket.on("data", (chunk) => worker.#receive(chunk));
            socket.on("error", () => {});
            socket.on("close", () => worker.#close(""));
            return { send: (bytes) => void socket.write(bytes), cut: () => void socket.destroy() };
          }),
        );
      });
    });
  }

  static onWebSocket(url: string, headers: Record<string, string> = {}): Promise<LiteralWorker> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url, { headers, perMessageDeflate: false });
      const worker = new LiteralWorker((self) => {
        socket.on("message", (data) => self.#receive(data as Buffer));
        socket.on("close", (code, reason) => self.#close(`${code} ${reason.toString()}`));
        return { send: (bytes) => socket.send(bytes), cut: () => socket.terminate() };
      });
      socket.once("error", reject);
      socket.once("open", () => resolve(worker));
    });
  }

  #receive(chunk: Buffer): void {
    this.#bytes = Buffer.concat([this.#bytes, chunk]);
    while (this.#bytes.length >= 16) {
      if (this.#bytes.readUInt16LE(0) !== 0xc047) throw new Error(`no magic: ${this.#bytes.toString("hex")}`);
      const type = this.#bytes.readUInt8(2);
      const arg0 = this.#bytes.readUInt32LE(12);
      const length = type >= HELLO && type <= CANCEL ? arg0 : 0;
      if (this.#bytes.length < 16 + length) return;
      const payload = this.#bytes.subarray(16, 16 + length);
      const rest: unknown = length === 0 ? undefined : unpackr.unpack(payload);
      const frame = { type, subtype: this.#bytes.readUInt8(3), seq: this.#bytes.readUInt32LE(4), arg0, rest, payload };
      this.#bytes = this.#bytes.subarray(16 + length);
      this.log.push(`F>W ${short(frame)}`);
      const waiting = this.#waiting.shift();
      if (waiting === undefined) this.#frames.push(frame);
      else waiting(frame);
    }
  }

  #close(why: string): void {
    this.closed = why;
    for (const waiting of this.#waiting.splice(0)) waiting("closed");
  }

  send(type: number, seq: number, arg: number | object | undefined, subtype = 0): void {
    const bytes = frameOf(type, seq, arg, subtype);
    this.log.push(`W>F ${short({ type, subtype, seq, arg0: bytes.readUInt32LE(12), rest: arg })}`);
    this.#line.send(bytes);
  }

  raw(bytes: Buffer): void {
    this.#line.send(bytes);
  }

  cut(): void {
    this.#line.cut();
  }

  /** The next message, whatever it is; fails where the connection ends first or nothing comes. */
  next(): Promise<Frame> {
    const frame = this.#frames.shift();
    if (frame !== undefined) return Promise.resolve(frame);
    if (this.closed !== undefined) return Promise.reject(new Error(`closed: ${this.closed}\n${this.log.join("\n")}`));
    return new Promise((resolve, reject) => {
      const patience = setTimeout(() => reject(new Error(`nothing came\n${this.log.join("\n")}`)), 30_000);
      this.#waiting.push((came) => {
        clearTimeout(patience);
        if (came === "closed") reject(new Error(`closed: ${this.closed}\n${this.log.join("\n")}`));
        else resolve(came);
      });
    });
  }

  /** The next message, which is of this type. */
  async expect(type: number): Promise<Frame> {
    const frame = await this.next();
    this.lastPayload = frame.payload ?? Buffer.alloc(0);
    if (frame.type !== type) throw new Error(`${short(frame)} came for ${NAMES[type]}\n${this.log.join("\n")}`);
    return frame;
  }

  /** What has come and was not asked for. */
  get unread(): readonly Frame[] {
    return this.#frames;
  }

  ok(seq: number, nproc: number, nrun: number): void {
    this.send(OK, seq, ((nproc << 16) | nrun) >>> 0);
  }

  update(seq: number, { JobId, Task }: { JobId: number; Task: number }, success = true, status = "done"): void {
    this.send(UPDATE, seq, { JobId, Task, Success: success, Status: status, NewJob: null });
  }

  /** Waits for OK(0) where it is to come, says HELLO and has it answered. */
  async greet(nproc: number, running: readonly TaskOf[] = [], seq = 0): Promise<Frame> {
    this.send(HELLO, seq, { NumProcs: nproc, Running: running });
    return this.expect(OK);
  }

  /** Answers JOBs with OK and gives the tasks, until it has so many. */
  async take(count: number, nproc: number, nrun = 0): Promise<(Frame & { task: TaskOf })[]> {
    const taken: (Frame & { task: TaskOf })[] = [];
    while (taken.length < count) {
      const frame = await this.expect(JOB);
      const [task] = frame.rest as TaskOf[];
      if (task === undefined) throw new Error("a JOB without a task");
      taken.push({ ...frame, task });
      this.ok(frame.seq, nproc - taken.length, nrun + taken.length);
    }
    return taken;
  }
}

export function frameOf(type: number, seq: number, arg: number | object | undefined, subtype = 0): Buffer {
  const payload = typeof arg === "object" ? packr.pack(arg) : Buffer.alloc(0);
  const head = Buffer.alloc(16);
  head.writeUInt16LE(0xc047, 0);
  head.writeUInt8(type, 2);
  head.writeUInt8(subtype, 3);
  head.writeUInt32LE(seq, 4);
  head.writeUInt32LE(typeof arg === "number" ? arg : payload.length, 12);
  return Buffer.concat([head, payload]);
}

export const counts = ({ arg0 }: Frame): string => `${arg0 >>> 16}|${arg0 & 0xffff}`;

export const pairOf = ({ Task, JobDescription }: TaskOf) => ({ JobId: JobDescription.JobId, Task });

export const short = ({ type, subtype, seq, arg0, rest }: Frame): string =>
  `${NAMES[type] ?? type}${subtype === 0 ? "" : `(${subtype})`} seq=${seq} arg0=${arg0} ${rest === undefined || typeof rest === "number" ? "" : JSON.stringify(rest)}`;
