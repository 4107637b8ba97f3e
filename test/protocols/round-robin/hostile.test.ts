import { describe, expect, it } from "vitest";
import { SeededRandom } from "../../support/random.js";
import { until } from "../../support/wait.js";
import { dealer, raw } from "../zeromq/support.js";
import {
  bytesOf,
  E,
  EXEC,
  FAILURE,
  greeted,
  INCREMENT,
  id8,
  openPlace,
  PING,
  type Place,
  PONG,
  REGISTER,
  RESPONSE,
  registered,
  TRACKEXEC,
  V,
} from "./place.js";

/** The listener does its work as before: a worker and a client find each other. */
async function expectAlive(place: Place): Promise<void> {
  const worker = await registered(place, "1");
  const client = await greeted(place.url);
  await client.send(E, V, TRACKEXEC, id8(77), PING, E);
  const [, , , id] = await worker.next();
  expect(id).toBe(id8(77));
  await worker.send(client.identity, E, V, RESPONSE, id8(77), E);
  expect((await client.next()).slice(0, 5)).toEqual([E, V, RESPONSE, id8(77), E]);
  worker.close();
  await until("the worker is gone", () =>
    place.listener.server.workers().every(({ address }) => address !== worker.identity),
  );
}

const MALFORMED: readonly (readonly [string, readonly string[]])[] = [
  ["one empty frame", [E]],
  ["text", ["hello"]],
  ["another version", [E, "LMQv101", PING, id8(1), E]],
  ["no command", [E, V]],
  ["an empty command", [E, V, E, id8(1), E]],
  ["an unknown command", [E, V, "0x55", id8(1), E]],
  ["a command of two bytes", [E, V, "0x0101", id8(1), E]],
  ["no id", [E, V, TRACKEXEC]],
  ["no last empty frame", [E, V, TRACKEXEC, id8(1), PING]],
  ["a RESPONSE to the server", [E, V, RESPONSE, id8(1), E]],
  ["a PONG that nobody asked for", [E, V, PONG, id8(1), E]],
  ["an address that is nobody's", ["nobody", E, V, RESPONSE, id8(1), E]],
  ["an address and nothing else", ["nobody"]],
  ["an address and another version", ["nobody", E, "LMQv999", PING, id8(1), E]],
  ["INCREMENT of nobody", [E, V, EXEC, id8(1), INCREMENT, E]],
];

describe("malformed messages", () => {
  it("are dropped, each fault said once, and cost nothing", async () => {
    const place = await openPlace();
    const peer = await greeted(place.url);
    for (const [, frames] of MALFORMED) for (let i = 0; i < 20; i++) await peer.send(...frames);
    await peer.greet();
    const warnings = place.logged.filter(({ level }) => level === "warn");
    expect(warnings.map(({ text }) => text.replace(/^a message was dropped: /, "")).sort()).toEqual([
      "RESPONSE 0100000000000000 has no address",
      "RESPONSE for nobody: no such peer is connected",
      "TRACKEXEC without an id or its last empty frame",
      "no command ",
      "no command 0101",
      "no command U",
      "no empty frame",
      "the version is not LMQv100",
    ]);
    await expectAlive(place);
  });

  it("that could be answered are: a TRACKEXEC for nothing fails, and takes no slot", async () => {
    const place = await openPlace();
    const worker = await registered(place, "1");
    const peer = await greeted(place.url);
    for (const nothing of [[], [E]]) {
      await peer.send(E, V, TRACKEXEC, id8(1), ...nothing, E);
      expect(await peer.next()).toEqual([E, V, RESPONSE, id8(1), FAILURE, E]);
      await peer.send(E, V, EXEC, id8(2), ...nothing, E);
    }
    await peer.greet();
    expect(worker.got).toEqual([]);
    expect(place.listener.server.workers()[0]?.freeSlots).toBe(1);
  });

  it("for nobody are one line in the log", async () => {
    const place = await openPlace();
    const peer = await greeted(place.url);
    for (let i = 0; i < 500; i++) await peer.send("nobody", E, V, RESPONSE, id8(i), E);
    await peer.greet();
    expect(place.logged.map(({ text }) => text)).toEqual([
      expect.stringMatching(/for nobody: no such peer is connected$/),
    ]);
  });

  it("an id of 1 MiB is carried there and back", async () => {
    const place = await openPlace();
    const worker = await registered(place);
    const client = await greeted(place.url);
    const id = Buffer.alloc(1024 * 1024, 0x41);
    await client.sendBytes(...[E, V, TRACKEXEC].map(bytesOf), id, bytesOf(PING), bytesOf(E));
    expect((await worker.next())[3]?.length).toBe(id.length);
    await worker.sendBytes(...[client.identity, E, V, RESPONSE].map(bytesOf), id, bytesOf(E));
    expect((await client.next())[3]?.length).toBe(id.length);
    await client.sendBytes(...[E, V, PING].map(bytesOf), id, bytesOf(E));
    expect((await client.next())[3]?.length).toBe(id.length);
    await expectAlive(place);
  });

  it("ids equal to 07, 08 and 09 are ids", async () => {
    const place = await openPlace();
    const worker = await registered(place, "5");
    const client = await greeted(place.url);
    for (const id of ["0x07", "0x08", "0x09"]) {
      await client.send(E, V, TRACKEXEC, id, PING, E);
      expect(await worker.next()).toEqual([E, V, TRACKEXEC, id, PING, E, client.identity]);
      await worker.send(client.identity, E, V, RESPONSE, id, E);
      expect(await client.next()).toEqual([E, V, RESPONSE, id, E, worker.identity]);
    }
    expect(place.listener.server.workers()).toEqual([
      { address: worker.identity, freeSlots: 5, slots: 5, messages: 3 },
    ]);
  });

  it("10,000 frames are dropped and the peer goes on", async () => {
    const place = await openPlace();
    const peer = await greeted(place.url);
    const many = Array.from({ length: 10_000 }, () => "x");
    await peer.send(E, V, TRACKEXEC, id8(1), PING, ...many, E);
    await peer.send(...many);
    await peer.greet();
    await expectAlive(place);
  });

  it("many different commands do not make many services", async () => {
    const place = await openPlace();
    const worker = await registered(place, "100000");
    const client = await greeted(place.url);
    for (let i = 0; i < 1_000; i++) await client.send(E, V, EXEC, id8(i), `command${i}`, E);
    await until("all have come", () => worker.got.length === 1_000);
    const { services } = await place.setup.client.ask("services", {});
    expect(services.length).toBeLessThan(300);
  });

  it("identities that are no text are fine", async () => {
    const place = await openPlace();
    const peer = dealer(place.url, { routingId: Buffer.from([1, 2, 255, 254]).toString("latin1") });
    await peer.send([E, V, bytesOf(TRACKEXEC), "i", bytesOf(REGISTER), "3", E]);
    expect((await peer.receive()).map((frame) => frame.toString("hex"))).toEqual([
      "",
      "4c4d5176313030",
      "06",
      "69",
      "",
    ]);
    await until("it is in the table", () => place.listener.server.workers().length === 1);
  });
});

