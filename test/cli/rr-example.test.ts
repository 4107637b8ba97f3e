/**
 * The example at the end of the text of the round-robin queue, command by command, in three processes that run from the first test to the
 * last. docs/reference/protocols/round-robin.md lists these tests.
 */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { E, LiteralServer, RESPONSE, TRACKEXEC, V } from "../protocols/round-robin/place.js";
import { until } from "../support/wait.js";
import { Console, freeUrl } from "./support/rr-console.js";

const temporary = mkdtempSync(join(tmpdir(), "laboro-rr-example-"));
const consoles: Console[] = [];
let at: string;
let server: Console;
let worker: Console;
let client: Console;
/** The portal address of the parent worker. */
let parent: string;

function start(...args: readonly string[]): Console {
  const one = new Console(args, temporary);
  consoles.push(one);
  return one;
}

beforeAll(async () => {
  at = await freeUrl();
  server = start("server", "-d", "1", "--bind", at);
  await server.says("> ");
  worker = start("worker", "-d", "5", "--connect", at);
  client = start("client", "-d", "1", "--connect", at);
  await Promise.all([worker.says("> "), client.says("> ")]);
});

afterAll(() => {
  for (const one of consoles) one.kill("SIGKILL");
  rmSync(temporary, { recursive: true, force: true });
});

it("EXAMPLE: a debug level is required", async () => {
  for (const one of ["server", "worker", "client"].map((program) => start(program))) expect(await one.exit()).toBe(2);
});

it("EXAMPLE: each process has its own set of commands", () => {
  expect(server.said).toMatch(/commands: workers, quit\n/);
  expect(worker.said).toMatch(/commands: register, deregister, bulk, endbulk, quit\n/);
  expect(client.said).toMatch(/commands: ping, pingt, data, bulkping N, bulkdata N, quit\n/);
});

it("WORKER: register adds it to the table", async () => {
  worker.type("register");
  await worker.says(/registered as \S+ with 10 slots\n> $/);
  parent = /registered as (\S+)/.exec(worker.said)?.[1] ?? "";
  expect(parent.startsWith(`${at}:`)).toBe(true);
});

it("SERVER: workers lists the one", async () => {
  server.type("workers");
  const shown = await server.says(/1 worker\n> $/);
  expect(shown).toMatch(new RegExp(`${parent} +10 +10 `));
});

it("CLIENT: pingt is seen by all three, and the passing back by the server", async () => {
  client.type("pingt");
  await client.says(`TRACKEXEC PING was answered by ${parent}\n`);
  await until("the server has seen it", () => server.said.includes("SERVER: TRACKEXEC PING from "));
  const [, asking = ""] = /SERVER: TRACKEXEC PING from (\S+)\n/.exec(server.said) ?? [];
  await server.says(`SERVER: RESPONSE from ${parent}, passed back to ${asking}\n`);
  expect(worker.said).toContain(`WORKER: got TRACKEXEC PING from ${asking}\n`);
});

it("CLIENT: ping is an EXEC", async () => {
  client.type("ping");
  await client.says("EXEC PING was sent");
  await worker.says("got EXEC PING from");
});

it("WORKER: bulk brings ten workers", async () => {
  worker.type("bulk");
  await worker.says("9 child workers are registered, 10 slots each");
});

it("SERVER: workers lists all ten", async () => {
  server.type("workers");
  const shown = await server.says(/10 workers\n> $/);
  expect(shown.match(/^tcp:\S+ +10 +10 /gm)).toHaveLength(10);
});

it("CLIENT: bulkping 100 has progress marks and a summary", async () => {
  client.type("bulkping 100");
  const shown = await client.says(/TYPE +SENT +SUCCEEDED\nPING +100 +100\n/);
  expect(shown).toContain("PING 50 of 100 completed");
});

it("CLIENT: bulkping has up to ten messages in parallel", async () => {
  const literal = await LiteralServer.open();
  const one = start("client", "-d", "0", "--connect", literal.url);
  one.type("bulkping 40");
  const who = await literal.greet();
  const ids: string[] = [];
  for (let sent = 0, most = 0; sent < 40; ) {
    await until("ten are there, or the rest", () => literal.waiting >= Math.min(10, 40 - sent));
    most = Math.max(most, literal.waiting);
    expect(most).toBe(10);
    const [, , , command, id = ""] = await literal.next();
    expect(command).toBe(TRACKEXEC);
    ids.push(id);
    await literal.send(who, E, V, RESPONSE, id, E, "worker");
    sent++;
  }
  await one.says(/PING +40 +40\n/);
  expect(new Set(ids).size).toBe(40);
});

it("CLIENT: bulkdata 100 asks for 1024 bytes each, with progress marks and a summary", async () => {
  client.type("bulkdata 100");
  const shown = await client.says(/TYPE +SENT +SUCCEEDED\nSTREAM +100 +100\n/);
  expect(shown).toContain("STREAM 50 of 100 completed");
  const literal = await LiteralServer.open();
  const one = start("client", "-d", "0", "--connect", literal.url);
  one.type("bulkdata 1");
  await literal.greet();
  expect((await literal.next()).slice(5)).toEqual(["0x0a", "STREAM_ID", "1024", E]);
});

it("WORKER: endbulk shows at level 5 how many messages were passed, and the children deregister", async () => {
  worker.type("endbulk");
  const shown = await worker.says(/together: \d+ messages, \d+ succeeded, 0 failed/);
  expect(shown.match(/^WORKER: tcp:\S+: \d+ messages, \d+ succeeded, 0 failed$/gm)).toHaveLength(9);
  server.type("workers");
  await server.says(/1 worker\n> /);
  expect(server.said.match(/EXEC DEREGISTER from/g)).toHaveLength(9);
});

it("WORKER: deregister takes it out", async () => {
  worker.type("deregister");
  await worker.says("deregistered");
  await until("the server has it", () => server.said.includes(`EXEC DEREGISTER from ${parent}`));
  server.type("workers");
  await server.says("no workers are registered");
});

it("EXAMPLE: level 1 shows basic information, not heartbeats and freed slots", () => {
  expect(server.said).toContain("SERVER: TRACKEXEC REGISTER from ");
  expect(server.said).not.toMatch(/INCREMENT|PONG|: PING/);
});

it("EXAMPLE: level 0 shows errors, and else no more than prompts and results", async () => {
  const url = await freeUrl();
  const quiet = start("server", "-d", "0", "--bind", url);
  await quiet.says("> ");
  const [working, asking] = [
    start("worker", "-d", "0", "--connect", url),
    start("client", "-d", "0", "--connect", url),
  ];
  working.type("register bulk");
  asking.type("pingt ping data bulkping 20");
  await asking.says(/PING +20 +20\n> $/);
  working.type("endbulk deregister quit");
  expect(await working.exit()).toBe(0);
  for (const one of [asking, quiet]) {
    one.type("quit");
    expect(await one.exit()).toBe(0);
  }
  expect(working.said).toMatch(/^(> )+$/);
  expect(asking.said).toMatch(/^(> )+TYPE +SENT +SUCCEEDED\nPING +20 +20\n> $/);
  expect(quiet.said).toMatch(/^(> )+$/);
  const failing = start("client", "-d", "0", "--script", join(temporary, "no script"));
  expect(await failing.exit()).toBe(1);
  expect(failing.said).toContain("CLIENT: ERROR: ");
});

it("EXAMPLE: quit shuts each process down", async () => {
  for (const one of [worker, server, client]) {
    one.type("quit");
    expect(await one.exit()).toBe(0);
  }
  expect(readdirSync(temporary)).toEqual([]);
});
