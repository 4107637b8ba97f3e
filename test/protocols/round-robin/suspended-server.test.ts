/** The server's process is suspended for longer than its workers may be silent. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { Launched } from "../../support/launched.js";
import { sleep, until } from "../../support/wait.js";
import { atEnd, E, greeted, PING, RESPONSE, TRACKEXEC, V } from "./place.js";

const PROGRAM = fileURLToPath(new URL("server-process.mjs", import.meta.url));
/** A worker that is silent for this long is set aside. */
const TIMEOUT_MS = 400;
const HEARTBEAT_MS = 50;

it("sets no worker aside after a suspension of its own, so that no request is refused", async () => {
  const dir = mkdtempSync(join(tmpdir(), "laboro-test-"));
  atEnd(async () => rmSync(dir, { recursive: true, force: true }));
  const limits = JSON.stringify({ defaultIntervalMs: TIMEOUT_MS / 3, minTimeoutMs: TIMEOUT_MS });
  const server = new Launched("server", [PROGRAM, join(dir, "data"), limits], { env: process.env });
  atEnd(() => server.end("SIGKILL"));
  await server.says("listening on ");
  const [, url = ""] = /listening on (\S+);/.exec(server.said) ?? [];

  const worker = await greeted(url);
  await worker.register();
  const heartbeats = setInterval(() => void worker.send(E, V, PING, "beat", E), HEARTBEAT_MS);
  atEnd(async () => clearInterval(heartbeats));
  // From then on the server knows their interval.
  await until("six of them are answered", () => worker.got.length >= 6);
  const client = await greeted(url);
  await client.send(E, V, TRACKEXEC, "request1", "foo", E);
  let got = await worker.next();
  while (got[2] !== TRACKEXEC) got = await worker.next();

  server.signal("SIGSTOP");
  await sleep(5 * TIMEOUT_MS);
  server.signal("SIGCONT");
  // Heartbeats are checked ten times within the timeout.
  await sleep(TIMEOUT_MS / 2);
  await worker.send(client.identity, E, V, RESPONSE, "request1", "done", E);
  expect(await client.next()).toEqual([E, V, RESPONSE, "request1", "done", E, worker.identity]);
});
