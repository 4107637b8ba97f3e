/**
 * A foreman of fuq v2 written from its text and from what was recorded of the original: bytes are put together here, nothing of the code
 * under test is used. It says what a test tells it to say, and keeps what it hears.
 */
import { createServer as createHttpServer, type IncomingMessage } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { Packr } from "msgpackr";
import { type WebSocket, WebSocketServer } from "ws";
import { atEnd } from "../../../support/at-end.js";
import { until } from "../../../support/wait.js";

export const OK = 1;
export const HELLO = 2;
export const JOB = 3;
export const UPDATE = 4;
export const CANCEL = 5;
export const STOP = 7;
export const ERROR = 8;
export const RESET = 9;

const packr = new Packr({ useRecords: false });
export interface Heard {
  readonly type: number;
  readonly subtype: number;
  readonly seq: number;
  readonly arg0: number;
  /** What follows the header, where arg0 is its length. */
  readonly data: unknown;
}

/** OK(nproc|nrun), as its fourth number. */
export const counts = (nproc: number, nrun: number): number => nproc * 65_536 + nrun;

export interface TaskText {
  readonly job?: number;
  readonly name?: string;
  readonly dir: string;
  readonly logs?: string;
  readonly command: string;
}

export const task = (number: number, { job = 1, name = "job", dir, logs = dir, command }: TaskText): object => ({
  Task: number,
  JobDescription: {
    JobId: job,
    Name: name,
    NumTasks: 9,
    WorkingDir: dir,
    LoggingDir: logs,
    Command: command,
    Status: 1,
  },
});

/** One connection of a worker. */
export class Caller {
  readonly heard: Heard[] = [];
  readonly #write: (bytes: Buffer) => void;
  readonly cut: () => void;
  closed: string | undefined;
  #read = 0;

  constructor(write: (bytes: Buffer) => void, cut: () => void) {
    this.#write = write;
    this.cut = cut;
  }

  say(type: number, seq: number, arg0: number, subtype = 0): void {
    const header = Buffer.alloc(16);
    header.writeUInt16LE(0xc047, 0);
    header.writeUInt8(type, 2);
    header.writeUInt8(subtype, 3);
    header.writeUInt32LE(seq, 4);
    header.writeUInt32LE(arg0, 12);
    this.#write(header);
  }

  sayWith(type: number, seq: number, data: unknown): void {
    const payload = packr.pack(data);
    const header = Buffer.alloc(16);
    header.writeUInt16LE(0xc047, 0);
    header.writeUInt8(type, 2);
    header.writeUInt32LE(seq, 4);
    header.writeUInt32LE(payload.length, 12);
    this.#write(Buffer.concat([header, payload]));
  }

  take(message: Buffer): void {
    const type = message.readUInt8(2);
    const arg0 = message.readUInt32LE(12);
    const payload = message.subarray(16, 16 + arg0);
    const data = [HELLO, UPDATE].includes(type) && payload.length > 0 ? (packr.unpack(payload) as unknown) : undefined;
    this.heard.push({ type, subtype: message.readUInt8(3), seq: message.readUInt32LE(4), arg0, data });
  }

  /** The next message that was not read yet. */
  next(): Promise<Heard> {
    return until(`message ${this.#read + 1} comes`, () => this.heard[this.#read]).then((found) => {
      this.#read++;
      return found;
    });
  }

  /** The greeting of a foreman by the text, or with `first` false of the original. */
  async welcome(first = true): Promise<Heard> {
    if (first) this.say(OK, 0, 0);
    const hello = await this.next();
    const { NumProcs, Running } = hello.data as { NumProcs: number; Running: unknown[] };
    this.say(OK, hello.seq, counts(NumProcs, Running.length));
    return hello;
  }
}

export interface LiteralForeman {
  readonly port: number;
  readonly callers: readonly Caller[];
  /** The n-th connection, from 1. */
  caller(number: number): Promise<Caller>;
}

export async function openRawForeman(): Promise<LiteralForeman> {
  const callers: Caller[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    let kept = Buffer.alloc(0);
    const caller = new Caller(
      (bytes) => socket.write(bytes),
      () => socket.resetAndDestroy(),
    );
    socket.on("error", () => {});
    socket.on("close", () => {
      caller.closed = "closed";
    });
    socket.on("data", (chunk: Buffer) => {
      kept = Buffer.concat([kept, chunk]);
      for (;;) {
        const hasPayload = kept.length >= 16 && [HELLO, JOB, UPDATE, CANCEL].includes(kept.readUInt8(2));
        const size = 16 + (hasPayload ? kept.readUInt32LE(12) : 0);
        if (kept.length < size) return;
        caller.take(kept.subarray(0, size));
        kept = kept.subarray(size);
      }
    });
    callers.push(caller);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  atEnd(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return foremanOf((server.address() as AddressInfo).port, callers);
}

export interface WebForeman extends LiteralForeman {
  /** Bodies of what was posted, by path. */
  readonly posted: readonly { readonly path: string; readonly body: Record<string, unknown> }[];
  /** Cookies that it knows. */
  readonly cookies: Set<string>;
}

/** With HTTP and a WebSocket, as the original has them. */
export async function openWebForeman(password: string): Promise<WebForeman> {
  const callers: Caller[] = [];
  const posted: { path: string; body: Record<string, unknown> }[] = [];
  const cookies = new Set<string>();
  const upgraded = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  const server = createHttpServer((request, response) => {
    void bodyOf(request).then((text) => {
      const body = JSON.parse(text) as Record<string, unknown>;
      posted.push({ path: request.url ?? "", body });
      if (request.url === "/hello" && body.auth !== password) {
        response.writeHead(403).end("403 access forbidden\n");
      } else if (request.url === "/hello") {
        const Cookie = `cookie${cookies.size}/+${"x".repeat(13)}`;
        cookies.add(Cookie);
        response.end(`${JSON.stringify({ Name: `vm:${body.pid}:${cookies.size}`, Session: "s", Cookie })}\n`);
      } else response.end("{}\n");
    });
  });
  server.on("upgrade", (request, socket, head) => {
    const cookie = /fuq_foreman_auth=([^;]+)/.exec(request.headers.cookie ?? "")?.[1];
    if (request.url !== "/node/persistent" || cookie === undefined || !cookies.has(cookie)) {
      socket.end(`HTTP/1.1 ${cookie === undefined ? 401 : 403} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`);
      return;
    }
    upgraded.handleUpgrade(request, socket, head, (webSocket: WebSocket) => {
      const caller = new Caller(
        (bytes) => webSocket.send(bytes),
        () => webSocket.terminate(),
      );
      webSocket.on("error", () => {});
      webSocket.on("message", (data: Buffer) => caller.take(data));
      webSocket.on("close", (code, reason) => {
        caller.closed = `${code} ${reason.toString()}`;
      });
      callers.push(caller);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  atEnd(() => {
    for (const client of upgraded.clients) client.terminate();
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return { ...foremanOf((server.address() as AddressInfo).port, callers), posted, cookies };
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts).toString();
}

const foremanOf = (port: number, callers: readonly Caller[]): LiteralForeman => ({
  port,
  callers,
  caller: (number) => until(`connection ${number} comes`, () => callers[number - 1]),
});
