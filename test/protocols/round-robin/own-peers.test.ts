import { describe, expect, it } from "vitest";
import { curveKeyPair, Dealer } from "zeromq";
import { testDataError } from "../../../src/protocols/round-robin/stream.js";
import {
  RoundRobinClient,
  RoundRobinWorker,
  type RoundRobinWorkerOptions,
} from "../../../src/protocols/round-robin/worker/worker.js";
import { until } from "../../support/wait.js";
import {
  ABORTED,
  atEnd,
  bytesOf,
  DEREGISTER,
  E,
  EXEC,
  FAILURE,
  INCREMENT,
  id8,
  LiteralServer,
  openPlace,
  PING,
  PONG,
  REGISTER,
  RESPONSE,
  registered,
  STREAM,
  TRACKADDRESS,
  TRACKEXEC,
  V,
} from "./place.js";

async function openWorker(url: string, options: Partial<RoundRobinWorkerOptions> = {}): Promise<RoundRobinWorker> {
  const worker = await RoundRobinWorker.open({ url, reconnectMs: 20, reconnectMaxMs: 100, drainMs: 10, ...options });
  atEnd(() => worker.close());
  return worker;
}

async function openClient(url: string, options = {}): Promise<RoundRobinClient> {
  const client = await RoundRobinClient.open({ url, reconnectMs: 20, reconnectMaxMs: 100, ...options });
  atEnd(() => client.close());
  return client;
}

const curveOptions = ({ publicKey, secretKey }: ReturnType<typeof curveKeyPair>, serverKey: string) => ({
  curvePublicKey: publicKey,
  curveSecretKey: secretKey,
  curveServerKey: serverKey,
});

