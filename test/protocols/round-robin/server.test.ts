import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ExpectedIncrements } from "../../../src/protocols/round-robin/broker/outstanding-messages.js";
import { HeartbeatMonitor } from "../../../src/protocols/round-robin/broker/worker-table.js";
import { until } from "../../support/wait.js";
import {
  ABORTED,
  DEREGISTER,
  E,
  EXEC,
  FAILURE,
  freeOf,
  greeted,
  INCREMENT,
  id8,
  LiteralPeer,
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

describe("each row of the frame table", () => {
  it("handshake and heartbeat", async () => {
    const { url } = await openPlace();
    const peer = new LiteralPeer(url);
    await peer.send(E, V, PING, "0x0600000000000000", E);
    expect(await peer.next()).toEqual([E, V, PONG, "0x0600000000000000", E]);
    await peer.send(E, V, PING, "HANDLE", E);
    expect(await peer.next()).toEqual([E, V, PONG, "HANDLE", E]);
  });

  it("REGISTER and DEREGISTER", async () => {
    const place = await openPlace();
    const worker = await greeted(place.url);
    await worker.send(E, V, TRACKEXEC, "0x00000000", REGISTER, "10", E);
    expect(await worker.next()).toEqual([E, V, RESPONSE, "0x00000000", E]);
    expect(place.listener.server.workers()).toEqual([
      { address: worker.identity, freeSlots: 10, slots: 10, messages: 0 },
    ]);
    await worker.send(E, V, EXEC, "WORKER", DEREGISTER, E);
    await until("it is out of the table", () => place.listener.server.workers().length === 0);
    await worker.send(E, V, PING, "0x01", E);
    // Nothing was said to the DEREGISTER.
    expect(await worker.next()).toEqual([E, V, PONG, "0x01", E]);
  });

  it("EXEC PING, and the INCREMENT that follows", async () => {
    const place = await openPlace();
    const worker = await registered(place, "3");
    const client = await greeted(place.url);
    await client.send(E, V, EXEC, id8(8), PING, E);
    expect(await worker.next()).toEqual([E, V, EXEC, id8(8), PING, E, client.identity]);
    expect(freeOf(place, worker)).toBe(2);
    await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
    await until("the slot is free", () => freeOf(place, worker) === 3);
    expect(client.got).toEqual([]);
  });

  it("TRACKEXEC PING and its RESPONSE", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(3), PING, E);
    expect(await worker.next()).toEqual([E, V, TRACKEXEC, id8(3), PING, E, client.identity]);
    await worker.send(client.identity, E, V, RESPONSE, id8(3), E);
    expect(await client.next()).toEqual([E, V, RESPONSE, id8(3), E, worker.identity]);
  });

  it("STREAM and its response, with the next packet asked of the worker itself", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, "0x00000000", STREAM, "STREAM_ID", "1024", E);
    expect(await worker.next()).toEqual([
      E,
      V,
      TRACKEXEC,
      "0x00000000",
      STREAM,
      "STREAM_ID",
      "1024",
      E,
      client.identity,
    ]);
    const packet = "0x305208887766554433221100000000640000000101";
    await worker.send(client.identity, E, V, RESPONSE, "0x00000000", packet, E);
    expect(await client.next()).toEqual([E, V, RESPONSE, "0x00000000", packet, E, worker.identity]);
    await client.send(
      worker.identity,
      E,
      V,
      TRACKEXEC,
      "0x01000000",
      "mqs_more",
      "STREAM_ID",
      "0x8877665544332211",
      "0",
      E,
    );
    expect(await worker.next()).toEqual([
      E,
      V,
      TRACKEXEC,
      "0x01000000",
      "mqs_more",
      "STREAM_ID",
      "0x8877665544332211",
      "0",
      E,
      client.identity,
    ]);
    await worker.send(client.identity, E, V, RESPONSE, "0x01000000", "0x3252088877665544332211", E);
    expect(await client.next()).toEqual([E, V, RESPONSE, "0x01000000", "0x3252088877665544332211", E, worker.identity]);
    await client.send(worker.identity, E, V, TRACKEXEC, "0x02000000", "ongoing", "30:me", E);
    expect(await worker.next()).toEqual([E, V, TRACKEXEC, "0x02000000", "ongoing", "30:me", E, client.identity]);
  });

  it("TRACKADDRESS, and heartbeats that are routed", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(2), PING, E);
    await worker.next();
    await worker.send(client.identity, E, V, TRACKADDRESS, id8(2), place.url, worker.identity, E);
    expect(await client.next()).toEqual([E, V, TRACKADDRESS, id8(2), place.url, worker.identity, E, worker.identity]);
    await client.send(worker.identity, E, V, PING, id8(6), E);
    expect(await worker.next()).toEqual([E, V, PING, id8(6), E, client.identity]);
    await worker.send(client.identity, E, V, PONG, id8(6), E);
    expect(await client.next()).toEqual([E, V, PONG, id8(6), E, worker.identity]);
    await worker.send(client.identity, E, V, RESPONSE, id8(2), E);
    expect(await client.next()).toEqual([E, V, RESPONSE, id8(2), E, worker.identity]);
  });

  it("the way back through more than one server", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const server = await greeted(place.url);
    for (const client of ["one", "two"]) {
      // Two clients behind another server count their messages alike.
      await server.send(E, V, TRACKEXEC, id8(1), PING, E, client);
      expect(await worker.next()).toEqual([E, V, TRACKEXEC, id8(1), PING, E, client, server.identity]);
    }
    await worker.send(server.identity, "two", E, V, RESPONSE, id8(1), E);
    expect(await server.next()).toEqual(["two", E, V, RESPONSE, id8(1), E, worker.identity]);
    expect(freeOf(place, worker)).toBe(9);
    await worker.send(server.identity, "one", E, V, RESPONSE, id8(1), E);
    expect(await server.next()).toEqual(["one", E, V, RESPONSE, id8(1), E, worker.identity]);
    expect(freeOf(place, worker)).toBe(10);
  });
});

