/**
 * A manager that reads as the original does: what one read gives is one message, or it hangs up. Only where a runner has two messages to
 * send without an answer in between, one read may give both: how far apart they were sent is not seen by a reader that is late. Each
 * conversation is a script: what it answers to each PETO.
 */

import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { freePort } from "../../support/free-port.js";

export interface LiteralJob {
  readonly name: string;
  readonly kind: string;
  readonly script: string;
}

export interface LiteralResult {
  readonly host: string;
  readonly name: string;
  readonly status: string;
  readonly output: Buffer;
}

type Answer = LiteralJob | "FINO" | "ATENDI" | "ELIRI";

export interface LiteralManagerOptions {
  readonly version?: string;
  readonly group?: string;
  /** The answer to the next PETO; undefined leaves it without one. */
  readonly answer: () => Answer | undefined;
  /** It hangs up on results of this name. */
  readonly refuse?: string;
}

/** No answer comes to JES, nor to PRETA for an empty script. */
const WITHOUT_ANSWER = /^(JES|PRETA)(?=PETO$|REZULTO |FINO ANKAU$)/;

export class LiteralManager {
  readonly results: LiteralResult[] = [];
  /** Pieces that were no message of their own. */
  readonly faults: string[] = [];
  readonly said: string[] = [];
  connections = 0;
  readonly #options: LiteralManagerOptions;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(options: LiteralManagerOptions) {
    this.#options = options;
    this.#server = createServer((socket) => this.#serve(socket));
  }

  static async open(options: LiteralManagerOptions, port?: number): Promise<LiteralManager> {
    const manager = new LiteralManager(options);
    const at = port ?? (await freePort());
    await new Promise<void>((resolve) => manager.#server.listen(at, "127.0.0.1", resolve));
    return manager;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Without a word. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #serve(socket: Socket): void {
    this.connections++;
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => {});
    socket.on("close", () => this.#sockets.delete(socket));
    const conversation = this.#conversation(socket);
    conversation.next();
    socket.on("data", (bytes) => {
      const first = WITHOUT_ANSWER.exec(bytes.toString("latin1"))?.[0].length ?? 0;
      for (const message of first === 0 ? [bytes] : [bytes.subarray(0, first), bytes.subarray(first)]) {
        const { value } = conversation.next(message);
        if (value === undefined) continue;
        this.faults.push(value);
        socket.destroy();
        return;
      }
    });
  }

  /** Gives what was wrong, if anything; ends after FINO ANKAU. */
  *#conversation(socket: Socket): Generator<undefined, string | undefined, Buffer> {
    const say = (text: string | Buffer): void => {
      this.said.push(text.toString());
      socket.write(text);
    };
    const hail = /^SALUTON; MI ([-_a-zA-Z0-9]+)$/.exec(String(yield));
    if (hail === null) return "bad hail";
    const host = hail[1] ?? "";
    say(`VERSIO ${this.#options.version ?? "1.3"}`);
    const understood = String(yield);
    if (understood !== "KOMPRENAS") return understood;
    say(`ALIGI ${this.#options.group ?? "__defaulte__"}`);
    const yes = String(yield);
    if (yes !== "JES") return yes;
    for (;;) {
      const message: Buffer = yield;
      const text = message.toString("latin1");
      const [, name, status, size] = /^REZULTO (.*) (success|failure) (\d+)$/.exec(text) ?? [];
      if (text === "FINO ANKAU") return undefined;
      if (text === "PETO") {
        const answer = this.#options.answer();
        if (answer === undefined) continue;
        if (typeof answer === "string") {
          say(answer);
          continue;
        }
        say(`LABORO ${answer.name} ${answer.kind} ${answer.script.length}`);
        const ready = String(yield);
        if (ready !== "PRETA") return ready;
        if (answer.script.length > 0) say(answer.script);
      } else if (name !== undefined && status !== undefined) {
        if (name === this.#options.refuse) return "not wanted";
        say("PRETA");
        let output = Buffer.alloc(0);
        while (output.length < Number(size)) output = Buffer.concat([output, yield]);
        this.results.push({ host, name, status, output });
        say("RICEVIS");
      } else return text;
    }
  }
}