describe("our worker at a server of the frame table", () => {
  it("says each thing as the table has it", async () => {
    const server = await LiteralServer.open();
    const worker = await openWorker(server.url);
    const registering = worker.register();
    const [who, ...ping] = await server.next();
    expect(who).toMatch(new RegExp(`^${server.url}:\\d+$`));
    expect([...ping.slice(0, 3), ping[4]]).toEqual([E, V, PING, E]);
    expect(ping[3]?.length).toBe(2 + 16);
    await server.send(who ?? "", E, V, PONG, ping[3] ?? "", E);
    const [, ...register] = await server.next();
    expect([...register.slice(0, 3), ...register.slice(4)]).toEqual([E, V, TRACKEXEC, REGISTER, "10", E]);
    expect(register[3]?.length).toBe(2 + 8);
    await server.send(who ?? "", E, V, RESPONSE, register[3] ?? "", E);
    await registering;
    await server.send(who ?? "", E, V, TRACKEXEC, id8(3), PING, E, "client");
    expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(3), E]);
    const [, ...increment] = await server.next();
    expect([...increment.slice(0, 3), ...increment.slice(4)]).toEqual([E, V, EXEC, INCREMENT, E]);
    await server.send(who ?? "", E, V, EXEC, id8(4), PING, E, "client");
    expect((await server.next()).slice(5)).toEqual([INCREMENT, E]);
    // A routed heartbeat goes back the way it came.
    await server.send(who ?? "", E, V, PING, id8(5), E, "client");
    expect(await server.next()).toEqual([who, "client", E, V, PONG, id8(5), E]);
    await server.send(who ?? "", E, V, TRACKEXEC, id8(6), "foo", E, "client");
    expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(6), FAILURE, E]);
    expect((await server.next()).slice(5)).toEqual([INCREMENT, E]);
    await server.send(who ?? "", E, V, TRACKEXEC, id8(7), "ongoing", "30:me", E, "client");
    expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(7), FAILURE, E]);
    // An original takes whatever answers a STREAM for a packet.
    await server.send(who ?? "", E, V, TRACKEXEC, id8(8), STREAM, "STREAM_ID", "none", E, "client");
    expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(8), ABORTED, E]);
    expect((await server.next()).slice(5)).toEqual([INCREMENT, E]);
    expect(worker.counts).toEqual({ messages: 5, answered: 2, failed: 3 });
    await worker.deregister();
    expect(await server.next()).toEqual([who, E, V, EXEC, "WORKER", DEREGISTER, E]);
  });

  it("sends a stream in packets as they are asked for, and keeps it while its reader is ongoing", async () => {
    const server = await LiteralServer.open();
    const worker = await openWorker(server.url);
    const registering = worker.register();
    const who = await server.welcome();
    await registering;
    await server.send(who, E, V, TRACKEXEC, "0x00000000", STREAM, "STREAM_ID", "20000", E, "client");
    const answer = async (): Promise<Buffer> => {
      for (;;) {
        const frames = await server.next();
        if (frames[4] === RESPONSE) return Buffer.from(frames[6]?.slice(2) ?? "", "hex");
      }
    };
    const first = await answer();
    expect([first.length, first.subarray(0, 3).toString("latin1")]).toEqual([8192, "0R\u0008"]);
    const handle = `0x${first.subarray(3, 11).toString("hex")}`;
    await server.send(who, E, V, TRACKEXEC, "0x01000000", "ongoing", "STREAM_ID", E, "client");
    expect((await answer()).toString("hex")).toBe("1400");
    const parts = [first];
    while (parts.at(-1)?.[0] === 0x30) {
      await server.send(who, E, V, TRACKEXEC, "0x02000000", "mqs_more", "STREAM_ID", handle, "0", E, "client");
      parts.push(await answer());
    }
    expect(testDataError(Buffer.concat(parts.map((part) => part.subarray(11))), 20_000)).toBeUndefined();
    await server.send(who, E, V, TRACKEXEC, "0x03000000", "mqs_more", "STREAM_ID", handle, "0", E, "client");
    expect(`0x${(await answer()).toString("hex")}`).toBe(ABORTED);
  });

  it("announces with TRACKADDRESS what takes long", async () => {
    const server = await LiteralServer.open();
    let finish = (): void => {};
    const slow = () =>
      new Promise<Uint8Array[]>((resolve) => {
        finish = () => resolve([Buffer.from("done")]);
      });
    const worker = await openWorker(server.url, { trackMs: 10, commands: { slow } });
    const registering = worker.register();
    const who = await server.welcome();
    await registering;
    await server.send(who, E, V, TRACKEXEC, id8(2), "slow", E, "client");
    expect(await server.next()).toEqual([who, "client", E, V, TRACKADDRESS, id8(2), server.url, who, E]);
    finish();
    expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(2), "done", E]);
  });
});

describe("our worker's end", () => {
  it("deregisters, answers what it has and what was on its way, and only then hangs up", async () => {
    const server = await LiteralServer.open();
    let finish = (): void => {};
    const slow = () =>
      new Promise<Uint8Array[]>((resolve) => {
        finish = () => resolve([Buffer.from("done")]);
      });
    const lost: string[] = [];
    const worker = await openWorker(server.url, { drainMs: 30_000, commands: { slow } });
    const registering = worker.register();
    const who = await server.welcome();
    await registering;
    await server.send(who, E, V, TRACKEXEC, id8(2), "slow", E, "client");
    await until("it works", () => worker.counts.messages === 1);
    const closing = worker.close().then(() => lost.push("closed"));
    expect(await server.next()).toEqual([who, E, V, EXEC, "WORKER", DEREGISTER, E]);
    const [, , , command, ping = ""] = await server.next();
    expect(command).toBe(PING);
    // Sent before the server read DEREGISTER: the PONG comes behind it.
    await server.send(who, E, V, TRACKEXEC, id8(3), PING, E, "client");
    await server.send(who, E, V, PONG, ping, E);
    expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(3), E]);
    expect((await server.next()).slice(5)).toEqual([INCREMENT, E]);
    expect(lost).toEqual([]);
    finish();
    expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(2), "done", E]);
    expect((await server.next()).slice(5)).toEqual([INCREMENT, E]);
    await closing;
  });

  it("goes on with a stream while its reader asks for more", async () => {
    const place = await openPlace();
    const worker = await openWorker(place.url, { drainMs: 30_000 });
    await worker.register();
    const client = await openClient(place.url);
    const data = client.stream(5_000_000);
    await until("it has begun", () => worker.counts.messages > 1);
    await worker.close();
    expect(testDataError(await data, 5_000_000)).toBeUndefined();
  });

  it("waits no longer than it may, and not at all where no server is", async () => {
    const server = await LiteralServer.open();
    const worker = await openWorker(server.url, { drainMs: 200, commands: { never: () => new Promise(() => {}) } });
    const registering = worker.register();
    const who = await server.welcome();
    await registering;
    await server.send(who, E, V, TRACKEXEC, id8(2), "never", E, "client");
    await until("it works", () => worker.counts.messages === 1);
    await worker.close();
    await (await openWorker("tcp://127.0.0.1:1", { drainMs: 1e9 })).close();
  });
});

