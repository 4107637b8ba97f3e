/** CURVE between laboro's sockets, those of libzmq, and a literal peer that does not keep the rules. */
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { curveKeyPair, Router as ZmqRouter } from "zeromq";
import { type CurveKeyPair, fromZ85, isCurveKey, newCurveKeyPair, z85 } from "../../../src/base/curve-key.js";
import { curveClient, curveServer } from "../../../src/protocols/zeromq/curve.js";
import { openDealer, openRouter, type Router } from "../../../src/protocols/zeromq/index.js";
import type { Mechanism } from "../../../src/protocols/zeromq/mechanism.js";
import {
  encodeCommand,
  encodeGreeting,
  encodeMessage,
  FrameReader,
  makeCommand,
  makeProperties,
  readCommand,
} from "../../../src/protocols/zeromq/zmtp-codec.js";
import { Launched } from "../../support/launched.js";
import { SeededRandom } from "../../support/random.js";
import { until } from "../../support/wait.js";
import { atEnd, dealer, heardRouter, raw, zmq } from "./support.js";

const text = (frames: readonly Buffer[]): string[] => frames.map((frame) => frame.toString("latin1"));

const server = curveKeyPair();
// As laboro keys makes them.
const known = newCurveKeyPair();
const stranger = curveKeyPair();
const keys = ({ publicKey, secretKey }: CurveKeyPair, serverKey = server.publicKey) => ({
  curvePublicKey: publicKey,
  curveSecretKey: secretKey,
  curveServerKey: serverKey,
});
const CURVE = { ...server, known: [known.publicKey] };
const own = { ...known, serverKey: server.publicKey };
const PROPERTIES = makeProperties({ "Socket-Type": Buffer.from("DEALER"), Identity: Buffer.from("literal") });

/** A ROUTER of libzmq that returns what it gets. */
async function libzmqRouter(options: object = {}): Promise<string> {
  const router = zmq(
    (context) =>
      new ZmqRouter({
        ...{
          context,
          linger: 0,
          curveServer: true,
          curvePublicKey: server.publicKey,
          curveSecretKey: server.secretKey,
        },
        ...options,
      }),
  );
  await router.bind("tcp://127.0.0.1:*");
  void (async () => {
    for await (const frames of router) await router.send(frames);
  })().catch(() => {});
  return router.lastEndpoint ?? "";
}

/** A peer whose bytes the test makes, after the greeting. */
async function literal(port: number, pair: CurveKeyPair = known) {
  const peer = await raw(port);
  peer.socket.write(encodeGreeting({ mechanism: "CURVE", isServer: false }));
  const reader = new FrameReader({ frames: 10, messageBytes: 1e6 });
  const frames: Buffer[] = [];
  let read = 64;
  const next = async (): Promise<Buffer> => {
    await until("a frame comes", () => {
      const bytes = peer.received();
      if (bytes.length > read) {
        reader.push(bytes.subarray(read), (one) =>
          frames.push(
            one.kind === "command" ? one.body : one.kind === "message" ? (one.frames[0] as Buffer) : Buffer.alloc(0),
          ),
        );
        read = bytes.length;
      }
      return frames.length > 0;
    });
    return frames.shift() as Buffer;
  };
  const mechanism: Mechanism = curveClient({ ...pair, serverKey: server.publicKey })(() => PROPERTIES);
  const hello = mechanism.begin?.() as Buffer;
  const command = (body: Buffer): Buffer => encodeCommand(body);
  const step = async () => {
    const { name, body } = readCommand(await next());
    return mechanism.receive(name, body);
  };
  const join = async (): Promise<void> => {
    peer.socket.write(command(hello));
    peer.socket.write(command((await step()).reply as Buffer));
    expect((await step()).peer).toBeDefined();
  };
  const seal = (...parts: string[]): Buffer =>
    mechanism.cipher?.seal(encodeMessage(parts.map((part) => Buffer.from(part)))) as Buffer;
  return { ...peer, hello, command, step, join, seal, next };
}

