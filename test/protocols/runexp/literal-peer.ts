/** One end of a connection that says and hears exact bytes. */
import { createServer, type Socket } from "node:net";
import { atEnd } from "../../support/at-end.js";
import { until } from "../../support/wait.js";

export class LiteralPeer {
  readonly #socket: Socket;
  #heard = Buffer.alloc(0);
  closed = false;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (bytes) => {
      this.#heard = Buffer.concat([this.#heard, bytes]);
    });
    socket.on("error", () => {});
    socket.on("close", () => {
      this.closed = true;
    });
  }

  say(bytes: string | Buffer): void {
    this.#socket.write(bytes);
  }

  /** The last that it says. */
  sayAndGo(bytes: string): void {
    this.#socket.write(bytes, () => this.#socket.destroy());
  }

  /** What has come and was not taken yet. */
  get unread(): string {
    return this.#heard.toString("latin1");
  }

  /** Exactly this comes next. */
  async hears(text: string): Promise<void> {
    await until(
      () => `it hears ${text}, and not ${JSON.stringify(this.unread)}`,
      () => this.#heard.length >= text.length || !text.startsWith(this.unread),
      30_000,
    );
    const heard = this.#heard.toString("latin1", 0, text.length);
    if (heard !== text) throw new Error(`heard ${JSON.stringify(heard)}, expected ${text}`);
    this.#heard = this.#heard.subarray(text.length);
  }

  async hearsBytes(count: number): Promise<Buffer> {
    await until(
      () => `${count} bytes come, not ${this.#heard.length}`,
      () => this.#heard.length >= count,
      30_000,
    );
    const bytes = this.#heard.subarray(0, count);
    this.#heard = this.#heard.subarray(count);
    return bytes;
  }

  /** Nothing has come so far. */
  hasHeardNothing(): boolean {
    return this.#heard.length === 0;
  }

  async isClosed(): Promise<void> {
    await until("the connection is closed", () => this.closed);
  }

  hangUp(): void {
    this.#socket.end();
  }

  cut(): void {
    this.#socket.destroy();
  }
}

export interface LiteralListener {
  readonly port: number;
  /** The next connection. */
  accept(): Promise<LiteralPeer>;
}

export async function listenLiterally(): Promise<LiteralListener> {
  const peers: LiteralPeer[] = [];
  const server = createServer((socket) => void peers.push(new LiteralPeer(socket)));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  let taken = 0;
  atEnd(async () => {
    for (const peer of peers) peer.cut();
    await new Promise((resolve) => server.close(resolve));
  });
  return {
    port: address.port,
    accept: async () => {
      const peer = await until("a runner connects", () => peers[taken]);
      taken++;
      return peer;
    },
  };
}