describe("a peer that says nothing before it asks", () => {
  it("is answered, for it does no handshake", async () => {
    const place = await openPlace();
    await registered(place, "5");
    const client = dealer(place.url);
    await client.send([E, V, bytesOf(PING), "i", E]);
    expect((await client.receive())[2]?.[0]).toBe(2);
  });
});

describe("bytes that are not even ZeroMQ", () => {
  it("end that connection only", async () => {
    const place = await openPlace();
    const port = Number(place.url.split(":").at(-1));
    const random = new SeededRandom();
    for (let i = 0; i < 40; i++) {
      const peer = await raw(port);
      peer.socket.write(random.bytes(random.between(1, 5_000)));
      peer.socket.end();
    }
    await expectAlive(place);
    expect(place.logged.filter(({ level }) => level === "error")).toEqual([]);
    // Once for each code, not once for each connection.
    expect(place.logged.filter(({ level }) => level === "warn").length).toBeLessThan(4);
  });
});

describe("a peer that has said nothing", () => {
  it("is kept messages for, up to a number of bytes", async () => {
    const place = await openPlace();
    const silent = dealer(place.url, { routingId: "silent" });
    await until("it is there", () => [...place.conversations.all()].some(({ peer }) => peer === "silent"));
    const client = await greeted(place.url);
    const body = `0x${"00".repeat(8 * 1024 * 1024)}`;
    for (let i = 1; i <= 8; i++) await client.send("silent", E, V, TRACKEXEC, id8(i), PING, body, E);
    // The first seven are kept; each has a few bytes beside its body.
    expect((await client.next()).slice(0, 4)).toEqual([E, V, RESPONSE, id8(8)]);
    expect(client.got).toEqual([]);
    await silent.send([E, V, bytesOf(PING), bytesOf(id8(1)), E]);
    expect((await silent.receive())[2]).toEqual(bytesOf(PONG));
    for (let i = 1; i <= 7; i++) expect((await silent.receive())[3]).toEqual(bytesOf(id8(i)));
  });
});

describe("a client that floods", () => {
  it("is told that the queue is full, and the broker keeps no more than it may", async () => {
    const place = await openPlace({ broker: { settings: { maxWaitingRequests: 100 } } });
    const client = await greeted(place.url);
    for (let i = 0; i < 1_000; i++) await client.send(E, V, TRACKEXEC, id8(i), PING, E);
    await until("all but those that wait are refused", () => client.got.length === 900);
    expect(client.got.every((frames) => frames[4] === FAILURE)).toBe(true);
    expect(place.setup.broker.core.state.requests.size).toBe(100);
  });
});