describe("a CURVE router", () => {
  it("lets in who is known and nobody else, and has a name for peers that are ROUTERs", async () => {
    const { router, messages, complaints } = await heardRouter({ curve: CURVE, identity: () => "the server" });
    const bad = dealer(router.url, { ...keys(stranger), routingId: "bad" });
    await bad.send("let me in");
    const plain = dealer(router.url, { routingId: "plain" });
    await plain.send("me too");
    const lost = dealer(router.url, { ...keys(known, stranger.publicKey), routingId: "lost" });
    await lost.send("and me");
    const good = dealer(router.url, { ...keys(known), routingId: "good" });
    await good.send(["echo", "hello"]);
    expect(text(await good.receive())).toEqual(["echo", "hello"]);
    for (const why of [stranger.publicKey, "may be other than CURVE", "does not know the CURVE key of this server"])
      await until(`${why} was said`, () => complaints.some((one) => one.why.includes(why)));
    expect(complaints.every(({ code }) => code === "LABORO_BAD_TOKEN")).toBe(true);
    expect(messages.map(({ frames }) => frames)).toEqual([["echo", "hello"]]);
    const other = zmq(
      (context) => new ZmqRouter({ context, linger: 0, mandatory: true, receiveTimeout: 20_000, ...keys(known) }),
    );
    other.connect(router.url);
    await until("it is found by its name", () =>
      other.send(["the server", "echo"]).then(
        () => true,
        () => undefined,
      ),
    );
    expect(text(await other.receive())).toEqual(["the server", "echo"]);
  });

  it("takes and gives messages of any size and number of frames, with PING from both ends", async () => {
    const { router, left } = await heardRouter({ curve: CURVE, heartbeatMs: 100 });
    const peer = dealer(router.url, { ...keys(known), heartbeatInterval: 50, heartbeatTimeout: 5_000 });
    const random = new SeededRandom();
    for (const size of [0, 1, 200, 230, 255, 256, 65_536, 3_000_000]) {
      const bytes = Buffer.from(Array.from({ length: Math.min(size, 5_000) }, () => random.between(0, 255)));
      const frame = Buffer.alloc(size, bytes.length === 0 ? 0 : bytes);
      await peer.send(["echo", frame, "", frame]);
      expect((await peer.receive()).map((one) => one.length)).toEqual([4, size, 0, size]);
      await peer.send(["echo", frame]);
      expect((await peer.receive())[1]?.equals(frame)).toBe(true);
    }
    // Longer than three heartbeats of either.
    await new Promise((resolve) => setTimeout(resolve, 700));
    await peer.send("echo");
    expect(text(await peer.receive())).toEqual(["echo"]);
    expect(left).toEqual([]);
  });

  it("drops a message with too many frames, and disconnects who sends a frame over the limit", async () => {
    const limits = { frames: 3, messageBytes: 1_000 };
    const { router, messages, complaints, left } = await heardRouter({ curve: CURVE, limits });
    const peer = await literal(router.port);
    await peer.join();
    peer.socket.write(peer.seal("1", "2", "3", "4"));
    peer.socket.write(peer.seal("fits"));
    await until("the one that fits has come", () => messages.length === 1);
    expect(complaints[0]?.why).toContain("more than 3 frames was dropped");
    peer.socket.write(peer.seal("x".repeat(2_000)));
    await until("it has left", () => left.length === 1);
    expect(messages.map(({ frames }) => frames)).toEqual([["fits"]]);
  });

  it("disconnects a peer that alters, repeats or does not encrypt a message", async () => {
    const { router, messages, complaints } = await heardRouter({ curve: CURVE });
    const attacks: readonly ((peer: Awaited<ReturnType<typeof literal>>) => Buffer)[] = [
      (peer) => {
        const bytes = peer.seal("altered");
        bytes[bytes.length - 1] = (bytes.at(-1) as number) ^ 1;
        return bytes;
      },
      (peer) => {
        const bytes = peer.seal("repeated");
        return Buffer.concat([bytes, bytes]);
      },
      (peer) => {
        const [first, second] = [peer.seal("earlier"), peer.seal("later")];
        return Buffer.concat([second, first]);
      },
      () => encodeMessage([Buffer.from("as it is")]),
      () => encodeMessage([Buffer.from("\x07MESSAGE")]),
      () => encodeCommand(makeCommand("PING", Buffer.alloc(2))),
      (peer) => peer.command(peer.hello),
    ];
    for (const attack of attacks) {
      const peer = await literal(router.port);
      await peer.join();
      const before = complaints.length;
      peer.socket.write(attack(peer));
      await until("it is disconnected", () => peer.closed());
      expect(complaints.length).toBe(before + 1);
    }
    expect(messages.map(({ frames }) => frames)).toEqual([["repeated"], ["later"]]);
  });

  it("refuses every handshake that is not whole and true", async () => {
    const { router, joined } = await heardRouter({ curve: CURVE });
    const other = await literal(router.port);
    other.socket.write(other.command(other.hello));
    const foreign = (await other.step()).reply as Buffer;
    const changed = (bytes: Buffer, at: number): Buffer => {
      const copy = Buffer.from(bytes);
      copy[at] = (copy[at] as number) ^ 1;
      return copy;
    };
    const begun: readonly ((hello: Buffer) => Buffer)[] = [
      (hello) => changed(hello, 6),
      (hello) => changed(hello, 7 + 73),
      (hello) => changed(hello, hello.length - 1),
      (hello) => hello.subarray(0, -1),
      // A key with which every secret is the same.
      (hello) => Buffer.concat([hello.subarray(0, 80), Buffer.alloc(32), hello.subarray(112)]),
      () => foreign,
      () => makeCommand("READY", PROPERTIES),
    ];
    for (const begin of begun) {
      const peer = await literal(router.port);
      peer.socket.write(peer.command(begin(peer.hello)));
      await until("it is disconnected", () => peer.closed());
    }
    const continued: readonly ((initiate: Buffer) => Buffer)[] = [
      () => foreign,
      (initiate) => changed(initiate, 9),
      (initiate) => changed(initiate, 9 + 96),
      (initiate) => changed(initiate, initiate.length - 1),
      (initiate) => initiate.subarray(0, 9 + 96),
      (initiate) => initiate.subarray(0, 9 + 50),
    ];
    for (const go of continued) {
      const peer = await literal(router.port);
      peer.socket.write(peer.command(peer.hello));
      const { reply } = await peer.step();
      peer.socket.write(peer.command(go(reply as Buffer)));
      await until("it is disconnected", () => peer.closed());
    }
    const impostor = await literal(router.port, { publicKey: known.publicKey, secretKey: stranger.secretKey });
    impostor.socket.write(impostor.command(impostor.hello));
    impostor.socket.write(impostor.command((await impostor.step()).reply as Buffer));
    await until("who has another's public key alone is disconnected", () => impostor.closed());
    expect(joined).toEqual([]);
    const twice = await literal(router.port);
    await twice.join();
    expect(joined).toEqual(["literal"]);
    const unknown = await literal(router.port, stranger);
    unknown.socket.write(unknown.command(unknown.hello));
    unknown.socket.write(unknown.command((await unknown.step()).reply as Buffer));
    expect(text([await unknown.next()])).toEqual(["\x05ERROR\x03400"]);
  });

  it("lives when connections end at any byte of the handshake", async () => {
    const { router, joined, left } = await heardRouter({ curve: CURVE });
    const one = await literal(router.port);
    const bytes = Buffer.concat([encodeGreeting({ mechanism: "CURVE", isServer: false }), one.command(one.hello)]);
    for (let length = 0; length < bytes.length; length += 7) {
      const peer = await raw(router.port);
      peer.socket.write(bytes.subarray(0, length));
      if (length % 2 === 0) peer.socket.destroy();
      else peer.socket.resetAndDestroy();
    }
    await one.join();
    one.socket.resetAndDestroy();
    await until("it has joined and left", () => left.length === 1);
    expect(joined).toEqual(["literal"]);
  });

  it("outlives a peer that was killed while its messages waited to be read", async () => {
    const program = new Launched("router", [fileURLToPath(new URL("busy-router.mjs", import.meta.url)), "300"], {
      env: process.env,
    });
    atEnd(() => program.end("SIGKILL"));
    await program.ended();
    expect([program.exitCode, program.said]).toEqual([0, "alive\n"]);
  });

  it("refuses keys that are none, before anything is opened", async () => {
    await expect(
      openRouter({ host: "127.0.0.1", port: 0, curve: { ...server, known: ["short"] } }, { message: () => {} }),
    ).rejects.toThrow(/40 characters/);
  });
});

