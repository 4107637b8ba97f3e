/** A client of version 1 written from its text alone: its own header, msgpack by a library. It does what a test tells it to do. */
import { connect, type Socket } from "node:net";
import { Packr, Unpackr } from "msgpackr";
import { expect } from "vitest";
import { until } from "../../../support/wait.js";
import { atEnd } from "./kit.js";
import type { TaskOf } from "./literal-worker.js";

export const OK = 1;
export const JOB = 3;
export const UPDATE = 4;
export const STOP = 7;
export const ERROR = 8;

interface FrameV1 {
  readonly type: number;
  readonly arg0: number;
  readonly rest: unknown;
}

const packr = new Packr({ useRecords: false });
const unpackr = new Unpackr({ useRecords: false });

/** 12 bytes: magic, type u16, padding, arg0. */
export class LiteralClient {
  readonly #socket: Socket;
  readonly frames: FrameV1[] = [];
  #bytes = Buffer.alloc(0);
  closed = false;

  constructor(port: number) {
    this.#socket = connect(port, "127.0.0.1");
    atEnd(() => this.#socket.destroy());
    this.#socket.on("error", () => {});
    this.#socket.on("close", () => {
      this.closed = true;
    });
    this.#socket.on("data", (chunk) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      while (this.#bytes.length >= 12) {
        expect(this.#bytes.readUInt16LE(0)).toBe(0xc047);
        const type = this.#bytes.readUInt16LE(2);
        const arg0 = this.#bytes.readUInt32LE(8);
        const length = type === JOB ? arg0 : 0;
        if (this.#bytes.length < 12 + length) return;
        const rest: unknown = length === 0 ? undefined : unpackr.unpack(this.#bytes.subarray(12, 12 + length));
        this.frames.push({ type, arg0, rest });
        this.#bytes = this.#bytes.subarray(12 + length);
      }
    });
  }

  send(type: number, arg: number | object): void {
    const payload = typeof arg === "object" ? packr.pack(arg) : Buffer.alloc(0);
    const head = Buffer.alloc(12);
    head.writeUInt16LE(0xc047, 0);
    head.writeUInt16LE(type, 2);
    head.writeUInt32LE(typeof arg === "number" ? arg : payload.length, 8);
    this.#socket.write(Buffer.concat([head, payload]));
  }

  async expect(type: number): Promise<FrameV1> {
    const frame = await until(`type ${type} comes`, () => this.frames.shift());
    expect(frame.type).toBe(type);
    return frame;
  }

  async greet(nproc: number): Promise<void> {
    expect((await this.expect(OK)).arg0).toBe(0);
    this.send(OK, nproc);
    expect((await this.expect(OK)).arg0).toBe(nproc);
  }

  async task(): Promise<TaskOf> {
    return (await this.expect(JOB)).rest as TaskOf;
  }

  update({ JobDescription, Task }: TaskOf, success = true): void {
    const Status = success ? "done" : "error encountered: exit status 1";
    this.send(UPDATE, { JobId: JobDescription.JobId, Task, Success: success, Status, NewJob: null });
  }

  /** In one piece, without waiting for any OK. */
  updateAll(tasks: readonly TaskOf[]): void {
    this.#socket.cork();
    for (const task of tasks) this.update(task);
    this.#socket.uncork();
  }

  pauseReading(): void {
    this.#socket.pause();
  }

  resumeReading(): void {
    this.#socket.resume();
  }

  cut(): void {
    this.#socket.destroy();
  }
}