describe("the worker table", () => {
  it("queues, in order, when all are full, and drains the moment a slot is free", async () => {
    const place = await openPlace();
    const worker = await registered(place, "1");
    const client = await greeted(place.url);
    for (let i = 1; i <= 20; i++) await client.send(E, V, TRACKEXEC, id8(i), PING, E);
    for (let i = 1; i <= 20; i++) {
      const [, , , id = ""] = await worker.next();
      expect(id).toBe(id8(i));
      expect(worker.got).toEqual([]);
      await worker.send(client.identity, E, V, RESPONSE, id, E);
      await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
      expect((await client.next())[3]).toBe(id8(i));
    }
    expect(client.got).toEqual([]);
    expect(freeOf(place, worker)).toBe(1);
  });

  it("frees the slot of a TRACKEXEC for an INCREMENT without RESPONSE, and still passes on a late one", async () => {
    const place = await openPlace();
    const worker = await registered(place, "1");
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, "0x06000000", STREAM, "STREAM_ID", "2048", E);
    await worker.next();
    await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
    await until("the slot is free", () => freeOf(place, worker) === 1);
    await worker.send(client.identity, E, V, RESPONSE, "0x06000000", "late", E);
    expect(await client.next()).toEqual([E, V, RESPONSE, "0x06000000", "late", E, worker.identity]);
    expect(freeOf(place, worker)).toBe(1);
  });

  it("overwrites the slots of a worker that registers again, whatever it still has", async () => {
    const place = await openPlace();
    const worker = await registered(place, "2");
    const client = await greeted(place.url);
    for (let i = 1; i <= 8; i++) await client.send(E, V, TRACKEXEC, id8(i), PING, E);
    await worker.next();
    await worker.next();
    await worker.register("3");
    const ids = [await worker.next(), await worker.next(), await worker.next()].map(([, , , id]) => id);
    expect(ids).toEqual([id8(3), id8(4), id8(5)]);
    expect(freeOf(place, worker)).toBe(0);
    // The two from before take no slot any more: their end frees none.
    for (const id of [id8(1), id8(2)]) await worker.send(client.identity, E, V, RESPONSE, id, E);
    expect([(await client.next())[3], (await client.next())[3]]).toEqual([id8(1), id8(2)]);
    expect(worker.got).toEqual([]);
    await worker.send(client.identity, E, V, RESPONSE, id8(3), E);
    expect((await worker.next())[3]).toBe(id8(6));
    expect(place.setup.broker.core.state.workers.values().next().value?.profile.total.slots).toBe(3);
  });

  it("ignores DEREGISTER and INCREMENT of a worker that it does not know", async () => {
    const place = await openPlace();
    const stranger = await greeted(place.url);
    await stranger.send(E, V, EXEC, "WORKER", DEREGISTER, E);
    await stranger.send(E, V, EXEC, "0x01000000", INCREMENT, E);
    await stranger.greet();
    expect(place.listener.server.workers()).toEqual([]);
  });

  it("lets a worker that deregisters answer what it has, and gives it nothing more", async () => {
    const place = await openPlace();
    const worker = await registered(place, "1");
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), PING, E);
    await client.send(E, V, TRACKEXEC, id8(2), PING, E);
    await worker.next();
    await worker.send(E, V, EXEC, "WORKER", DEREGISTER, E);
    await until("it is out of the table", () => place.listener.server.workers().length === 0);
    await worker.send(client.identity, E, V, RESPONSE, id8(1), E);
    expect((await client.next())[3]).toBe(id8(1));
    await until("it is gone", () => place.setup.broker.core.state.workers.size === 0);
    expect(worker.got).toEqual([]);
    await worker.register();
    expect((await worker.next())[3]).toBe(id8(2));
  });

  it("is given messages again where it registers before it has answered", async () => {
    const place = await openPlace();
    const worker = await registered(place, "1");
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), PING, E);
    await worker.next();
    await worker.send(E, V, EXEC, "WORKER", DEREGISTER, E);
    await until("it is out of the table", () => place.listener.server.workers().length === 0);
    await worker.register("1");
    await client.send(E, V, TRACKEXEC, id8(2), PING, E);
    expect((await worker.next())[3]).toBe(id8(2));
  });

  it("refuses slots that are no number, and takes those that end with a zero byte", async () => {
    const place = await openPlace();
    const worker = await greeted(place.url);
    for (const slots of ["many", "-1", "", "99999999999", "1.5"]) {
      await worker.send(E, V, TRACKEXEC, "0x00000000", REGISTER, slots, E);
      expect(await worker.next()).toEqual([E, V, RESPONSE, "0x00000000", FAILURE, E]);
    }
    expect(place.listener.server.workers()).toEqual([]);
    await worker.send(E, V, TRACKEXEC, "0x00000000", REGISTER, "0x313000", E);
    await worker.next();
    expect(place.listener.server.workers()[0]?.slots).toBe(10);
  });

  it("waits a moment before the first message, because the worker installs its commands after the answer", async () => {
    const place = await openPlace({ settleMs: 2_000 });
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), PING, E);
    const worker = await greeted(place.url);
    await worker.register();
    expect(place.setup.broker.core.state.workers.size).toBe(0);
    expect((await worker.next())[3]).toBe(id8(1));
  });
});

