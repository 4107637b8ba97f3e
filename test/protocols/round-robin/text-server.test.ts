/** The text of the round-robin queue, rule by rule, with literal workers and clients at the server. docs/reference/protocols/round-robin.md lists these tests. */
import { expect, it, vi } from "vitest";
import { until } from "../../support/wait.js";
import {
  DEREGISTER,
  E,
  EXEC,
  FAILURE,
  freeOf,
  greeted,
  INCREMENT,
  id8,
  type LiteralPeer,
  openPlace,
  PING,
  type Place,
  REGISTER,
  RESPONSE,
  registered,
  STREAM,
  TRACKEXEC,
  V,
} from "./place.js";

const addresses = (place: Place): string[] => place.listener.server.workers().map(({ address }) => address);

/** The next message's id. */
const nextId = async (peer: LiteralPeer): Promise<string | undefined> => (await peer.next())[3];

/** All that the server had to send to this peer has come when the PONG to a PING has. */
async function expectNothing(peer: LiteralPeer): Promise<void> {
  await peer.greet();
}

it("client: it sends to the server and is answered by the server, as by any other", async () => {
  const place = await openPlace();
  const worker = await registered(place);
  const client = await greeted(place.url);
  await client.send(E, V, TRACKEXEC, id8(1), PING, E);
  await worker.next();
  await worker.send(client.identity, E, V, RESPONSE, id8(1), E);
  // A LiteralPeer takes messages of the server alone.
  expect((await client.next()).slice(0, 5)).toEqual([E, V, RESPONSE, id8(1), E]);
});

it("server: it passes messages both ways as they are", async () => {
  const place = await openPlace();
  const worker = await registered(place);
  const client = await greeted(place.url);
  const frames = [id8(1), "some command", "argument", "0x00ff07", E, "an argument after an empty one", E];
  await client.send(E, V, TRACKEXEC, ...frames);
  expect(await worker.next()).toEqual([E, V, TRACKEXEC, ...frames, client.identity]);
  await worker.send(client.identity, E, V, RESPONSE, id8(1), "answer", E, "0x07", E);
  expect(await client.next()).toEqual([E, V, RESPONSE, id8(1), "answer", E, "0x07", E, worker.identity]);
});

it("server: it reacts to three commands, all others go to a worker", async () => {
  const place = await openPlace();
  const worker = await registered(place, "300");
  const client = await greeted(place.url);
  const bytes = Array.from({ length: 256 }, (_, byte) => `0x${byte.toString(16).padStart(2, "0")}`);
  const others = bytes.filter((byte) => ![INCREMENT, REGISTER, DEREGISTER].includes(byte));
  for (const byte of bytes) await client.send(E, V, EXEC, id8(1), byte, "1", E);
  const readable = (byte: string): string => {
    const text = Buffer.from(byte.slice(2), "hex").toString("latin1");
    return /^[\x20-\x7e]$/.test(text) ? text : byte;
  };
  for (const byte of others) expect((await worker.next())[4]).toBe(readable(byte));
  await expectNothing(worker);
});