describe("our client at a server of the frame table", () => {
  it("says each thing as the table has it", async () => {
    const server = await LiteralServer.open();
    const client = await openClient(server.url);
    const pinging = client.ping();
    const who = await server.greet();
    expect((await server.next()).slice(0, 4)).toEqual([who, E, V, EXEC]);
    await pinging;
    const tracked = client.pingTracked();
    const [, , , command, id = "", argument, end] = await server.next();
    expect([command, argument, end]).toEqual([TRACKEXEC, PING, E]);
    await server.send(who, E, V, RESPONSE, id, E, "worker");
    expect(await tracked).toBe("worker");
    const streaming = client.stream(3);
    const stream = await server.next();
    expect(stream.slice(5)).toEqual([STREAM, "STREAM_ID", "3", E]);
    await server.send(who, E, V, RESPONSE, stream[4] ?? "", "0x3052088877665544332211616263", E, "worker");
    const more = await server.next();
    expect([...more.slice(1, 5), ...more.slice(6)]).toEqual([
      "worker",
      E,
      V,
      TRACKEXEC,
      "mqs_more",
      "STREAM_ID",
      "0x8877665544332211",
      "0",
      E,
    ]);
    await server.send(who, E, V, RESPONSE, more[5] ?? "", "0x3252088877665544332211646566", E, "worker");
    expect((await streaming).toString()).toBe("abcdef");
    const ongoing = client.ongoing("worker", Buffer.from("30:me"));
    const asked = await server.next();
    expect([...asked.slice(1, 5), ...asked.slice(6)]).toEqual(["worker", E, V, TRACKEXEC, "ongoing", "30:me", E]);
    await server.send(who, E, V, RESPONSE, asked[5] ?? "", "0x1400", E, "worker");
    await ongoing;
  });

  it("waits for what a worker announced, as long as that answers PING", async () => {
    const server = await LiteralServer.open();
    const client = await openClient(server.url, { timeoutMs: 2_500, heartbeatMs: 300 });
    const answered = client.trackexec(Buffer.from("slow"));
    const who = await server.greet();
    const [, , , , id = ""] = await server.next();
    await server.send(who, E, V, TRACKADDRESS, id, server.url, "worker", E, "worker");
    for (const begin = performance.now(); performance.now() - begin < 3_000; ) {
      const [, to = "", ...rest] = await server.next();
      // Those to the server itself come in between.
      if (to !== E) await server.send(who, E, V, PONG, rest[3] ?? "", E, "worker");
    }
    await server.send(who, E, V, RESPONSE, id, "late", E, "worker");
    expect((await answered).args.map(String)).toEqual(["late"]);
    const forgotten = expect(client.trackexec(Buffer.from("slow"))).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
    await forgotten;
  });

  it("says failure, and that no server is there", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const client = await openClient(place.url);
    const refused = expect(client.pingTracked()).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED" });
    const frames = await worker.next();
    await worker.send(client.identity, E, V, RESPONSE, frames[3] ?? "", FAILURE, E);
    await refused;
    const lost = await openClient("tcp://127.0.0.1:1", { connectMs: 100 });
    await expect(lost.pingTracked()).rejects.toMatchObject({ code: "LABORO_BROKER_UNREACHABLE" });
  });
});

