/** The dialling end of the WebSocket, beside a server that writes its bytes by hand and beside `ws`. */
import { createHash } from "node:crypto";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import type { WebSocket } from "ws";
import { type ClientWebSocket, openWebSocket } from "../../../src/protocols/laboro/client-web-socket.js";
import { FRAME_LIMIT } from "../../../src/protocols/laboro/codec-fields.js";
import { until } from "../../support/wait.js";
import { listen } from "./loopback.js";

const toClose: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of toClose.splice(0).reverse()) await close();
});

interface Dialled {
  readonly messages: [string, boolean][];
  readonly errors: (string | undefined)[];
  readonly closes: [number, string][];
  readonly failures: unknown[];
  socket?: ClientWebSocket;
}

async function dialled(url: string, token?: string): Promise<Dialled> {
  const seen: Dialled = { messages: [], errors: [], closes: [], failures: [] };
  await openWebSocket(new URL(url), token, undefined, {
    onSocket: (socket) => toClose.push(() => socket.destroy()),
    onFailed: (cause) => seen.failures.push(cause),
    onOpen: (opened) => {
      seen.socket = opened;
      opened.on("message", (data, isBinary) => seen.messages.push([data.toString(), isBinary]));
      opened.on("error", (error) => {
        seen.errors.push((error as NodeJS.ErrnoException).code);
        opened.close(1002, "");
      });
      opened.on("close", (code, reason) => seen.closes.push([code, reason.toString()]));
    },
  });
  return seen;
}

