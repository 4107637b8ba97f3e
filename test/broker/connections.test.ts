/** Whoever has not said who it is: connections that stay silent, are refused, or are too many. */
import type { IncomingMessage } from "node:http";
import { get } from "node:https";
import { connect, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { LISTENER_NAMES } from "../../src/broker/listeners/listener.js";
import { connect as connectClient } from "../../src/entries/client.js";
import { atEnd } from "../support/at-end.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const PORTS = { fuq: 1, fuq1: 1, runexp: 1, "round-robin": 1, scale0: 3 } as const;
const UPGRADE = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
const GREETING = { greetingTimeoutMs: 1_000 };

/** It never closes its side by itself. */
function peer(port: number, bytes: Uint8Array | string = ""): Socket & { said: string; cut: boolean } {
  const socket = Object.assign(connect({ port, host: "127.0.0.1", allowHalfOpen: true }), { said: "", cut: false });
  socket.on("data", (chunk) => (socket.said += chunk.toString("latin1")));
  socket.on("error", () => {
    socket.cut = true;
  });
  if (bytes.length > 0) socket.write(bytes);
  atEnd(() => socket.destroy());
  return socket;
}

const portOf = (url: string): number => Number(/:(\d+)$/.exec(url)?.[1]);

describe("a connection is destroyed soon", () => {
  it("that says nothing, or not all, at any listener", async () => {
    const listeners = LISTENER_NAMES.map((name) => ({ name, host: "127.0.0.1", ports: Array(PORTS[name]).fill(0) }));
    const { broker } = await openTestBroker({ connectionBounds: GREETING, listeners });
    const ports = [broker.url, ...broker.listeners.flatMap(({ urls }) => urls)].map(portOf);
    expect(ports).toHaveLength(8);
    const peers = ports.flatMap((port) => ["", "G", "\x16\x03\x01", "\xff"].map((bytes) => peer(port, bytes)));
    await until("a write fails", () => {
      for (const socket of peers) if (!socket.cut) socket.write("\0");
      return peers.every(({ cut }) => cut);
    });
  });

  it("that is refused: an upgrade without a token, with another path, or without a cookie of fuq; headers too long", async () => {
    const { broker } = await openTestBroker({ connectionBounds: { greetingTimeoutMs: 60_000 } });
    const refused = [
      ["401", "GET /node/persistent", "Sec-WebSocket-Protocol: laboro.1\r\n"],
      ["404", "GET /elsewhere", "Sec-WebSocket-Protocol: laboro.1\r\n"],
      ["401", "GET /node/persistent", ""],
      ["431", "GET /", `x: ${"y".repeat(20_000)}\r\n`],
    ].map(([status, request, header]) => {
      return { status, socket: peer(portOf(broker.url), `${request} HTTP/1.1\r\n${UPGRADE}${header}\r\n`) };
    });
    await until("the refusals have come", () =>
      refused.every(({ status, socket }) => socket.said.startsWith(`HTTP/1.1 ${status}`)),
    );
    await until("writes fail", () => {
      for (const { socket } of refused) if (!socket.cut) socket.write("\0");
      return refused.every(({ socket }) => socket.cut);
    });
  });
});

describe("a connection with TLS", () => {
  it("ends as soon as its peer leaves during the handshake", async () => {
    const { broker } = await openTestBroker({ connectionBounds: { greetingTimeoutMs: 60_000 } });
    const leaving = peer(portOf(broker.url), "\x16\x03\x01");
    leaving.resume().end();
    await until("the broker has closed its side, too", () => leaving.readableEnded || leaving.cut, 20_000);
  });

  it("stays when its token is valid, and frees its place when it ends", async () => {
    const { broker } = await openTestBroker({
      connectionBounds: { greetingTimeoutMs: 60_000, silentAfterMs: 0, newPerAddress: 1, newInAll: 1, connections: 4 },
    });
    const url = `${broker.url.replace("http", "https")}/api/v1`;
    const headers = { authorization: `Bearer ${broker.token}`, accept: "text/event-stream" };
    const ask = (path: string): Promise<IncomingMessage> =>
      new Promise((resolve, reject) => {
        get(url + path, { headers, agent: false, rejectUnauthorized: false }, resolve).once("error", reject);
      });
    const stream = await ask("/events");
    atEnd(() => stream.destroy());
    for (let i = 0; i < 8; i++) {
      const answer = (await ask("/status")).resume();
      await until("it is answered", () => answer.complete && answer.socket.destroyed);
      expect(answer.statusCode).toBe(200);
    }
    const silent = peer(portOf(broker.url));
    await until("it is there", () => silent.readyState === "open");
    peer(portOf(broker.url));
    await until("it goes, as the only one without a token", () => silent.readableEnded || silent.cut);
    expect(stream.closed).toBe(false);
  });
});

describe("too many connections without authentication", () => {
  it("cost the oldest of them, and nobody who has a token", async () => {
    const { broker, client } = await openTestBroker({
      connectionBounds: { greetingTimeoutMs: 60_000, silentAfterMs: 0, newPerAddress: 5, newInAll: 5 },
    });
    const silent: ReturnType<typeof peer>[] = [];
    for (let i = 0; i < 20; i++) {
      const socket = peer(portOf(broker.url));
      silent.push(socket);
      await until("it is there", () => socket.readyState === "open" && client.ask("status", {}));
    }
    const gone = (): boolean[] =>
      silent.map((socket) => {
        if (!socket.cut) socket.write("");
        return socket.cut || socket.readableEnded;
      });
    await until("fifteen are gone", () => gone().filter(Boolean).length === 15);
    expect(gone().slice(-5)).toEqual([false, false, false, false, false]);
    const answer = await fetch(`${broker.url}/api/v1/status`, { headers: { authorization: `Bearer ${broker.token}` } });
    expect(answer.status).toBe(200);
    const others = [];
    for (let i = 0; i < 8; i++) {
      const other = await connectClient({ broker: broker.url, token: broker.token });
      atEnd(() => other.close());
      others.push(other);
    }
    // More than five, and none of them goes.
    for (const one of [client, ...others]) expect((await one.ask("status", {})).workers).toBeDefined();
  });

  it("cost the one that comes where the others are in the middle of their greeting", async () => {
    const { broker, client } = await openTestBroker({
      connectionBounds: { greetingTimeoutMs: 60_000, silentAfterMs: 0, newInAll: 1 },
    });
    const slow = peer(portOf(broker.url), `GET /healthz HTTP/1.1\r\n${"x: y\r\n".repeat(1_000)}`);
    await until("it has begun", () => slow.bytesWritten > 6_000 && slow.readyState === "open");
    await client.ask("status", {});
    const next = peer(portOf(broker.url));
    await until("the next one is refused", () => next.readableEnded || next.cut);
    slow.write("\r\n");
    await until("the other one is answered", () => slow.said.startsWith("HTTP/1.1 "));
  });

  it("are refused where all descriptors but the reserved ones are used", async () => {
    const { broker, client } = await openTestBroker({ connectionBounds: { connections: 3, silentAfterMs: 0 } });
    const link = peer(portOf(broker.url));
    const last = peer(portOf(broker.url));
    await until("both are there", () => link.readyState === "open" && last.readyState === "open");
    const more = peer(portOf(broker.url));
    await until("the oldest without a token is gone", () => link.readableEnded || link.cut);
    expect(more.readableEnded).toBe(false);
    expect((await client.ask("status", {})).workers).toBeDefined();
  });
});