describe("our three together", () => {
  it("answer pings and streams, many at a time, and lose none", async () => {
    const { url, listener } = await openPlace();
    const workers = await Promise.all([1, 2, 3].map(() => openWorker(url)));
    for (const worker of workers) await worker.register();
    const client = await openClient(url);
    await Promise.all(Array.from({ length: 300 }, () => client.pingTracked()));
    const streams = await Promise.all(Array.from({ length: 30 }, (_, i) => client.stream(1000 * i)));
    expect(streams.map((data, i) => testDataError(data, 1000 * i))).toEqual(streams.map(() => undefined));
    expect(workers.map(({ counts }) => counts.messages).every((count) => count >= 100)).toBe(true);
    await until("every slot is free", () =>
      listener.server.workers().every(({ freeSlots: free, slots }) => free === slots),
    );
  });

  it("a worker registers again by itself after a restart of the server", async () => {
    const first = await openPlace();
    const port = Number(first.url.split(":").at(-1));
    let again = 0;
    const lost: string[] = [];
    const worker = await openWorker(first.url, {
      onReregistered: () => again++,
      onDisconnected: (why) => lost.push(why),
    });
    await worker.register();
    const client = await openClient(first.url);
    await client.pingTracked();
    await first.listener.close();
    await until("the worker misses it", () => lost.length === 1);
    const second = await openPlace({ port });
    await until("it has registered again", () => again === 1);
    expect(second.listener.server.workers().map(({ address }) => address)).toEqual([worker.identity]);
    await client.whenReady();
    expect(await client.pingTracked()).toBe(worker.identity);
    // One that has deregistered does not.
    await worker.deregister();
    await until("it is out", () => second.listener.server.workers().length === 0);
    await second.listener.close();
    const third = await openPlace({ port });
    await client.whenReady();
    expect(third.listener.server.workers()).toEqual([]);
  });

  it("what was under way when the server went is refused", async () => {
    const place = await openPlace();
    const client = await openClient(place.url);
    const asked = expect(client.trackexec(Buffer.from("foo"))).rejects.toMatchObject({ code: /LABORO_BROKER_GONE/ });
    await until("it waits", () => place.setup.broker.core.state.requests.size === 1);
    await place.listener.close();
    await asked;
  });

  it("speak with CURVE where the listener demands it, and strangers stay outside", async () => {
    const server = curveKeyPair();
    const known = curveKeyPair();
    const stranger = curveKeyPair();
    const place = await openPlace({ settings: { curve: { ...server, known: [known.publicKey] } } });
    const keys = { ...known, serverKey: server.publicKey };
    const worker = await openWorker(place.url, { curve: keys });
    await worker.register();
    const client = await openClient(place.url, { curve: keys });
    expect(await client.pingTracked()).toBe(worker.identity);
    // A worker that dies is noticed though nothing more is sent to it.
    const dying = new Dealer({ routingId: "dying", ...curveOptions(known, server.publicKey), receiveTimeout: 20_000 });
    dying.connect(place.url);
    await worker.deregister();
    await dying.send([E, V, bytesOf(TRACKEXEC), "id", bytesOf(REGISTER), "5", E]);
    await dying.receive();
    const asked = expect(client.pingTracked()).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED" });
    expect((await dying.receive())[4]?.[0]).toBe(1);
    dying.close();
    await asked;
    const other = await openClient(place.url, { curve: { ...stranger, serverKey: server.publicKey }, connectMs: 500 });
    await expect(other.pingTracked()).rejects.toMatchObject({ code: "LABORO_BROKER_UNREACHABLE" });
    await until("it is in the log", () => place.logged.some(({ text }) => text.includes(stranger.publicKey)));
  });
});