describe("a worker that dies", () => {
  it("is noticed at once: its TRACKEXEC is answered with the status failure, its EXEC logged", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), PING, E);
    await client.send(E, V, EXEC, id8(2), PING, E);
    await worker.next();
    await worker.next();
    worker.close();
    const answer = await client.next();
    expect(answer.slice(0, 6)).toEqual([E, V, RESPONSE, id8(1), FAILURE, E]);
    expect(place.listener.server.workers()).toEqual([]);
    await until("the EXEC is in the log", () => place.logged.some(({ text }) => text.startsWith("an EXEC was lost")));
  });

  it("comes back with its next PING, since it never registers twice by itself", async () => {
    const place = await openPlace();
    const worker = await registered(place, "4");
    worker.close();
    await until("it is set aside", () => place.listener.server.workers().length === 0);
    const again = await greeted(place.url, worker.identity);
    await until("it is back", () => place.listener.server.workers()[0]?.slots === 4);
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), PING, E);
    expect((await again.next())[3]).toBe(id8(1));
  });

  it("comes back though it says nothing, as an original whose connection broke does", async () => {
    const place = await openPlace();
    const worker = await registered(place, "4");
    worker.close();
    await until("it is set aside", () => place.listener.server.workers().length === 0);
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), PING, E);
    const again = new LiteralPeer(place.url, worker.identity);
    expect((await again.next())[3]).toBe(id8(1));
    expect(place.listener.server.workers()[0]?.slots).toBe(4);
  });

  it("is known to a broker that was started again, unless it has deregistered", async () => {
    const before = await openPlace();
    const port = Number(new URL(before.url).port);
    const [worker, other] = [await registered(before, "4"), await registered(before, "5")];
    await other.send(E, V, EXEC, "WORKER", DEREGISTER, E);
    await until("one is left", () => before.listener.server.workers().length === 1);
    await before.listener.close();
    await before.setup.broker.stop();
    const place = await openPlace({ port, broker: { dir: join(before.setup.dir, "data") } });
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), PING, E);
    // Both sockets connect again by themselves.
    expect((await worker.next())[3]).toBe(id8(1));
    expect(place.listener.server.workers().map(({ address, slots }) => [address, slots])).toEqual([
      [worker.identity, 4],
    ]);
    expect(other.got).toEqual([]);
  });

  it("does not come back by a PING after it has deregistered", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    await worker.send(E, V, EXEC, "WORKER", DEREGISTER, E);
    await until("it is out", () => place.listener.server.workers().length === 0);
    worker.close();
    // The socket closes when its own thread gets to it, and until then its name is taken.
    await until("its connection is gone", () => [...place.conversations.all()].length === 0);
    await greeted(place.url, worker.identity);
    expect(place.listener.server.workers()).toEqual([]);
  });

  it("hears PONG before the messages that wait for it", async () => {
    const place = await openPlace();
    const worker = await registered(place, "4");
    worker.close();
    await until("it is set aside", () => place.listener.server.workers().length === 0);
    const client = await greeted(place.url);
    for (let i = 1; i <= 3; i++) await client.send(E, V, TRACKEXEC, id8(i), PING, E);
    // greet() fails if anything else comes first.
    const again = await greeted(place.url, worker.identity);
    for (let i = 1; i <= 3; i++) expect((await again.next())[3]).toBe(id8(i));
  });
});

