/** What is special about a WebSocket; transports.test.ts has what holds for every transport. */
import { randomBytes } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { JobId } from "../../../src/model/ids.js";
import { type CloseReason, Connection, type ConnectionOptions } from "../../../src/protocols/laboro/connection.js";
import {
  type FromClient,
  type FromWorker,
  type LinkMessage,
  SUBPROTOCOL,
  type ToClient,
  type ToWorker,
} from "../../../src/protocols/laboro/messages.js";
import { until } from "../../support/wait.js";
import { type Between, inPieces, type Listener, listen, proxyTo } from "./loopback.js";

type BrokerEnd = Connection<FromWorker | FromClient, ToWorker | ToClient>;

interface Pair {
  readonly broker: BrokerEnd;
  /** The socket of the worker, before or without a Connection around it. */
  readonly socket: WebSocket;
  readonly batches: LinkMessage[][];
  readonly closes: CloseReason[];
  readonly warnings: string[];
  readonly proxy: Between;
}

const toClose: { close: () => unknown }[] = [];
afterEach(async () => {
  for (const open of toClose.splice(0).reverse()) await open.close();
});

async function connect(options: Partial<ConnectionOptions> = {}): Promise<Pair> {
  const batches: LinkMessage[][] = [];
  const closes: CloseReason[] = [];
  const warnings: string[] = [];
  let broker: BrokerEnd | undefined;
  const listener: Listener = await listen({
    onConnection: (socket, request) => {
      broker = new Connection(
        socket,
        {
          from: "worker",
          transport: request.socket,
          log: { warn: (_fields, text) => warnings.push(text) },
          ...options,
        },
        { onMessages: (batch) => batches.push([...batch]), onClose: (reason) => closes.push(reason) },
      );
    },
  });
  toClose.push(listener);
  const proxy = await proxyTo(listener.port);
  toClose.push(proxy);
  const socket = new WebSocket(`${proxy.url}/node/persistent`, SUBPROTOCOL, { perMessageDeflate: false });
  socket.on("error", () => {});
  toClose.push({ close: () => socket.terminate() });
  await until("the connection", () => broker !== undefined && socket.readyState === WebSocket.OPEN);
  if (broker === undefined) throw new Error("no connection");
  return { broker, socket, batches, closes, warnings, proxy };
}

/** The worker's end of a pair. */
function workerEnd(pair: Pair): { worker: Connection<ToWorker, FromWorker>; got: ToWorker[]; closes: CloseReason[] } {
  const got: ToWorker[] = [];
  const closes: CloseReason[] = [];
  const worker = new Connection<ToWorker, FromWorker>(
    pair.socket,
    { from: "brokerToWorker" },
    { onMessages: (batch) => got.push(...batch), onClose: (reason) => closes.push(reason) },
  );
  return { worker, got, closes };
}

const started = (index: number): FromWorker => ({
  type: "STARTED",
  tasks: [{ job: JobId(1), index, attempt: 1 }],
});

