/** The text of the round-robin queue, rule by rule, with a literal server for our worker and client. docs/reference/protocols/round-robin.md lists these tests. */
import { expect, it } from "vitest";
import {
  RoundRobinClient,
  RoundRobinWorker,
  type RoundRobinWorkerOptions,
} from "../../../src/protocols/round-robin/worker/worker.js";
import {
  atEnd,
  DEREGISTER,
  E,
  EXEC,
  FAILURE,
  INCREMENT,
  id8,
  LiteralServer,
  PING,
  PONG,
  REGISTER,
  RESPONSE,
  STREAM,
  TRACKEXEC,
  V,
} from "./place.js";

async function openWorker(server: LiteralServer, options: Partial<RoundRobinWorkerOptions> = {}) {
  const worker = await RoundRobinWorker.open({ url: server.url, drainMs: 1, ...options });
  atEnd(() => worker.close());
  return worker;
}

/** A registered worker, and its identity. */
async function registeredWorker(server: LiteralServer, options: Partial<RoundRobinWorkerOptions> = {}) {
  const worker = await openWorker(server, options);
  const registering = worker.register();
  const who = await server.welcome();
  await registering;
  return { worker, who };
}

async function openClient(server: LiteralServer) {
  const client = await RoundRobinClient.open({ url: server.url });
  atEnd(() => client.close());
  const ready = client.whenReady();
  const who = await server.greet();
  await ready;
  return { client, who };
}

it("client: it sends to the server alone, and knows of no worker", async () => {
  const server = await LiteralServer.open();
  const { client, who } = await openClient(server);
  const answered = client.trackexec(Buffer.from("any command"), Buffer.from("argument"));
  const [from, ...frames] = await server.next();
  expect([from, ...frames.slice(0, 3), ...frames.slice(4)]).toEqual([
    who,
    E,
    V,
    TRACKEXEC,
    "any command",
    "argument",
    E,
  ]);
  // A server without workers that answers by itself is as good.
  await server.send(who, E, V, RESPONSE, frames[3] ?? "", "answer", E);
  expect((await answered).args.map(String)).toEqual(["answer"]);
});

it("REGISTER: it has the number of slots, ten as all workers", async () => {
  const server = await LiteralServer.open();
  const worker = await openWorker(server);
  const registering = worker.register();
  const who = await server.greet();
  const [from, ...frames] = await server.next();
  expect([from, ...frames.slice(0, 3), ...frames.slice(4)]).toEqual([who, E, V, TRACKEXEC, REGISTER, "10", E]);
  await server.send(who, E, V, RESPONSE, frames[3] ?? "", E);
  await registering;
});

it("REGISTER: the portal address is unique, and begins with the server's", async () => {
  const server = await LiteralServer.open();
  const workers = [await registeredWorker(server), await registeredWorker(server)];
  for (const { who } of workers) expect(who).toMatch(new RegExp(`^${server.url}:\\d+$`));
  expect(workers[0]?.who).not.toBe(workers[1]?.who);
});

it("INCREMENT: it is sent for each task, whether it failed or succeeded", async () => {
  const server = await LiteralServer.open();
  const fails = (): never => {
    throw new Error("on purpose");
  };
  const { who } = await registeredWorker(server, { commands: { fails } });
  for (const [command, answer] of [
    [PING, []],
    ["fails", [FAILURE]],
    ["unknown", [FAILURE]],
  ] as const) {
    await server.send(who, E, V, TRACKEXEC, id8(1), command, E, "client");
    expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(1), ...answer, E]);
    const [from, ...increment] = await server.next();
    expect([from, ...increment.slice(0, 3), ...increment.slice(4)]).toEqual([who, E, V, EXEC, INCREMENT, E]);
    await server.send(who, E, V, EXEC, id8(2), command, E, "client");
    expect((await server.next()).slice(5)).toEqual([INCREMENT, E]);
  }
});

it("process_round_robin_pass(): a response has the client's address on top, behind that those of other hops", async () => {
  const server = await LiteralServer.open();
  const { who } = await registeredWorker(server);
  await server.send(who, E, V, TRACKEXEC, id8(1), PING, E, "client", "another server");
  expect(await server.next()).toEqual([who, "another server", "client", E, V, RESPONSE, id8(1), E]);
});

it("process_round_robin_pass(): what is for one worker has that worker's address on top", async () => {
  const server = await LiteralServer.open();
  const { client, who } = await openClient(server);
  const streaming = client.stream(6);
  const [, , , , id = ""] = await server.next();
  await server.send(who, E, V, RESPONSE, id, "0x3052088877665544332211616263", E, "worker");
  const more = await server.next();
  expect(more.slice(0, 5)).toEqual([who, "worker", E, V, TRACKEXEC]);
  await server.send(who, E, V, RESPONSE, more[5] ?? "", "0x3252088877665544332211646566", E, "worker");
  expect((await streaming).toString()).toBe("abcdef");
});

it("worker: it receives and processes, and responds where that is asked for", async () => {
  const server = await LiteralServer.open();
  const { who } = await registeredWorker(server);
  await server.send(who, E, V, EXEC, id8(1), PING, E, "client");
  expect((await server.next()).slice(5)).toEqual([INCREMENT, E]);
  await server.send(who, E, V, TRACKEXEC, id8(2), STREAM, "STREAM_ID", "5", E, "client");
  const [, to, , , command, id] = await server.next();
  expect([to, command, id]).toEqual(["client", RESPONSE, id8(2)]);
});

it("worker: it is registered when the server's response has come, and not where that is a refusal", async () => {
  const server = await LiteralServer.open();
  const worker = await openWorker(server);
  const refused = expect(worker.register()).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED" });
  const who = await server.greet();
  const [, , , , first = ""] = await server.next();
  expect(worker.registered).toBe(false);
  await server.send(who, E, V, RESPONSE, first, FAILURE, E);
  await refused;
  expect(worker.registered).toBe(false);
  const registering = worker.register();
  const [, , , , second = ""] = await server.next();
  await server.send(who, E, V, RESPONSE, second, E);
  await registering;
  expect(worker.registered).toBe(true);
});

it("worker: at its end it sends DEREGISTER, and what it was given is answered", async () => {
  const server = await LiteralServer.open();
  const { worker, who } = await registeredWorker(server, { drainMs: 30_000 });
  const closing = worker.close();
  expect(await server.next()).toEqual([who, E, V, EXEC, "WORKER", DEREGISTER, E]);
  const [, , , command, id = ""] = await server.next();
  expect(command).toBe(PING);
  await server.send(who, E, V, TRACKEXEC, id8(1), PING, E, "client");
  await server.send(who, E, V, PONG, id, E);
  expect(await server.next()).toEqual([who, "client", E, V, RESPONSE, id8(1), E]);
  await closing;
});
