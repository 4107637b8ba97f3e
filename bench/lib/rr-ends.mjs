/**
 * Client and worker of the round-robin protocol. `plain` are laboro's, `zeromq` are ROUTER sockets of the zeromq package with
 * ROUTER_MANDATORY, as the original programs have. As a process, `rr-ends.mjs KIND URL SLOTS` is a worker that answers `echo` and PING.
 */
import { pathToFileURL } from "node:url";

const EMPTY = Buffer.alloc(0);
const VERSION = Buffer.from("LMQv100");
const PING = Buffer.from([1]);
const EXEC = Buffer.from([3]);
const TRACKEXEC = Buffer.from([4]);
const RESPONSE = Buffer.from([6]);
const INCREMENT = Buffer.from([7]);
const REGISTER = Buffer.from([8]);
const ECHO = Buffer.from("echo");

/** Sends requests: `echo` with a body, or PING if that is empty. */
export async function openClient(kind, url, body) {
  const args = body.length === 0 ? [PING] : [ECHO, body];
  if (kind === "plain") {
    const { RoundRobinClient } = await import("../../dist/protocols/round-robin/worker/worker.js");
    const client = await RoundRobinClient.open({ url });
    await client.whenReady();
    return async () => (await client.trackexec(...args)).args[0] ?? EMPTY;
  }
  const waiting = new Map();
  const send = await zeromqPeer(url, ([, , command, id, ...rest]) => {
    if (command?.[0] !== RESPONSE[0]) return;
    const key = id.readUInt32LE();
    waiting.get(key)?.(rest.length > 2 ? rest[0] : EMPTY);
    waiting.delete(key);
  });
  let ids = 0;
  return () =>
    new Promise((resolve) => {
      const id = Buffer.alloc(8);
      id.writeUInt32LE(++ids);
      waiting.set(ids, resolve);
      send([EMPTY, VERSION, TRACKEXEC, id, ...args, EMPTY]);
    });
}

async function worker(kind, url, slots) {
  if (kind === "plain") {
    const { RoundRobinWorker } = await import("../../dist/protocols/round-robin/worker/worker.js");
    const one = await RoundRobinWorker.open({ url, slots, commands: { echo: (args) => args } });
    await one.register();
    return;
  }
  const send = await zeromqPeer(url, ([, , command, id, what, ...rest]) => {
    if (command?.[0] !== TRACKEXEC[0]) return;
    const client = rest.pop();
    rest.pop();
    send([client, EMPTY, VERSION, RESPONSE, id, ...(what.equals(PING) ? [] : rest), EMPTY]);
    send([EMPTY, VERSION, EXEC, id, INCREMENT, EMPTY]);
  });
  send([EMPTY, VERSION, TRACKEXEC, Buffer.alloc(4), REGISTER, Buffer.from(String(slots)), EMPTY]);
}

/** Connects, waits for the first answer and returns a function that sends. The package allows one send at a time. */
async function zeromqPeer(url, onMessage) {
  const { Router } = await import("zeromq");
  const routingId = `${url}:${Math.ceil(Math.random() * 1_000_000)}`;
  const socket = new Router({
    routingId,
    mandatory: true,
    sendTimeout: 0,
    sendHighWaterMark: 0,
    receiveHighWaterMark: 0,
  });
  socket.connect(url);
  const queue = [];
  let sending = false;
  const send = (frames) => {
    queue.push(frames);
    if (!sending) void pump();
  };
  const pump = async () => {
    sending = true;
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await socket.send([url, ...next]);
    sending = false;
  };
  const ping = [EMPTY, VERSION, PING, Buffer.alloc(8), EMPTY];
  for (;;) {
    try {
      await socket.send([url, ...ping]);
      break;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  await socket.receive();
  void (async () => {
    for await (const [, ...frames] of socket) onMessage(frames);
  })();
  return send;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [kind, url, slots] = process.argv.slice(2);
  await worker(kind, url, Number(slots));
  process.on("SIGTERM", () => process.exit(0));
  process.on("disconnect", () => process.exit(0));
}