describe("messages", () => {
  test("a proxy that cuts and glues the bytes as it likes changes nothing", async () => {
    const pair = await connect();
    pair.proxy.up = (bytes) => inPieces(bytes, 7);
    pair.proxy.down = (bytes) => inPieces(bytes, 300);
    const { worker, got } = workerEnd(pair);
    const sent: FromWorker[] = [];
    for (let id = 0; id < 300; id++) {
      const reply = { type: "REPLY", id, body: randomBytes(id) } as const;
      sent.push(reply);
      worker.send(reply);
      pair.broker.send({ type: "CALL", id, service: "echo", body: reply.body, deadline: id });
      if (id % 13 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await until("all messages", () => pair.batches.flat().length === 300 && got.length === 300);
    expect(pair.batches.flat()).toEqual(sent);
    expect(got.map((call) => (call.type === "CALL" ? call.id : -1))).toEqual(sent.map((_, id) => id));
  });

  test("a caller that has said HELLO cannot send what a worker sends", async () => {
    const pair = await connect({ from: "caller" });
    const { worker } = workerEnd(pair);
    (worker as unknown as Connection<ToClient, FromClient>).send({ type: "HELLO", version: 1, name: "x" });
    await until("HELLO", () => pair.batches.length === 1);
    worker.send(started(1));
    await until("the refusal", () => pair.closes.length === 1);
    expect(pair.closes[0]).toMatchObject({ by: "us", code: 1007 });
    expect(pair.closes[0]?.text).toMatch(
      /LABORO_BAD_MESSAGE: a message's type: expected one that a client sends, got 2/,
    );
  });
});

describe("a peer that breaks the protocol is told why and closed", () => {
  const closesOf = (pair: Pair): Promise<{ code: number; reason: string }> =>
    new Promise((resolve) => pair.socket.on("close", (code, reason) => resolve({ code, reason: reason.toString() })));

  test("garbage", async () => {
    const pair = await connect();
    const closed = closesOf(pair);
    pair.socket.send(randomBytes(1000).fill(0xc1, 0, 1));
    pair.socket.send(randomBytes(1000));
    expect(await closed).toMatchObject({ code: 1007, reason: expect.stringMatching(/^LABORO_BAD_MESSAGE: /) });
    expect(pair.closes).toHaveLength(1);
    expect(pair.closes[0]?.error?.code).toBe("LABORO_BAD_MESSAGE");
    expect(pair.warnings).toHaveLength(1);
    expect(pair.batches).toEqual([]);
  });

  test("a text frame", async () => {
    const pair = await connect();
    const closed = closesOf(pair);
    pair.socket.send("hello");
    expect(await closed).toEqual({ code: 1003, reason: "LABORO_BAD_MESSAGE: a text frame, expected binary ones" });
    expect(pair.warnings).toHaveLength(1);
  });

  test("a frame that claims a gigabyte", async () => {
    const pair = await connect();
    const before = process.memoryUsage.rss();
    const head = Buffer.from("82ff0000000040000000000000000000", "hex");
    rawSocket(pair.socket).write(head);
    await until("the end", () => pair.closes.length === 1);
    expect(pair.closes[0]).toMatchObject({ by: "us", code: 1009, error: { code: "LABORO_BODY_TOO_LARGE" } });
    expect(process.memoryUsage.rss() - before).toBeLessThan(100 * 1024 * 1024);
    expect(pair.warnings).toHaveLength(1);
  });

  test("bytes that are no WebSocket", async () => {
    const pair = await connect();
    rawSocket(pair.socket).write("GET / HTTP/1.1\r\n\r\n");
    await until("the end", () => pair.closes.length === 1);
    expect(pair.closes[0]).toMatchObject({ by: "us", code: 1002, error: { code: "LABORO_BAD_MESSAGE" } });
  });

  test("a long reason is cut to what a close frame holds", async () => {
    const pair = await connect();
    const { closes } = workerEnd(pair);
    pair.broker.close(1008, "é".repeat(200));
    await until("the end", () => closes.length === 1);
    expect(closes).toEqual([{ by: "peer", code: 1008, text: "é".repeat(60) }]);
  });
});

describe("closing", () => {
  test.each(["up", "down"] as const)("a link that passes nothing %s is found dead by its heartbeat", async (way) => {
    const pair = await connect();
    const { worker, closes } = workerEnd(pair);
    worker.startHeartbeat(60);
    pair.broker.startHeartbeat(60);
    worker.send(started(1));
    await until("a few HEARTBEATs", () => pair.batches.length >= 3);
    expect(pair.closes).toEqual([]);
    pair.proxy[way] = undefined;
    const deaf = way === "up" ? pair.closes : closes;
    await until("the death", () => deaf.length === 1, 2000);
    expect(deaf[0]).toEqual({ by: "us", code: 1006, text: "nothing was heard for three heartbeats" });
    await until("the other end to notice", () => closes.length === 1 && pair.closes.length === 1);
  });

  test("bytes of a frame that is still arriving are a sign of life", async () => {
    const pair = await connect();
    pair.broker.startHeartbeat(50);
    const slow: Buffer[] = [];
    pair.proxy.up = (bytes) => {
      slow.push(bytes);
      return [];
    };
    workerEnd(pair).worker.send({ type: "REPLY", id: 1, body: Buffer.alloc(400) });
    await until("the frame", () => Buffer.concat(slow).length > 400);
    const whole = Buffer.concat(slow);
    // One byte a turn would be too fast: one each 20 ms lasts longer than three heartbeats.
    for (let at = 0; at < 20; at++) {
      const last = at === 19;
      const from = performance.now();
      pair.proxy.release(whole.subarray(at * 20, last ? whole.length : at * 20 + 20));
      await until("a moment", () => performance.now() - from > 20);
    }
    await until("the frame or the end", () => pair.batches.length === 1 || pair.closes.length === 1);
    expect(pair.closes).toEqual([]);
  });

  test("a peer that does not read is closed once too much waits for it", async () => {
    const pair = await connect({ bufferLimit: 1024 * 1024 });
    pair.proxy.stall();
    const body = Buffer.alloc(256 * 1024);
    for (let id = 0; id < 1000 && pair.closes.length === 0; id++) {
      pair.broker.send({ type: "CALL", id, service: "echo", body, deadline: 1 });
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(pair.closes).toHaveLength(1);
    expect(pair.closes[0]).toMatchObject({ by: "us", code: 1006 });
    expect(pair.closes[0]?.text).toMatch(/\d+ bytes wait for a peer that does not read, the limit is 1048576/);
    expect(pair.warnings).toHaveLength(1);
  });
});

/** The TCP socket below; `ws` keeps it to itself. */
function rawSocket(socket: WebSocket): import("node:net").Socket {
  return (socket as unknown as { _socket: import("node:net").Socket })._socket;
}
