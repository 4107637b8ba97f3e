import type { IncomingMessage } from "node:http";
import { createServer } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import type { LaboroError } from "../../../src/base/errors.js";
import { type CloseReason, Connection } from "../../../src/protocols/laboro/connection.js";
import { type Dial, type DialOptions, dial, type LinkOf, reconnectDelay } from "../../../src/protocols/laboro/dial.js";
import type { FromClient, FromWorker, ToClient, ToWorker } from "../../../src/protocols/laboro/messages.js";
import { until } from "../../support/wait.js";
import { type ListenOptions, listen, proxyTo } from "./loopback.js";

const toClose: { close: () => unknown }[] = [];
afterEach(async () => {
  for (const open of toClose.splice(0).reverse()) await open.close();
});

interface Seen {
  readonly dial: Dial;
  readonly opened: LinkOf<"client">[];
  readonly got: ToClient[];
  readonly downs: CloseReason[];
  readonly refused: LaboroError[];
  readonly unreachable: [LaboroError, number][];
}

function dialling(urls: readonly string[], options: Partial<DialOptions<"client">> = {}): Seen {
  const seen = { opened: [], got: [], downs: [], refused: [], unreachable: [] } as unknown as Seen;
  const made = dial({
    from: "client",
    urls,
    onOpen: (connection) => {
      seen.opened.push(connection);
      connection.send({ type: "HELLO", version: 1, name: "test" });
    },
    onMessages: (batch) => seen.got.push(...batch),
    onDisconnected: (reason) => seen.downs.push(reason),
    onRefused: (error) => seen.refused.push(error),
    onUnreachable: (error, rounds) => seen.unreachable.push([error, rounds]),
    ...options,
  });
  toClose.push({ close: () => made.stop() });
  return { ...seen, dial: made };
}

/** A broker that greets whoever says HELLO. */
async function greeter(options: ListenOptions = {}) {
  const requests: IncomingMessage[] = [];
  const greeted: Connection<FromWorker | FromClient, ToWorker | ToClient>[] = [];
  const listener = await listen({
    onConnection: (socket, request) => {
      requests.push(request);
      const connection = new Connection<FromWorker | FromClient, ToWorker | ToClient>(
        socket,
        { from: "caller", transport: request.socket },
        {
          onMessages: () => {
            greeted.push(connection);
            connection.send({ type: "HELLO_ACK", version: 1, broker: "b", heartbeatMs: 1000 });
          },
          onClose: () => {},
        },
      );
    },
    ...options,
  });
  toClose.push(listener);
  return { ...listener, requests, greeted };
}

/** Answers every upgrade with a status. */
const refuser = (status: string, body: string) =>
  greeter({
    onUpgrade: (_request, socket) =>
      socket.end(
        `HTTP/1.1 ${status}\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
      ),
  });

/** A port where nobody listens. */
async function deadUrl(): Promise<string> {
  const listener = await listen({});
  await listener.close();
  return listener.url;
}

const soon = { random: () => 0.1 };

describe("connecting", () => {
  test("asks for the link's path and subprotocol, with the token in the header only", async () => {
    const broker = await greeter();
    const url = broker.url.replace("ws://", "ws://joined@");
    const seen = dialling([`${url}/#fingerprint`], { token: "secret" });
    await until("HELLO_ACK", () => seen.got.length === 1);
    const [request] = broker.requests;
    expect(request?.url).toBe("/node/persistent");
    expect(request?.headers["sec-websocket-protocol"]).toBe("laboro.1");
    expect(request?.headers.authorization).toBe("Bearer secret");
    expect(request?.headers["sec-websocket-extensions"]).toBeUndefined();
    expect(seen.got).toEqual([{ type: "HELLO_ACK", version: 1, broker: "b", heartbeatMs: 1000 }]);
  });

  test("a path before the link's own is kept, for a broker behind a proxy", async () => {
    const broker = await greeter();
    const seen = dialling([`${broker.url}/some/where/`]);
    await until("HELLO_ACK", () => seen.got.length === 1);
    expect(broker.requests[0]?.url).toBe("/some/where/node/persistent");
  });

  test("tries the URLs in turn until one answers", async () => {
    const broker = await greeter();
    const seen = dialling([await deadUrl(), "not a url", broker.url]);
    await until("HELLO_ACK", () => seen.got.length === 1);
    expect(seen.unreachable).toEqual([]);
  });

  test("an attempt that is answered by nothing is given up", async () => {
    const blackhole = createServer((socket) => toClose.push({ close: () => socket.destroy() }));
    await new Promise<void>((resolve) => blackhole.listen(0, "127.0.0.1", resolve));
    toClose.push({ close: () => blackhole.close() });
    const { port } = blackhole.address() as { port: number };
    const seen = dialling([`ws://127.0.0.1:${port}`], { connectTimeoutMs: 50, ...soon });
    await until("two rounds", () => seen.unreachable.length === 2);
    expect(seen.unreachable.map(([error, rounds]) => [error.code, error.message, rounds])).toEqual([
      ["LABORO_BROKER_UNREACHABLE", expect.stringContaining("no answer within 50 ms"), 1],
      ["LABORO_BROKER_UNREACHABLE", expect.stringContaining("no answer within 50 ms"), 2],
    ]);
  });

  test.each(["up", "down"] as const)(
    "a proxy that passes nothing %s costs one timeout, then the next URL is tried",
    async (way) => {
      const broker = await greeter();
      const proxy = await proxyTo(broker.port);
      toClose.push(proxy);
      proxy[way] = undefined;
      const seen = dialling([proxy.url, broker.url], { connectTimeoutMs: 50 });
      await until("HELLO_ACK", () => seen.got.length === 1);
      expect(seen.opened).toHaveLength(1);
    },
  );

  test("a broker that opens the link and then says nothing is left for the next", async () => {
    const mute = await greeter({ onConnection: () => {} });
    const broker = await greeter();
    const seen = dialling([mute.url, broker.url], { firstMessageTimeoutMs: 50, ...soon });
    await until("HELLO_ACK", () => seen.got.length === 1);
    expect(seen.downs).toEqual([{ by: "us", code: 1008, text: "the broker said nothing within 50 ms" }]);
  });

  test("no URL at all is refused", () => {
    expect(() => dialling([])).toThrow(/no URL/);
  });

  test("an error never shows a token that is part of the URL", async () => {
    const url = (await deadUrl()).replace("ws://", "ws://hidden@");
    const seen = dialling([url], soon);
    await until("a failure", () => seen.unreachable.length === 1);
    expect(seen.unreachable[0]?.[0].message).not.toContain("hidden");
    expect(seen.unreachable[0]?.[0].message).toContain("nothing listens there");
  });
});