describe("a client whose connection broke", () => {
  it("gets its answer on the next one, though it says nothing there", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), PING, E);
    await worker.next();
    client.close();
    const present = (): number => [...place.conversations.all()].length;
    await until("it is gone", () => present() === 1);
    // As its socket does by itself: the same identity, and no handshake, for it had one.
    const again = new LiteralPeer(place.url, client.identity);
    await until("it is there again", () => present() === 2);
    await worker.send(client.identity, E, V, RESPONSE, id8(1), E);
    expect(await again.next()).toEqual([E, V, RESPONSE, id8(1), E, worker.identity]);
  });
});

describe("a worker whose heartbeats stop", () => {
  it("is set aside, and comes back with its next PING", async () => {
    const place = await openPlace({ patience: { defaultIntervalMs: 100, minTimeoutMs: 300 } });
    const worker = await registered(place, "2");
    const quiet = await registered(place, "1");
    for (let i = 0; i < 3; i++) await worker.greet();
    await until("it is set aside", () =>
      place.listener.server.workers().every(({ address }) => address !== worker.identity),
    );
    // One that never had heartbeats cannot lose them.
    expect(place.listener.server.workers().map(({ address }) => address)).toEqual([quiet.identity]);
    await worker.greet();
    expect(place.listener.server.workers().length).toBe(2);
  });

  it("is known by its own rhythm once that is known, and by the usual one before", () => {
    const rhythm = new HeartbeatMonitor(0);
    expect(rhythm.expired(1_000_000_000)).toBe(false);
    rhythm.pinged(0);
    rhythm.pinged(1_000);
    expect(rhythm.expired(300_000)).toBe(false);
    expect(rhythm.expired(362_000)).toBe(true);
    for (let at = 2_000; at <= 60_000; at += 20_000) rhythm.pinged(at);
    rhythm.pinged(62_000);
    expect(rhythm.expired(62_000 + 59_000)).toBe(false);
    expect(rhythm.expired(62_000 + 61_000)).toBe(true);
    rhythm.received(100_000);
    expect(rhythm.expired(159_000)).toBe(false);
  });
});

