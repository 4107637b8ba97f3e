import { describe, expect, it } from "vitest";
import { Context, Dealer } from "zeromq";
import {
  encodeCommand,
  encodeGreeting,
  encodeMessage,
  makeCommand,
  makeProperties,
} from "../../../src/protocols/zeromq/zmtp-codec.js";
import { until } from "../../support/wait.js";
import { atEnd, dealer, heardRouter, peerRouter, raw, requester, zmq } from "./support.js";

const text = (frames: readonly Buffer[]): string[] => frames.map((frame) => frame.toString("latin1"));

/** The bytes of a peer's side of the handshake. */
const hello = (socketType: string, identity: string): Buffer =>
  Buffer.concat([
    encodeGreeting(),
    encodeCommand(
      makeCommand(
        "READY",
        makeProperties({ "Socket-Type": Buffer.from(socketType), Identity: Buffer.from(identity, "latin1") }),
      ),
    ),
  ]);

describe("laboro's own ROUTER", () => {
  it("speaks to a DEALER of ZeroMQ", async () => {
    const { router, messages } = await heardRouter();
    const peer = dealer(router.url, { routingId: "peer one" });
    await peer.send(["echo", "", Buffer.alloc(300, 1)]);
    expect(text(await peer.receive())).toEqual(["echo", "", "\u0001".repeat(300)]);
    expect(messages[0]?.peer).toMatchObject({ key: "peer one", address: "127.0.0.1", socketType: "DEALER" });
  });

  it("speaks to a REQ, whose empty frame it is given and gives back", async () => {
    const { router, messages } = await heardRouter();
    const peer = requester(router.url);
    await peer.send("echo");
    expect(text(await peer.receive())).toEqual(["echo"]);
    expect(messages[0]?.frames).toEqual(["", "echo"]);
    expect(messages[0]?.peer.key.length).toBe(5);
    expect(messages[0]?.peer.key.charCodeAt(0)).toBe(0);
  });

  it("is found by a ROUTER under the name that this peer knows", async () => {
    const { router } = await heardRouter({ identity: (peer) => `for ${peer.toString()}` });
    for (const name of ["a", "b"]) {
      const peer = peerRouter({ routingId: name, mandatory: true, sendTimeout: 0 });
      peer.connect(router.url);
      await until("the router is known by name", () =>
        peer.send([`for ${name}`, "echo"]).then(
          () => true,
          () => false,
        ),
      );
      expect(text(await peer.receive())).toEqual([`for ${name}`, "echo"]);
    }
  });

  it("carries messages of some megabytes in both directions", async () => {
    const { router } = await heardRouter();
    const peer = dealer(router.url);
    const large = Buffer.alloc(5_000_000, 3);
    await peer.send(["echo", large, large]);
    const answer = await peer.receive();
    expect(answer.map((frame) => frame.length)).toEqual([4, 5_000_000, 5_000_000]);
    expect(answer[2]?.equals(large)).toBe(true);
  });

  it("says at once when a peer goes, and that it cannot be sent to", async () => {
    const { router, joined, left } = await heardRouter();
    const peer = zmq((context) => new Dealer({ context, routingId: "short", linger: 0 }));
    peer.connect(router.url);
    await until("it has joined", () => joined.includes("short"));
    expect(router.send("short", [Buffer.from("x")])).toBe(true);
    peer.close();
    await until("it has left", () => left.includes("short"));
    expect(router.send("short", [Buffer.from("x")])).toBe(false);
    expect(router.send("nobody", [Buffer.from("x")])).toBe(false);
  });

  it("refuses a second peer with the identity of one that lives", async () => {
    const { router, joined, left, complaints } = await heardRouter();
    const first = dealer(router.url, { routingId: "twin" });
    await until("the first is there", () => joined.length === 1);
    const second = await raw(router.port);
    second.socket.write(hello("DEALER", "twin"));
    await until("the second is cut off", second.closed);
    await first.send("echo");
    expect(text(await first.receive())).toEqual(["echo"]);
    expect({ joined, left }).toEqual({ joined: ["twin"], left: [] });
    expect(complaints.map(({ why }) => why)).toEqual(["its identity belongs to a connected peer"]);
  });

  it("gives the place of a peer that does not answer to the next one with its identity", async () => {
    const { router, joined, left } = await heardRouter();
    const first = await raw(router.port);
    first.socket.write(hello("DEALER", "twin"));
    await until("the first is there", () => joined.length === 1);
    const second = dealer(router.url, { routingId: "twin" });
    await second.send("echo");
    expect(text(await second.receive())).toEqual(["echo"]);
    expect({ joined, left }).toEqual({ joined: ["twin", "twin"], left: ["twin"] });
    await until("the first is cut off", first.closed);
    expect(left).toEqual(["twin"]);
  });

  it("gives that place to one of two that wait for it, and refuses the other", async () => {
    const { router, joined, left, complaints } = await heardRouter();
    const first = await raw(router.port);
    first.socket.write(hello("DEALER", "twin"));
    await until("the first is there", () => joined.length === 1);
    const second = dealer(router.url, { routingId: "twin" });
    await second.send("echo");
    await new Promise<void>((resolve) => second.events.on("handshake", () => resolve()));
    const third = await raw(router.port);
    third.socket.write(hello("DEALER", "twin"));
    expect(text(await second.receive())).toEqual(["echo"]);
    await until("the third is cut off", third.closed);
    await second.send("echo");
    expect(text(await second.receive())).toEqual(["echo"]);
    expect({ joined, left }).toEqual({ joined: ["twin", "twin"], left: ["twin"] });
    expect(complaints.map(({ why }) => why)).toEqual(["its identity belongs to a connected peer"]);
  });

  it("drops a message with too many frames and goes on with the peer", async () => {
    const { router, messages, complaints } = await heardRouter({ limits: { frames: 50 } });
    const peer = dealer(router.url);
    await peer.send(Array.from({ length: 10_000 }, () => "x"));
    await peer.send("echo");
    expect(text(await peer.receive())).toEqual(["echo"]);
    expect(messages.length).toBe(1);
    expect(complaints).toEqual([
      {
        address: "127.0.0.1",
        code: "LABORO_BAD_MESSAGE",
        why: expect.stringContaining("more than 50 frames was dropped"),
      },
    ]);
  });

  it("cuts off the peer with the most, where unfinished messages are too many bytes", async () => {
    const { router, joined } = await heardRouter({ limits: { bufferedBytesInAll: 4 * 1024 * 1024 } });
    const [small, large] = [await raw(router.port), await raw(router.port)];
    const begin = Buffer.concat([Buffer.from([2, 0, 0, 0, 0, 2, 0, 0, 0])]);
    for (const [name, peer, bytes] of [
      ["small", small, 1_500_000],
      ["large", large, 3_500_000],
    ] as const) {
      peer.socket.write(hello("DEALER", name));
      await until("it has joined", () => joined.includes(name));
      peer.socket.write(Buffer.concat([begin, Buffer.alloc(bytes)]));
    }
    await until("the large one is cut off", () => large.closed());
    expect(small.closed()).toBe(false);
  });

  it("keeps no more than its limit for a peer that does not read", async () => {
    const { router, joined } = await heardRouter({ limits: { queueBytes: 4 * 1024 * 1024 } });
    const slow = await raw(router.port);
    slow.socket.write(hello("DEALER", "slow"));
    await until("it has joined", () => joined.includes("slow"));
    slow.socket.pause();
    const frames = [Buffer.alloc(64 * 1024)];
    let taken = 0;
    while (router.send("slow", frames)) {
      taken++;
      if (taken % 16 === 0) await new Promise((resolve) => setImmediate(resolve));
      if (taken > 2_000) break;
    }
    // What the kernel takes comes on top, and differs.
    expect(taken).toBeLessThan(2_000);
    expect(taken).toBeGreaterThan(50);
    slow.socket.resume();
    await until("there is room again", () => router.send("slow", frames));
  });

  it("cuts off who does not answer PING, and not who is only quiet", async () => {
    const { router, joined, left } = await heardRouter({ heartbeatMs: 50 });
    const mute = await raw(router.port);
    mute.socket.write(hello("DEALER", "mute"));
    const quiet = dealer(router.url, { routingId: "quiet" });
    await until("both are there", () => joined.length === 2);
    await until("the mute one is cut off", mute.closed);
    expect(left).toEqual(["mute"]);
    await quiet.send("echo");
    expect(text(await quiet.receive())).toEqual(["echo"]);
  });

  it("answers the PING of a peer that watches it", async () => {
    const { router, joined } = await heardRouter();
    const peer = await raw(router.port);
    peer.socket.write(hello("DEALER", "watcher"));
    await until("it has joined", () => joined.includes("watcher"));
    peer.socket.write(encodeCommand(makeCommand("PING", Buffer.from("\0\u0064who", "latin1"))));
    const pong = encodeCommand(makeCommand("PONG", Buffer.from("who")));
    await until("the answer comes", () => peer.received().includes(pong));
  });

  const nonsense: readonly [string, Buffer][] = [
    ["HTTP", Buffer.from("GET / HTTP/1.1\r\nHost: here\r\n\r\n")],
    ["zeros", Buffer.alloc(100)],
    ["an older ZMTP", Buffer.from("ff00000000000000017f0105", "hex")],
    ["a mechanism that is not spoken", encodeMechanism("PLAIN")],
    ["a message instead of READY", Buffer.concat([encodeGreeting(), encodeMessage([Buffer.from("hi")])])],
    ["an unknown command", Buffer.concat([encodeGreeting(), encodeCommand(makeCommand("HULLO"))])],
    ["a PUB", hello("PUB", "x")],
    ["a socket type that is none", hello("", "x")],
    ["an identity of 256 bytes", hello("DEALER", "i".repeat(256))],
    ["a frame of 16 EiB", Buffer.concat([hello("DEALER", "x"), Buffer.from("02ffffffffffffffff", "hex")])],
    ["frames with unknown flags", Buffer.concat([hello("DEALER", "x"), Buffer.from("f0ff", "hex")])],
    ["a command without a name", Buffer.concat([hello("DEALER", "x"), Buffer.from("0400", "hex")])],
  ];
  it.each(nonsense)("cuts off a peer that sends %s, and says why", async (_what, bytes) => {
    const { router, complaints, messages } = await heardRouter();
    const bystander = dealer(router.url);
    await bystander.send("echo");
    await bystander.receive();
    const peer = await raw(router.port);
    peer.socket.write(bytes);
    await until("it is cut off", peer.closed);
    expect(complaints.length).toBe(1);
    expect(complaints[0]?.code).toMatch(/^LABORO_/);
    await bystander.send("echo");
    await bystander.receive();
    expect(messages.length).toBe(2);
  });

  it("takes only as many peers as it may", async () => {
    const { router, joined, complaints } = await heardRouter({ limits: { peers: 2 } });
    for (const name of ["a", "b"]) (await raw(router.port)).socket.write(hello("DEALER", name));
    await until("two are there", () => joined.length === 2);
    const third = await raw(router.port);
    await until("the third is turned away", third.closed);
    expect(complaints[0]?.code).toBe("LABORO_TOO_MANY_PEERS");
  });

  it("says where it cannot listen", async () => {
    const { router } = await heardRouter();
    await expect(heardRouter({ port: router.port })).rejects.toThrow(/something else listens there/);
  });

  it("closes with what it has sent", async () => {
    const { router, joined } = await heardRouter();
    const context = new Context();
    const peer = new Dealer({ context, routingId: "last", receiveTimeout: 20_000 });
    atEnd(() => peer.close());
    peer.connect(router.url);
    await until("it has joined", () => joined.includes("last"));
    router.send("last", [Buffer.from("bye")]);
    await router.close();
    expect(text(await peer.receive())).toEqual(["bye"]);
  });
});

function encodeMechanism(name: string): Buffer {
  const bytes = encodeGreeting();
  bytes.fill(0, 12, 32);
  bytes.write(name, 12);
  return bytes;
}