describe("a broker that refuses", () => {
  test.each([
    ["401 Unauthorized", "LABORO_BAD_TOKEN"],
    ["403 Forbidden", "LABORO_FORBIDDEN"],
    ["426 Upgrade Required", "LABORO_VERSION"],
  ])("%s is %s, told once and not tried again", async (status, code) => {
    const broker = await refuser(status, "because of this\nand more");
    const seen = dialling([broker.url], soon);
    await until("the refusal", () => seen.refused.length === 1);
    expect(seen.refused[0]?.code).toBe(code);
    expect(seen.refused[0]?.message).toBe(`${broker.url} answered ${status.slice(0, 3)}: because of this`);
    expect(seen.unreachable).toEqual([]);
  });

  test("in its goodbye, after the link has opened, is not tried again either", async () => {
    const broker = await greeter({
      onConnection: (socket) => socket.close(1008, "LABORO_VERSION: the link is at version 9"),
    });
    const seen = dialling([broker.url], soon);
    await until("the refusal", () => seen.refused.length === 1);
    expect(seen.refused[0]).toMatchObject({ code: "LABORO_VERSION", message: "the link is at version 9" });
    expect(seen.downs).toHaveLength(1);
  });

  test("any other status is one that may pass", async () => {
    const broker = await refuser("503 Service Unavailable", "starting");
    const seen = dialling([broker.url], soon);
    await until("two rounds", () => seen.unreachable.length === 2);
    expect(seen.unreachable[0]?.[0].message).toBe(`${broker.url} answered 503: starting`);
    expect(seen.refused).toEqual([]);
  });

  test("a WebSocket server that does not know the subprotocol is of another version", async () => {
    const { WebSocketServer } = await import("ws");
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", handleProtocols: () => false });
    toClose.push({ close: () => server.close() });
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as { port: number };
    const seen = dialling([`ws://127.0.0.1:${port}`]);
    await until("the refusal", () => seen.refused.length === 1);
    expect(seen.refused[0]?.code).toBe("LABORO_VERSION");
  });
});