describe("a request without an answer", () => {
  it("ends with the status failure, and its slot is free; a late INCREMENT of it is swallowed", async () => {
    const place = await openPlace({ settings: { requestTimeoutMs: 3_000 } });
    const worker = await registered(place, "1");
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), "foo", E);
    await worker.next();
    expect((await client.next()).slice(0, 6)).toEqual([E, V, RESPONSE, id8(1), FAILURE, E]);
    expect(freeOf(place, worker)).toBe(1);
    await client.send(E, V, EXEC, id8(2), PING, E);
    await worker.next();
    await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
    await worker.greet();
    expect(freeOf(place, worker)).toBe(0);
  });

  it("leaves one late INCREMENT to be swallowed for each slot, however many were refused", () => {
    const expected = new ExpectedIncrements();
    for (let refused = 0; refused < 5; refused++) expected.add(60_000, 2);
    expect([expected.take(), expected.take(), expected.take()]).toEqual([true, true, false]);
  });

  it("gets one RESPONSE: what the worker answers after the refusal is dropped", async () => {
    const place = await openPlace({ settings: { requestTimeoutMs: 300 } });
    const worker = await registered(place, "1");
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), "foo", E);
    await worker.next();
    expect((await client.next()).slice(0, 6)).toEqual([E, V, RESPONSE, id8(1), FAILURE, E]);
    await worker.send(client.identity, E, V, RESPONSE, id8(1), "late", E);
    // Its answer to a PING shows that the server has read what came before.
    await worker.greet();
    // The same id again, as a client that counts from the beginning again has it, is another request.
    await client.send(E, V, TRACKEXEC, id8(1), "foo", E);
    await worker.next();
    await worker.send(client.identity, E, V, RESPONSE, id8(1), "in time", E);
    expect(await client.next()).toEqual([E, V, RESPONSE, id8(1), "in time", E, worker.identity]);
    await client.greet();
  });

  it("gets one RESPONSE, also where its worker was lost and comes back with the answer", async () => {
    const place = await openPlace();
    const worker = await registered(place, "1");
    const client = await greeted(place.url);
    await client.send(E, V, TRACKEXEC, id8(1), "foo", E);
    await worker.next();
    worker.close();
    expect((await client.next()).slice(0, 6)).toEqual([E, V, RESPONSE, id8(1), FAILURE, E]);
    const again = await greeted(place.url, worker.identity);
    await again.send(client.identity, E, V, RESPONSE, id8(1), "late", E);
    await again.greet();
    await client.greet();
  });

  it("is refused at once where the queue is full", async () => {
    const place = await openPlace({ broker: { settings: { maxWaitingRequests: 2 } } });
    const client = await greeted(place.url);
    for (let i = 1; i <= 3; i++) await client.send(E, V, TRACKEXEC, id8(i), PING, E);
    const [, , , id, status] = await client.next();
    expect([id, status]).toEqual([id8(3), FAILURE]);
    await client.send(E, V, EXEC, id8(4), PING, E);
    await until("the EXEC is in the log", () => place.logged.some(({ text }) => text.startsWith("an EXEC was lost")));
  });

  it("to a worker that is gone is answered with the status failure", async () => {
    const place = await openPlace();
    const client = await greeted(place.url);
    await client.send("nobody", E, V, TRACKEXEC, id8(1), "ongoing", "x", E);
    expect(await client.next()).toEqual([E, V, RESPONSE, id8(1), FAILURE, E, "nobody"]);
    await client.send("nobody", E, V, PING, id8(2), E);
    await client.greet();
  });

  it("ends with an aborted stream where a packet is waited for: the original reads on past the end of a status", async () => {
    const place = await openPlace({ broker: { settings: { maxWaitingRequests: 1 } } });
    const client = await greeted(place.url);
    await client.send("nobody", E, V, TRACKEXEC, id8(1), "mqs_more", "STREAM_ID", id8(7), "0", E);
    expect(await client.next()).toEqual([E, V, RESPONSE, id8(1), ABORTED, E, "nobody"]);
    const stream = [STREAM, "STREAM_ID", "1024", E] as const;
    for (const id of ["0x02000000", "0x03000000"]) await client.send(E, V, TRACKEXEC, id, ...stream);
    expect((await client.next()).slice(2, 6)).toEqual([RESPONSE, "0x03000000", ABORTED, E]);
    const worker = await registered(place);
    await worker.next();
    worker.close();
    expect((await client.next()).slice(2, 6)).toEqual([RESPONSE, "0x02000000", ABORTED, E]);
  });
});

describe("names", () => {
  it("a server knows itself by the text that each peer connects with", async () => {
    const place = await openPlace();
    const port = Number(place.url.split(":").at(-1));
    for (const url of [`tcp://localhost:${port}`, `tcp://127.0.0.1:${port}`]) await greeted(url);
  });

  it("or by the names that were given, the first where none fits", async () => {
    const place = await openPlace({ settings: { identities: ["tcp://queue:6714", "tcp://other:6714"] } });
    const port = Number(place.url.split(":").at(-1));
    const { serverIdentityFor: nameFor } = await import("../../../src/protocols/round-robin/broker/listener.js");
    const names = ["tcp://queue:6714", "tcp://other:6714"];
    expect(nameFor(Buffer.from("tcp://other:6714:12"), names, place.url)).toBe("tcp://other:6714");
    expect(nameFor(Buffer.from(`tcp://127.0.0.1:${port}:12`), names, place.url)).toBe("tcp://queue:6714");
    expect(nameFor(Buffer.from("\0abcd", "latin1"), [], place.url)).toBe(place.url);
    // Through another name for the same port, as a forwarded one would be.
    await new LiteralPeer(place.url, "tcp://other:6714:12", "tcp://other:6714").greet();
    await new LiteralPeer(place.url, "somebody", "tcp://queue:6714").greet();
  });
});
