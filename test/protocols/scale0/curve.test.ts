import { describe, expect, it } from "vitest";
import { curveKeyPair, Dealer, Request, Subscriber } from "zeromq";
import { Scale0Client } from "../../../src/protocols/scale0/worker/client.js";
import { startScale0Worker } from "../../../src/protocols/scale0/worker/worker.js";
import { until } from "../../support/wait.js";
import { atEnd, Literal, openScale0, type Scale0Broker } from "./kit.js";

type Pair = ReturnType<typeof curveKeyPair>;

async function openWithKeys(listeners: ("scale0" | "round-robin")[] = ["scale0"]) {
  const broker = curveKeyPair();
  const known = curveKeyPair();
  const warnings: object[] = [];
  const setup = await openScale0({
    listeners: listeners.map((name) => ({ name, host: "127.0.0.1", ports: name === "scale0" ? [0, 0, 0] : [0] })),
    listenerSettings: { curve: { ...broker, known: [known.publicKey] } },
    log: { info: () => {}, error: () => {}, warn: (fields, text) => warnings.push({ ...fields, text }) },
  });
  return { setup, broker, known, warnings };
}

const withKeys = (url: string, mine: Pair, serverKey: string, receiveTimeout: number, routingId = "w1"): Literal =>
  new Literal(
    new Dealer({
      linger: 0,
      receiveTimeout,
      routingId,
      curvePublicKey: mine.publicKey,
      curveSecretKey: mine.secretKey,
      curveServerKey: serverKey,
    }),
    url,
  );

/** Nothing comes back, whatever is said. */
async function isShutOut(peer: Literal): Promise<boolean> {
  await peer.say("PING", { time: Date.now() });
  return peer.hear().then(
    () => false,
    () => true,
  );
}

describe("a listener with CURVE", () => {
  it("lets in who has a known key, on all three ports", async () => {
    const { setup, broker, known } = await openWithKeys();
    const worker = withKeys(setup.workers, known, broker.publicKey, 20_000);
    expect((await worker.ask("CONNECT", { services: ["echo"] }))[0]).toBe("CONFIG");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    const client = withKeys(setup.clients, known, broker.publicKey, 20_000, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 }, "secret");
    const [, { work_request_identifier }, body] = await worker.hear();
    expect(body).toBe("secret");
    await worker.say("WORKREPLY", { work_request_identifier }, "kept");
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 1 }, "kept"]);
    const socket = new Subscriber({
      linger: 0,
      receiveTimeout: 20_000,
      curvePublicKey: known.publicKey,
      curveSecretKey: known.secretKey,
      curveServerKey: broker.publicKey,
    });
    atEnd(() => socket.close());
    socket.connect(setup.published);
    socket.subscribe("PING");
    expect((await socket.receive())[0]?.toString()).toBe("PING");
  });

  it("gives work to a worker with a REQ socket, though ZeroMQ does not tell that it has one", async () => {
    const { setup, broker, known } = await openWithKeys();
    const socket = new Request({
      linger: 0,
      receiveTimeout: 20_000,
      curvePublicKey: known.publicKey,
      curveSecretKey: known.secretKey,
      curveServerKey: broker.publicKey,
    });
    const worker = new Literal(socket, setup.workers);
    expect((await worker.ask("CONNECT", { services: ["echo"] }))[0]).toBe("CONFIG");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    const asked = setup.client.request("echo", Buffer.from("secret"));
    let said = await worker.ask("PING", {});
    while (said[0] === "PONG") said = await worker.ask("PING", {});
    expect([said[0], said[2]]).toEqual(["WORKREQUEST", "secret"]);
    const { work_request_identifier } = said[1];
    expect((await worker.ask("WORKREPLY", { work_request_identifier }, "kept"))[0]).toBe("PONG");
    expect((await asked).toString()).toBe("kept");
  });

  it("shuts out a key that is not known, the broker's wrong key, and who has none", async () => {
    const { setup, broker, known, warnings } = await openWithKeys();
    const stranger = curveKeyPair();
    const shut = await Promise.all([
      isShutOut(withKeys(setup.workers, stranger, broker.publicKey, 1_500, "w1")),
      isShutOut(withKeys(setup.clients, stranger, broker.publicKey, 1_500, "c1")),
      isShutOut(withKeys(setup.clients, known, stranger.publicKey, 1_500, "c2")),
      isShutOut(new Literal(new Dealer({ linger: 0, receiveTimeout: 1_500, sendTimeout: 1_500 }), setup.clients)),
    ]);
    expect(shut).toEqual([true, true, true, true]);
    await until("it was put down once", () => warnings.length > 0);
    expect(JSON.stringify(warnings)).toContain(stranger.publicKey);
    expect(await setup.client.workers()).toEqual([]);
    // And the known one is still let in.
    const late = withKeys(setup.clients, known, broker.publicKey, 20_000, "c3");
    expect((await late.ask("PING", {}))[0]).toBe("PONG");
  });

  it("is opened by laboro's own worker and client with their keys", async () => {
    const { setup, broker, known } = await openWithKeys();
    const curve = { ...known, serverKey: broker.publicKey };
    const worker = await startScale0Worker({
      broker: setup.workers,
      services: {
        upper: ([body]) =>
          Buffer.from(body ?? "")
            .toString()
            .toUpperCase(),
      },
      connectTimeoutMs: 15_000,
      curve,
    });
    atEnd(() => worker.stop(0));
    const client = new Scale0Client({ broker: setup.clients, connectTimeoutMs: 15_000, curve });
    atEnd(() => client.close());
    const [answer] = await client.request("upper", "hello");
    expect(Buffer.from(answer ?? "").toString()).toBe("HELLO");
    const stranger = await startScale0Worker({
      broker: setup.workers,
      services: {},
      connectTimeoutMs: 1_000,
      curve: { ...curveKeyPair(), serverKey: broker.publicKey },
    });
    await expect(stranger.ended).rejects.toMatchObject({ code: "LABORO_BROKER_UNREACHABLE" });
  });

  it("notices that a worker is gone, though ZeroMQ does not say who went", async () => {
    const { setup, broker, known } = await openWithKeys();
    await setup.client.ask("configSet", { settings: { heartbeat_interval: 200 } });
    const worker = withKeys(setup.workers, known, broker.publicKey, 20_000);
    await worker.ask("CONNECT", { services: ["echo"] });
    await worker.ask("PING", { heartbeat_interval: 600 });
    const client = withKeys(setup.clients, known, broker.publicKey, 20_000, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 });
    await worker.hear();
    worker.close();
    expect((await client.hear())[1]).toMatchObject({
      code: 504,
      message_id: 1,
      message: expect.stringContaining("lost"),
    });
  });

  it("is the round-robin listener, too", async () => {
    const { setup, broker, known } = await openWithKeys(["scale0", "round-robin"]);
    const url = roundRobinOf(setup);
    const hello = ["", "LMQv100", Buffer.from([1]), Buffer.from("12345678"), ""];
    const pongs = async (mine: Pair, receiveTimeout: number): Promise<boolean> => {
      const peer = withKeys(url, mine, broker.publicKey, receiveTimeout, `${url}:7`);
      await peer.sayFrames(...hello);
      return peer.hearFrames().then(
        (frames) => frames.some((frame) => frame.toString() === "12345678"),
        () => false,
      );
    };
    expect(await pongs(curveKeyPair(), 1_500)).toBe(false);
    expect(await pongs(known, 20_000)).toBe(true);
  });
});

const roundRobinOf = ({ broker }: Scale0Broker): string =>
  broker.listeners.find(({ name }) => name === "round-robin")?.urls[0] ?? "";