describe("reconnecting", () => {
  test("finds a broker that was restarted on the same port", async () => {
    const first = await greeter();
    const seen = dialling([first.url], soon);
    await until("HELLO_ACK", () => seen.got.length === 1);
    await first.close();
    await until("failures", () => seen.downs.length === 1 && seen.unreachable.length >= 2);
    expect(seen.downs[0]).toMatchObject({ by: "network", code: 1006 });
    await greeter({ port: first.port });
    await until("HELLO_ACK again", () => seen.got.length === 2);
    expect(seen.opened).toHaveLength(2);
    expect(seen.opened[0]?.isOpen).toBe(false);
    expect(seen.opened[1]?.isOpen).toBe(true);
  });

  test("goes to the brokers that it was told of meanwhile", async () => {
    const first = await greeter();
    const second = await greeter();
    const seen = dialling([first.url], soon);
    await until("HELLO_ACK", () => seen.got.length === 1);
    seen.dial.setUrls([await deadUrl(), second.url]);
    seen.dial.setUrls([]);
    expect(seen.opened[0]?.isOpen).toBe(true);
    await first.close();
    await until("HELLO_ACK of the second", () => seen.got.length === 2);
    expect(second.greeted).toHaveLength(1);
  });

  test("waits longer with each round in vain, and starts again once a broker has spoken", async () => {
    const delays: number[] = [];
    const waits: (() => void)[] = [];
    const after = (ms: number, act: () => void): (() => void) => {
      if (ms >= 5000) return () => {};
      delays.push(ms);
      waits.push(act);
      return () => {};
    };
    const url = await deadUrl();
    const seen = dialling([url], { random: () => 1, setTimer: after });
    for (let round = 1; round <= 4; round++) {
      await until("a wait", () => waits.length === round);
      waits[round - 1]?.();
    }
    await until("a wait", () => waits.length === 5);
    expect(delays).toEqual([100, 200, 400, 800, 1600]);
    const port = Number(new URL(url).port);
    // Accepted and dropped at once: no success.
    const mute = await greeter({ port, onConnection: (socket) => socket.close(1013, "later") });
    waits[4]?.();
    await until("the drop", () => seen.downs.length === 1);
    expect(seen.downs[0]).toEqual({ by: "peer", code: 1013, text: "later" });
    expect(delays.at(-1)).toBe(3200);
    await mute.close();
    const broker = await greeter({ port });
    waits[5]?.();
    await until("HELLO_ACK", () => seen.got.length === 1);
    await broker.close();
    await until("the end", () => seen.downs.length === 2);
    expect(delays.at(-1)).toBe(100);
  });

  test("no delay is longer than five seconds, and each is spread from zero on", () => {
    expect(reconnectDelay(0, 1)).toBe(100);
    expect(reconnectDelay(5, 1)).toBe(3200);
    expect(reconnectDelay(6, 1)).toBe(5000);
    expect(reconnectDelay(1e9, 0.5)).toBe(2500);
    expect(reconnectDelay(3, 0)).toBe(0);
  });
});

describe("stopping", () => {
  test("says goodbye to the broker and calls nothing more", async () => {
    const ended: string[] = [];
    const broker = await greeter({
      onConnection: (socket) => socket.on("close", (code, reason) => ended.push(`${code} ${reason}`)),
    });
    const seen = dialling([broker.url], soon);
    await until("the connection", () => seen.opened.length === 1);
    seen.dial.stop(1001, "leaving");
    await until("the goodbye", () => ended.length === 1);
    expect(ended).toEqual(["1001 leaving"]);
    expect(seen.downs).toEqual([]);
    expect(seen.opened[0]?.isOpen).toBe(false);
  });

  test.each([
    ["while an attempt is under way", 0],
    ["while it waits", 1],
  ])("%s, it leaves no timer and no socket", async (_when, random) => {
    let running = 0;
    const after = (ms: number, act: () => void): (() => void) => {
      running++;
      const timer = setTimeout(() => {
        running--;
        act();
      }, ms);
      return () => {
        running--;
        clearTimeout(timer);
      };
    };
    const seen = dialling([await deadUrl()], { random: () => random, setTimer: after });
    if (random === 1) await until("a failure", () => seen.unreachable.length === 1);
    expect(running).toBe(1);
    seen.dial.stop();
    expect(running).toBe(0);
    seen.dial.stop();
  });
});

test("a worker dials as a worker", async () => {
  const joined: FromWorker[] = [];
  const broker = await greeter({
    onConnection: (socket) => {
      const connection = new Connection<FromWorker, ToWorker>(
        socket,
        { from: "caller" },
        {
          onMessages: (batch) => {
            joined.push(...batch);
            connection.send({ type: "DRAIN" });
          },
          onClose: () => {},
        },
      );
    },
  });
  const got: ToWorker[] = [];
  const made = dial({
    from: "worker",
    urls: [broker.url],
    onOpen: (connection) =>
      connection.send({
        type: "JOIN",
        version: 1,
        secret: "w".repeat(32),
        session: "s" as never,
        name: "n",
        total: { slots: 1 },
        tags: [],
        pool: "default",
        services: [],
        reserveRequests: 0,
        held: [],
      }),
    onMessages: (batch) => got.push(...batch),
    onDisconnected: () => {},
    onRefused: () => {},
  });
  toClose.push({ close: () => made.stop() });
  await until("DRAIN", () => got.length === 1);
  expect(joined[0]?.type).toBe("JOIN");
  expect(got).toEqual([{ type: "DRAIN" }]);
});
