/** A server of version 1 written from its text alone. It says what a test tells it to say, and keeps what it hears. */
import { type AddressInfo, createServer, type Socket } from "node:net";
import { Packr } from "msgpackr";
import { expect } from "vitest";
import type { ForemanEndpoint } from "../../../../src/protocols/fuq/worker/index.js";
import { atEnd } from "../../../support/at-end.js";
import { until } from "../../../support/wait.js";
import { OK, UPDATE } from "./literal-foreman.js";

const packr = new Packr({ useRecords: false });
interface Heard {
  readonly type: number;
  readonly arg0: number;
  readonly data: unknown;
}

/** A server of v1 by its text: 12 bytes of header, no numbers. */
export class LiteralServer {
  readonly sockets: Socket[] = [];
  readonly #heard: Heard[] = [];
  #read = 0;
  port = 0;

  async start(): Promise<this> {
    const server = createServer((socket) => {
      let kept = Buffer.alloc(0);
      this.sockets.push(socket);
      socket.on("error", () => {});
      socket.on("data", (chunk: Buffer) => {
        kept = Buffer.concat([kept, chunk]);
        while (kept.length >= 12) {
          expect(kept.readUInt16LE(0)).toBe(0xc047);
          const type = kept.readUInt16LE(2);
          const arg0 = kept.readUInt32LE(8);
          const size = 12 + (type === UPDATE ? arg0 : 0);
          if (kept.length < size) return;
          const data = type === UPDATE ? (packr.unpack(kept.subarray(12, size)) as unknown) : undefined;
          this.#heard.push({ type, arg0, data });
          kept = kept.subarray(size);
        }
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    atEnd(() => {
      for (const socket of this.sockets) socket.destroy();
      return new Promise((resolve) => server.close(resolve));
    });
    this.port = (server.address() as AddressInfo).port;
    return this;
  }

  get place(): ForemanEndpoint {
    return { by: "v1", address: { host: "127.0.0.1", port: this.port } };
  }

  say(type: number, arg0: number, data?: unknown): void {
    const payload = data === undefined ? Buffer.alloc(0) : packr.pack(data);
    const header = Buffer.alloc(12);
    header.writeUInt16LE(0xc047, 0);
    header.writeUInt16LE(type, 2);
    header.writeUInt32LE(data === undefined ? arg0 : payload.length, 8);
    this.sockets.at(-1)?.write(Buffer.concat([header, payload]));
  }

  next(): Promise<Heard> {
    return until(`message ${this.#read + 1} comes`, () => this.#heard[this.#read]).then((found) => {
      this.#read++;
      return found;
    });
  }

  /** The n-th connection, greeted. */
  async welcome(number: number): Promise<Heard> {
    await until(`connection ${number} comes`, () => this.sockets.length === number);
    this.say(OK, 0);
    const answer = await this.next();
    this.say(OK, answer.arg0);
    return answer;
  }
}