it("server: no worker gets more messages than it has free slots", async () => {
  const place = await openPlace();
  const worker = await registered(place, "3");
  const client = await greeted(place.url);
  for (let i = 1; i <= 5; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  await client.greet();
  for (let i = 1; i <= 3; i++) expect(await nextId(worker)).toBe(id8(i));
  await expectNothing(worker);
});

it("REGISTER: the slots and the address are stored", async () => {
  const place = await openPlace();
  const worker = await greeted(place.url);
  await worker.send(E, V, TRACKEXEC, "0x00000000", REGISTER, "7", E);
  await worker.next();
  expect(place.listener.server.workers()).toMatchObject([{ address: worker.identity, freeSlots: 7 }]);
});

it("REGISTER: the portal address in the last frame is the identity, which ZeroMQ puts there", async () => {
  const place = await openPlace();
  const worker = await greeted(place.url);
  // A worker that adds an address by itself is behind another hop: the answer has it in front.
  await worker.send(E, V, TRACKEXEC, "0x00000000", REGISTER, "7", E, "tcp://elsewhere:1");
  expect(await worker.next()).toEqual(["tcp://elsewhere:1", E, V, RESPONSE, "0x00000000", E]);
  expect(addresses(place)).toEqual([worker.identity]);
});

it("REGISTER: at a known address the slots are overwritten", async () => {
  const place = await openPlace();
  const worker = await registered(place, "2");
  const client = await greeted(place.url);
  for (let i = 1; i <= 2; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  for (let i = 1; i <= 2; i++) await worker.next();
  expect(freeOf(place, worker)).toBe(0);
  // A new profile would be compared with every signature.
  const published = vi.spyOn(place.setup.broker.core, "workerChanged");
  await worker.register("5");
  expect(place.listener.server.workers()).toMatchObject([{ address: worker.identity, freeSlots: 5 }]);
  await until("dispatch knows", async () => (await place.setup.client.workers())[0]?.total.slots === 7);
  expect(published).not.toHaveBeenCalled();
});

it("DEREGISTER: the worker at this address is removed", async () => {
  const place = await openPlace();
  const [worker, other] = [await registered(place), await registered(place)];
  await worker.send(E, V, EXEC, "WORKER", DEREGISTER, E);
  await until("it is out of the table", () => addresses(place).join() === other.identity);
  const client = await greeted(place.url);
  for (let i = 1; i <= 4; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  for (let i = 1; i <= 4; i++) expect(await nextId(other)).toBe(id8(i));
  await expectNothing(worker);
});

it("DEREGISTER: of an address that is not there is ignored", async () => {
  const place = await openPlace();
  const worker = await registered(place);
  const stranger = await greeted(place.url);
  await stranger.send(E, V, EXEC, "WORKER", DEREGISTER, E);
  await expectNothing(stranger);
  expect(addresses(place)).toEqual([worker.identity]);
});

it("INCREMENT: the worker at this address has one slot more", async () => {
  const place = await openPlace();
  const [worker, other] = [await registered(place, "2"), await registered(place, "2")];
  const client = await greeted(place.url);
  for (let i = 1; i <= 4; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  for (const one of [worker, other]) for (let i = 0; i < 2; i++) await one.next();
  await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
  await until("one slot is free", () => freeOf(place, worker) === 1);
  expect(freeOf(place, other)).toBe(0);
});

it("INCREMENT: no more slots are free than were registered", async () => {
  const place = await openPlace();
  const worker = await registered(place, "2");
  for (let i = 0; i < 3; i++) await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
  await expectNothing(worker);
  expect(freeOf(place, worker)).toBe(2);
});

it("INCREMENT: that of a message that was answered frees no second slot", async () => {
  const place = await openPlace();
  const worker = await registered(place, "3");
  const client = await greeted(place.url);
  for (const [id, command] of [
    [1, TRACKEXEC],
    [2, EXEC],
    [3, EXEC],
  ] as const) {
    await client.send(E, V, command, id8(id), PING, E);
    await worker.next();
  }
  await worker.send(client.identity, E, V, RESPONSE, id8(1), E);
  await client.next();
  expect(freeOf(place, worker)).toBe(1);
  await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
  await expectNothing(worker);
  expect(freeOf(place, worker)).toBe(1);
});

it("Worker Table 1: the message goes to the least recently used worker", async () => {
  const place = await openPlace();
  const workers = [await registered(place), await registered(place), await registered(place)];
  const client = await greeted(place.url);
  for (let i = 0; i < 9; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  for (let i = 0; i < 9; i++) expect(await nextId(workers[i % 3] as LiteralPeer)).toBe(id8(i));
});

it("Worker Table 2: its free slots are one less", async () => {
  const place = await openPlace();
  const worker = await registered(place, "4");
  const client = await greeted(place.url);
  for (const free of [3, 2, 1, 0]) {
    await client.send(E, V, TRACKEXEC, id8(free), STREAM, "STREAM_ID", "1024", E);
    await worker.next();
    expect(freeOf(place, worker)).toBe(free);
  }
});

it("Worker Table 3: it goes to the bottom, below one that has come meanwhile", async () => {
  const place = await openPlace();
  const first = await registered(place);
  const client = await greeted(place.url);
  await client.send(E, V, EXEC, id8(1), PING, E);
  expect(await nextId(first)).toBe(id8(1));
  const second = await registered(place);
  for (const id of [2, 3]) await client.send(E, V, EXEC, id8(id), PING, E);
  expect(await nextId(second)).toBe(id8(2));
  expect(await nextId(first)).toBe(id8(3));
});

it("Worker Table: a worker without a free slot is passed over until one with a slot is found", async () => {
  const place = await openPlace();
  const [one, two, three] = [await registered(place, "1"), await registered(place, "1"), await registered(place, "3")];
  const client = await greeted(place.url);
  for (let i = 1; i <= 5; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  expect([await nextId(one), await nextId(two)]).toEqual([id8(1), id8(2)]);
  for (const id of [3, 4, 5]) expect(await nextId(three)).toBe(id8(id));
});

it("Worker Table: being looked at without a free slot does not change the order", async () => {
  const place = await openPlace();
  const [one, two] = [await registered(place, "1"), await registered(place, "3")];
  const client = await greeted(place.url);
  for (let i = 1; i <= 3; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  expect(await nextId(one)).toBe(id8(1));
  for (const id of [2, 3]) expect(await nextId(two)).toBe(id8(id));
  await one.send(E, V, EXEC, "0x01000000", INCREMENT, E);
  await until("the first has a slot", () => freeOf(place, one) === 1);
  await client.send(E, V, EXEC, id8(4), PING, E);
  // By the letter it was moved below the second when the third message came.
  expect(await nextId(one)).toBe(id8(4));
});

it("Worker Table: where no worker has a free slot the message waits", async () => {
  const place = await openPlace();
  const [one, two] = [await registered(place, "1"), await registered(place, "0")];
  const client = await greeted(place.url);
  for (let i = 1; i <= 2; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  await client.greet();
  expect(await nextId(one)).toBe(id8(1));
  await expectNothing(one);
  await expectNothing(two);
  await two.register("1");
  expect(await nextId(two)).toBe(id8(2));
});

it("Worker Table: all registered workers are listed with their addresses and free slots", async () => {
  const place = await openPlace();
  const [one, two] = [await registered(place, "1"), await registered(place, "12")];
  const rows = place.listener.server.workers().map(({ address, freeSlots }) => [address, freeSlots]);
  expect(rows).toEqual([
    [one.identity, 1],
    [two.identity, 12],
  ]);
});

it("Processing Queue: messages wait while all workers are at capacity, and before any has come", async () => {
  const place = await openPlace();
  const client = await greeted(place.url);
  for (let i = 1; i <= 3; i++) await client.send(E, V, TRACKEXEC, id8(i), PING, E);
  await client.greet();
  const worker = await registered(place, "2");
  expect([await nextId(worker), await nextId(worker)]).toEqual([id8(1), id8(2)]);
  await expectNothing(worker);
  await worker.send(client.identity, E, V, RESPONSE, id8(1), E);
  expect(await nextId(worker)).toBe(id8(3));
});

it("Processing Queue: it has a limit, and what does not fit is refused", async () => {
  const place = await openPlace({ broker: { settings: { maxWaitingRequests: 2 } } });
  const client = await greeted(place.url);
  for (let i = 1; i <= 3; i++) await client.send(E, V, TRACKEXEC, id8(i), PING, E);
  expect((await client.next()).slice(0, 6)).toEqual([E, V, RESPONSE, id8(3), FAILURE, E]);
});

it("Processing Queue: waiting messages go before a new one, whatever their commands", async () => {
  const place = await openPlace();
  const worker = await registered(place, "1");
  const [client, other] = [await greeted(place.url), await greeted(place.url)];
  const commands = [STREAM, "foo", PING, STREAM, PING];
  for (const [i, command] of commands.entries()) {
    const from = i % 2 === 0 ? client : other;
    await from.send(E, V, EXEC, id8(i), command, E);
    await from.greet();
  }
  for (const i of commands.keys()) {
    expect(await nextId(worker)).toBe(id8(i));
    await client.send(E, V, EXEC, id8(100 + i), PING, E);
    await client.greet();
    await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
  }
  expect(await nextId(worker)).toBe(id8(100));
});

it("Processing Queue: it is looked at without a further message, and not after a second but at once", async () => {
  const place = await openPlace();
  const worker = await registered(place, "1");
  const client = await greeted(place.url);
  for (let i = 1; i <= 30; i++) await client.send(E, V, EXEC, id8(i), PING, E);
  const begin = performance.now();
  for (let i = 1; i <= 30; i++) {
    expect(await nextId(worker)).toBe(id8(i));
    await worker.send(E, V, EXEC, "0x01000000", INCREMENT, E);
  }
  // A look once a second would need 29 s.
  expect(performance.now() - begin).toBeLessThan(20_000);
});

it("process_round_robin_pass(): with an address frame on top the message goes there, and back", async () => {
  const place = await openPlace();
  const [worker, other] = [await registered(place, "1"), await registered(place, "1")];
  const client = await greeted(place.url);
  for (const to of [other, other, worker]) {
    await client.send(to.identity, E, V, TRACKEXEC, id8(5), "ongoing", "30:me", E);
    expect(await to.next()).toEqual([E, V, TRACKEXEC, id8(5), "ongoing", "30:me", E, client.identity]);
    await to.send(client.identity, E, V, RESPONSE, id8(5), "0x1400", E);
    expect(await client.next()).toEqual([E, V, RESPONSE, id8(5), "0x1400", E, to.identity]);
  }
  // No slot was taken.
  expect([freeOf(place, worker), freeOf(place, other)]).toEqual([1, 1]);
});

it("process_round_robin_pass(): the server waits for no response to what it passes on", async () => {
  const place = await openPlace({ settings: { requestTimeoutMs: 200 } });
  const worker = await registered(place);
  const client = await greeted(place.url);
  await client.send(worker.identity, E, V, TRACKEXEC, id8(1), "ongoing", "30:me", E);
  await worker.next();
  await client.send(E, V, TRACKEXEC, id8(2), PING, E);
  await worker.next();
  // The second went by the table and times out; the first does not, and is answered late.
  expect(await nextId(client)).toBe(id8(2));
  await expectNothing(client);
  await worker.send(client.identity, E, V, RESPONSE, id8(1), "0x1400", E);
  expect(await nextId(client)).toBe(id8(1));
});

it("process_round_robin_pass(): a TRACKEXEC for an address where nobody is gets a refusal", async () => {
  const place = await openPlace();
  const client = await greeted(place.url);
  await client.send("nobody", E, V, TRACKEXEC, id8(1), "ongoing", "30:me", E);
  expect(await client.next()).toEqual([E, V, RESPONSE, id8(1), FAILURE, E, "nobody"]);
});

it("worker: who has not registered is given nothing", async () => {
  const place = await openPlace();
  const stranger = await greeted(place.url);
  const client = await greeted(place.url);
  await client.send(E, V, EXEC, id8(1), PING, E);
  await client.greet();
  await expectNothing(stranger);
  const worker = await registered(place);
  expect(await nextId(worker)).toBe(id8(1));
  await expectNothing(stranger);
});

it("worker: REGISTER is answered, and messages follow the answer", async () => {
  const place = await openPlace();
  const client = await greeted(place.url);
  await client.send(E, V, EXEC, id8(1), PING, E);
  await client.greet();
  const worker = await greeted(place.url);
  await worker.send(E, V, TRACKEXEC, "0x09000000", REGISTER, "10", E);
  expect(await worker.next()).toEqual([E, V, RESPONSE, "0x09000000", E]);
  expect(await nextId(worker)).toBe(id8(1));
});

it("worker: DEREGISTER is not answered", async () => {
  const place = await openPlace();
  const worker = await registered(place);
  await worker.send(E, V, EXEC, "WORKER", DEREGISTER, E);
  await expectNothing(worker);
});
