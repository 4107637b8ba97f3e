/** The text of version 1, rule by rule, with a literal client at the server. docs/reference/protocols/fuq.md lists these tests. */
import { connect } from "node:net";
import { expect, it } from "vitest";
import { until } from "../../../support/wait.js";
import { atEnd, numbered, openV1, openYard } from "./kit.js";
import { ERROR, LiteralClient, OK, STOP } from "./literal-client.js";

async function opened(nproc: number, tasks: number) {
  const yard = await openYard();
  const port = await openV1(yard);
  const client = new LiteralClient(port);
  await client.greet(nproc);
  if (tasks > 0) await yard.client.submit(numbered(tasks));
  return { yard, port, client };
}

it("v1 1., 2. a header of 12 bytes, little-endian; arg0 is the length of what follows", async () => {
  const yard = await openYard();
  const socket = connect(await openV1(yard), "127.0.0.1");
  atEnd(() => socket.destroy());
  let bytes = "";
  socket.setEncoding("hex").on("data", (chunk: string) => {
    bytes += chunk;
  });
  await until("OK(0) comes", () => bytes.length === 24);
  expect(bytes).toBe("47c001000000000000000000");
  for (const part of ["47c001000000", "000002000000"]) socket.write(Buffer.from(part, "hex"));
  await until("OK(2) comes", () => bytes.length === 48);
  expect(bytes.slice(24)).toBe("47c001000000000002000000");
  // UPDATE with 43 bytes, in two parts, and a STOP with the second.
  const update =
    "47c00400000000002b00000085a54a6f62496401a45461736b02a753756363657373c3a6537461747573a4646f6e65a64e65774a6f62c0";
  for (const part of [update.slice(0, 40), `${update.slice(40)}47c007000000000001000000`])
    socket.write(Buffer.from(part, "hex"));
  await until("both are answered", () => bytes.length === 96);
  expect(bytes.slice(48)).toBe("47c00100000000000200000047c008000000000006000000");
});

it("v1 greeting 1-4: OK(0), OK(nproc), OK(nproc), then tasks", async () => {
  const yard = await openYard();
  await yard.client.submit(numbered(1));
  const client = new LiteralClient(await openV1(yard));
  await client.greet(3);
  expect(await client.task()).toMatchObject({ Task: 1 });
});

it("v1 server_loop 1, 2: as many tasks are sent as there are processors", async () => {
  const { yard, client } = await opened(2, 3);
  await client.task();
  await client.task();
  client.send(STOP, 1);
  // Nothing else was sent before this refusal.
  expect((await client.expect(ERROR)).arg0).toBe(6);
  expect((await yard.client.job(1).info()).counters.running).toBe(2);
});

it("v1 server_loop 3: JOB_QUEUED", async () => {
  const { yard, client } = await opened(1, 0);
  await yard.client.submit(numbered(1));
  expect(await client.task()).toMatchObject({ Task: 1 });
});

it("v1 server_loop 3: UPDATE is recorded, answered with OK(nproc), and the next JOB follows", async () => {
  const { yard, client } = await opened(2, 3);
  const task = await client.task();
  await client.task();
  client.update(task);
  expect((await client.expect(OK)).arg0).toBe(1);
  expect((await yard.client.job(1).info()).counters.succeeded).toBe(1);
  expect(await client.task()).toMatchObject({ Task: 3 });
});

it("v1 server_loop 3: STOP_REQUEST(n) and STOP_IMMED", async () => {
  const { yard, client } = await opened(3, 0);
  const [{ id } = { id: "" }] = await yard.client.workers();
  await yard.client.stopWorker(id, { slots: 2 });
  expect((await client.expect(STOP)).arg0).toBe(2);
  await yard.client.stopWorker(id, { now: true });
  expect((await client.expect(STOP)).arg0).toBe(0xffff_ffff);
});

it("v1 server_loop 3: DISCONNECT, after which the tasks are others'", async () => {
  const { port, client } = await opened(1, 1);
  const task = await client.task();
  client.cut();
  const other = new LiteralClient(port);
  await other.greet(1);
  expect(await other.task()).toEqual(task);
});

it("v1 ERROR from the client: its newest JOB goes out again", async () => {
  const { client } = await opened(1, 1);
  const task = await client.task();
  client.send(ERROR, 5);
  expect(await client.task()).toEqual(task);
});