/** Answers the upgrade with `head`, if it is given, and sends the bytes behind it. Keeps what it receives after the upgrade. */
async function byHand(
  bytes: Uint8Array,
  head?: string,
): Promise<{ url: string; received: () => Buffer; socket: () => Socket }> {
  let received = Buffer.alloc(0);
  let last: Socket | undefined;
  const server = createServer((socket) => {
    last = socket;
    socket.on("error", () => {});
    socket.once("data", (request) => {
      const key = /sec-websocket-key: (.*)\r\n/i.exec(request.toString())?.[1] ?? "";
      const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
      const usual = `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: laboro.1\r\n\r\n`;
      socket.write(Buffer.concat([Buffer.from(head ?? usual), bytes]));
      socket.on("data", (more) => (received = Buffer.concat([received, more])));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  toClose.push(
    () => last?.destroy(),
    () => server.close(),
  );
  const { port } = server.address() as AddressInfo;
  return { url: `ws://127.0.0.1:${port}`, received: () => received, socket: () => last as Socket };
}

const frame = (first: number, body: string | Uint8Array): Buffer =>
  Buffer.concat([Buffer.from([first, body.length]), Buffer.from(body as Uint8Array)]);
const BINARY = 0x82;

describe("the handshake", () => {
  test.each([
    [
      "another status",
      "HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\nno go",
      { code: "LABORO_FORBIDDEN", message: /no go/ },
    ],
    [
      "another key's answer",
      "HTTP/1.1 101 Yes\r\nSec-WebSocket-Accept: x\r\nsec-websocket-protocol: laboro.1\r\n\r\n",
      { message: /does not speak WebSocket/ },
    ],
    ["another subprotocol", "HTTP/1.1 101 Yes\r\nsec-websocket-protocol: other\r\n\r\n", { code: "LABORO_VERSION" }],
    ["no HTTP", "220 mail.example.org ESMTP\r\n\r\n", { message: /does not speak HTTP/ }],
    ["a head without end", "x".repeat(20_000), { message: /does not speak HTTP/ }],
  ])("fails with %s", async (_what, head, expected) => {
    const { url } = await byHand(Buffer.alloc(0), head);
    const seen = await dialled(url);
    await until("a failure", () => seen.failures.length === 1);
    const { message, ...rest } = expected as { code?: string; message?: RegExp };
    expect(seen.failures[0]).toMatchObject(rest);
    if (message !== undefined) expect(String(seen.failures[0])).toMatch(message);
    expect(seen.socket).toBeUndefined();
  });

  test("takes what comes in the same packet as the answer", async () => {
    const { url } = await byHand(Buffer.concat([frame(BINARY, "one"), frame(BINARY, "two")]));
    const seen = await dialled(url);
    await until("both", () => seen.messages.length === 2);
    expect(seen.messages).toEqual([
      ["one", true],
      ["two", true],
    ]);
  });

  test("a token cannot add a header", async () => {
    await expect(dialled("ws://127.0.0.1:1", "a\r\nX-Other: b")).rejects.toMatchObject({ code: "LABORO_BAD_TOKEN" });
  });
});

describe("frames", () => {
  test("a message in parts, with a ping between them, is one message, and the ping is answered", async () => {
    const parts = [frame(0x02, "on"), frame(0x89, "?"), frame(0x00, "e me"), frame(0x80, "ssage"), frame(0x81, "text")];
    const { url, received } = await byHand(Buffer.concat(parts));
    const seen = await dialled(url);
    await until("both", () => seen.messages.length === 2);
    expect(seen.messages).toEqual([
      ["one message", true],
      ["text", false],
    ]);
    await until("the pong", () => received().length > 0);
    expect([...received()]).toEqual([0x8a, 0x81, 0, 0, 0, 0, "?".charCodeAt(0)]);
  });

  test.each([
    ["reserved bits", frame(0xc2, "x")],
    ["an unknown opcode", frame(0x83, "x")],
    ["a mask", Buffer.from([0x82, 0x81, 0, 0, 0, 0, 1])],
    ["a continuation of nothing", frame(0x80, "x")],
    ["a new message within another", Buffer.concat([frame(0x02, "x"), frame(0x82, "y")])],
    ["a control frame in parts", frame(0x09, "x")],
    ["a long control frame", Buffer.from([0x89, 126, 0, 200])],
  ])("%s is an error, and nothing after it is delivered", async (_what, bytes) => {
    const { url } = await byHand(Buffer.concat([bytes, frame(BINARY, "later")]));
    const seen = await dialled(url);
    await until("an error", () => seen.errors.length === 1);
    expect(seen.errors).toEqual(["WS_ERR_INVALID_FRAME"]);
    expect(seen.messages).toEqual([]);
  });

  test.each([
    ["in its head", Buffer.from([0x82, 127, 0, 0, 0, 0, 0xff, 0, 0, 0])],
    ["far beyond what a number holds", Buffer.from([0x82, 127, ...Buffer.alloc(8, 0xff)])],
  ])("a message longer than the limit is refused by what is %s", async (_what, bytes) => {
    const { url } = await byHand(bytes);
    const seen = await dialled(url);
    await until("an error", () => seen.errors.length === 1);
    expect(seen.errors).toEqual(["WS_ERR_UNSUPPORTED_MESSAGE_LENGTH"]);
  });

  test.each([
    ["a code and a reason", frame(0x88, Buffer.concat([Buffer.from([0x03, 0xf0]), Buffer.from("why")])), [1008, "why"]],
    ["nothing", frame(0x88, ""), [1005, ""]],
  ])("a close frame with %s is answered and reported", async (_what, bytes, expected) => {
    const { url, received } = await byHand(bytes);
    const seen = await dialled(url);
    await until("the end", () => seen.closes.length === 1);
    expect(seen.closes).toEqual([expected]);
    expect(received()[0]).toBe(0x88);
  });

  test("an end without a close frame is 1006", async () => {
    const { url, socket } = await byHand(frame(BINARY, "x"));
    const seen = await dialled(url);
    await until("the message", () => seen.messages.length === 1);
    socket().destroy();
    await until("the end", () => seen.closes.length === 1);
    expect(seen.closes).toEqual([[1006, ""]]);
  });
});

describe("beside ws", () => {
  test("messages of every size pass both ways, and the reason of a close", async () => {
    const sizes = [0, 1, 125, 126, 65_535, 65_536, 300_000];
    const closed: [number, string][] = [];
    const listener = await listen({
      onConnection: (socket: WebSocket) => {
        socket.on("message", (data) => socket.send(data));
        socket.on("close", (code, reason) => closed.push([code, reason.toString()]));
      },
    });
    toClose.push(() => listener.close());
    const seen = await dialled(listener.url);
    await until("an open socket", () => seen.socket !== undefined);
    for (const size of sizes) seen.socket?.send(Buffer.alloc(size, "x"));
    await until("all", () => seen.messages.length === sizes.length);
    expect(seen.messages.map(([text]) => text.length)).toEqual(sizes);
    seen.socket?.close(1000, "bye…");
    await until("the close", () => closed.length === 1 && seen.closes.length === 1);
    expect(closed).toEqual([[1000, "bye…"]]);
  });

  test("a message of the largest size passes", async () => {
    const listener = await listen({ onConnection: (socket: WebSocket) => socket.send(Buffer.alloc(FRAME_LIMIT)) });
    toClose.push(() => listener.close());
    const seen = await dialled(listener.url);
    await until("the message", () => seen.messages.length === 1);
    expect(seen.messages[0]?.[0].length).toBe(FRAME_LIMIT);
  });
});