describe("a CURVE dealer", () => {
  it("speaks to our ROUTER, which hears of its end", async () => {
    const left: string[] = [];
    const got: string[][] = [];
    const router: Router = await openRouter(
      { host: "127.0.0.1", port: 0, curve: CURVE },
      { message: ({ key }, frames) => void router.send(key, frames), left: ({ key }) => left.push(key) },
    );
    atEnd(() => router.close());
    let opened = 0;
    const peer = await openDealer(
      { url: router.url, identity: "me", curve: own },
      { message: (frames) => got.push(text(frames)), opened: () => opened++ },
    );
    await until("it is let in", () => opened === 1);
    peer.send([Buffer.from("ping"), Buffer.from("")]);
    await until("the answer has come", () => got.length === 1);
    expect(got).toEqual([["ping", ""]]);
    await peer.close();
    await until("its absence is noticed", () => left.includes("me"));
    expect(router.send("me", [Buffer.from("x")])).toBe(false);
  });

  it("speaks to a ROUTER of libzmq, with PING from both ends", async () => {
    const url = await libzmqRouter({ heartbeatInterval: 50, heartbeatTimeout: 5_000 });
    const got: Buffer[][] = [];
    const lost: string[] = [];
    let opened = 0;
    const peer = await openDealer(
      { url, identity: "me", curve: own, heartbeatMs: 100 },
      {
        message: (frames) => got.push([...frames]),
        opened: () => opened++,
        closed: (why) => lost.push(why),
      },
    );
    atEnd(() => peer.close());
    await until("it is let in", () => opened === 1);
    for (const size of [0, 255, 256, 1_000_000]) {
      const frame = Buffer.alloc(size, 7);
      peer.send([Buffer.from("a"), frame]);
      await until(`${size} bytes have come back`, () => got.length === 1);
      expect(got.shift()?.map((one) => one.length)).toEqual([1, size]);
    }
    await new Promise((resolve) => setTimeout(resolve, 700));
    peer.send([Buffer.from("still here")]);
    await until("it is answered", () => got.length === 1);
    expect([lost, opened]).toEqual([[], 1]);
  });

  it("says why it is not let in", async () => {
    const reasonOf = async (url: string, serverKey: string, pair: CurveKeyPair): Promise<string> => {
      const lost: string[] = [];
      const peer = await openDealer(
        { url, curve: { ...pair, serverKey } },
        { message: () => {}, closed: (why) => lost.push(why) },
      );
      await until("it is refused", () => lost.length > 0);
      await peer.close();
      return lost[0] ?? "";
    };
    const { router } = await heardRouter({ curve: CURVE });
    const plain = await heardRouter();
    expect(await reasonOf(router.url, server.publicKey, stranger)).toContain("this CURVE key is not known there");
    expect(await reasonOf(router.url, stranger.publicKey, known)).toContain("closed by the other end");
    expect(await reasonOf(plain.router.url, server.publicKey, known)).toContain('"NULL", expected CURVE');
  });
});

describe("CURVE keys", () => {
  it("are written as ZeroMQ writes them", () => {
    // The vector of RFC 32.
    expect(z85(Buffer.from("864fd26fb559f75b", "hex"))).toBe("HelloWorld");
    expect(fromZ85("HelloWorld").toString("hex")).toBe("864fd26fb559f75b");
    const { publicKey } = newCurveKeyPair();
    expect([isCurveKey(publicKey), z85(fromZ85(publicKey))]).toEqual([true, publicKey]);
  });

  it("of a listener are read once, and each connection makes its own", () => {
    const make = curveServer(CURVE);
    const hello = curveClient(own)(() => PROPERTIES).begin?.() as Buffer;
    const { name, body } = readCommand(hello);
    const replies = [make(() => PROPERTIES), make(() => PROPERTIES)].map((one) => one.receive(name, body).reply);
    expect(replies[0]?.length).toBe(replies[1]?.length);
    expect(replies[0]?.equals(replies[1] as Buffer)).toBe(false);
  });
});
