/**
 * ZMTP's PING between laboro and healthy peers. Sockets of libzmq obey the TTL of a PING: they hang up when nothing follows for so long.
 * A heartbeat of 50 ms makes twelve beats, a minute at the usual interval, pass in 0.6 s.
 */
import { createServer, type Socket } from "node:net";
import { expect, it } from "vitest";
import { openDealer } from "../../../src/protocols/zeromq/index.js";
import { sleep, until } from "../../support/wait.js";
import { atEnd, dealer, heardRouter, peerRouter, raw } from "./support.js";

const HEARTBEAT_MS = 50;
const MINUTE_MS = 12 * HEARTBEAT_MS;
const PING = Buffer.from("\u0004PING", "latin1");

/** Greeting and READY as RFC 23 and 37 have them; `minor` 0 is ZMTP 3.0, which has no PING. */
function handshake(identity: string, minor = 1): Buffer {
  const greeting = Buffer.alloc(64);
  greeting.write("ff00000000000000017f03", 0, "hex");
  greeting[11] = minor;
  greeting.write("NULL", 12);
  const property = (name: string, value: string): Buffer =>
    Buffer.concat([
      Buffer.from([name.length]),
      Buffer.from(name),
      Buffer.from([0, 0, 0, value.length]),
      Buffer.from(value),
    ]);
  const body = Buffer.concat([
    Buffer.from("\u0005READY"),
    property("Socket-Type", "DEALER"),
    property("Identity", identity),
  ]);
  return Buffer.concat([greeting, Buffer.from([4, body.length]), body]);
}

/** The TTLs of the PINGs in these bytes, in tenths of a second. */
function ttls(bytes: Buffer): number[] {
  const found: number[] = [];
  for (let at = bytes.indexOf(PING); at >= 0; at = bytes.indexOf(PING, at + 1)) {
    found.push(bytes.readUInt16BE(at + PING.length));
  }
  return found;
}

/** Talks all the time for a minute, and is never sent anything but PING. */
async function talk(say: () => unknown): Promise<void> {
  const end = performance.now() + MINUTE_MS;
  while (performance.now() < end) {
    await say();
    await sleep(HEARTBEAT_MS / 5);
  }
}

it("a PING asks the peer to wait for nothing: its TTL is 0", async () => {
  const { router } = await heardRouter({ heartbeatMs: HEARTBEAT_MS });
  const peer = await raw(router.port);
  peer.socket.write(handshake("quiet"));
  await until("a PING comes", () => ttls(peer.received()).length > 0);
  expect(ttls(peer.received())).toEqual(ttls(peer.received()).map(() => 0));
});

it("a libzmq peer that only talks keeps its connection", async () => {
  const { router, joined, left, messages } = await heardRouter({ heartbeatMs: HEARTBEAT_MS });
  const peer = dealer(router.url, { routingId: "busy" });
  await until("it is there", () => joined.length === 1);
  // Silent at first: it gets a PING, and its TTL would begin to count.
  await sleep(4 * HEARTBEAT_MS);
  await talk(() => peer.send("still at it"));
  expect({ joined, left }).toEqual({ joined: ["busy"], left: [] });
  expect(messages.length).toBeGreaterThan(10);
});

it("a libzmq peer that is silent for a minute keeps its connection", async () => {
  const { router, joined, left } = await heardRouter({ heartbeatMs: HEARTBEAT_MS });
  const peer = dealer(router.url, { routingId: "silent" });
  await until("it is there", () => joined.length === 1);
  await sleep(MINUTE_MS);
  await peer.send("echo");
  expect((await peer.receive()).toString()).toBe("echo");
  expect({ joined, left }).toEqual({ joined: ["silent"], left: [] });
});

it("a libzmq server that only talks keeps the connection of our DEALER", async () => {
  const server = peerRouter();
  await server.bind("tcp://127.0.0.1:*");
  let opened = 0;
  const closed: string[] = [];
  const peer = await openDealer(
    { url: server.lastEndpoint ?? "", identity: "me", heartbeatMs: HEARTBEAT_MS },
    { message: () => {}, opened: () => opened++, closed: (why) => closed.push(why) },
  );
  atEnd(() => peer.close());
  await until("it is connected", () => opened === 1);
  await sleep(4 * HEARTBEAT_MS);
  await talk(() => server.send(["me", "news"]));
  expect({ opened, closed }).toEqual({ opened: 1, closed: [] });
});

it("a peer that talks is asked for no sign of life", async () => {
  const { router, joined, left } = await heardRouter({ heartbeatMs: HEARTBEAT_MS });
  const peer = await raw(router.port);
  peer.socket.write(handshake("talker"));
  await until("it is there", () => joined.length === 1);
  // A message of one frame. This peer answers no PING: only what it says keeps it.
  await talk(() => peer.socket.write(Buffer.from([0, 2, 104, 105])));
  expect({ joined, left }).toEqual({ joined: ["talker"], left: [] });
});

it("a second peer with the same identity leaves the first one alone", async () => {
  const { router, joined, left, messages } = await heardRouter();
  const first = dealer(router.url, { routingId: "twin" });
  await until("the first is there", () => joined.length === 1);
  const second = await raw(router.port);
  second.socket.write(handshake("twin"));
  await until("the second is refused", second.closed);
  // The first only talks from now on, for longer than the second had to wait.
  const end = performance.now() + 1_500;
  for (let said = 0; performance.now() < end; said++) {
    await first.send(`message ${said}`);
    await sleep(50);
  }
  expect({ joined, left }).toEqual({ joined: ["twin"], left: [] });
  expect(messages.at(-1)?.frames[0]).toMatch(/^message \d+$/);
});

it("a first peer that has no PING keeps its identity for as long as its connection stands", async () => {
  const { router, joined, left } = await heardRouter();
  const first = await raw(router.port);
  first.socket.write(handshake("old", 0));
  await until("the first is there", () => joined.length === 1);
  const second = await raw(router.port);
  second.socket.write(handshake("old"));
  await until("the second is refused", second.closed);
  expect({ joined, left, closed: first.closed() }).toEqual({ joined: ["old"], left: [], closed: false });
  first.socket.destroy();
  await until("the first has left", () => left.length === 1);
  (await raw(router.port)).socket.write(handshake("old"));
  await until("the place is free", () => joined.length === 2);
});

it("our DEALER's PING has TTL 0, too", async () => {
  const chunks: Buffer[] = [];
  const server = createServer((socket: Socket) => {
    socket.on("data", (chunk) => chunks.push(chunk)).on("error", () => {});
    socket.write(Buffer.from(handshake("server").toString("latin1").replace("\u0006DEALER", "\u0006ROUTER"), "latin1"));
    atEnd(() => void socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  atEnd(() => void server.close());
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const peer = await openDealer({ url: `tcp://127.0.0.1:${port}`, heartbeatMs: HEARTBEAT_MS }, { message: () => {} });
  atEnd(() => peer.close());
  await until("a PING comes", () => ttls(Buffer.concat(chunks)).length > 0);
  expect(ttls(Buffer.concat(chunks))).toEqual(ttls(Buffer.concat(chunks)).map(() => 0));
});
