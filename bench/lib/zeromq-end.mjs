/**
 * One end of an echo over ZeroMQ, as a process. `zeromq-end.mjs router KIND` binds a ROUTER and prints its URL; `requester.mjs zeromq KIND URL`
 * sends the requests. KIND is `plain` for ZMTP in TypeScript, `zeromq` for the package.
 */
import { pathToFileURL } from "node:url";

/** Sends a body and receives it back, many at a time, distinguished by a number in front. */
export async function openClient(kind, url, body) {
  const waiting = new Map();
  const onMessage = ([number, answer]) => {
    const key = number.readUInt32LE();
    waiting.get(key)?.(answer);
    waiting.delete(key);
  };
  const send = kind === "plain" ? await plainDealer(url, onMessage) : await packageDealer(url, onMessage);
  let numbers = 0;
  return () =>
    new Promise((resolve) => {
      const number = Buffer.alloc(4);
      number.writeUInt32LE(++numbers);
      waiting.set(numbers, resolve);
      send([number, body]);
    });
}

async function plainDealer(url, message) {
  const { openDealer } = await import("../../dist/protocols/zeromq/index.js");
  let dealer;
  await new Promise((resolve) => {
    openDealer({ url }, { message, opened: resolve }).then((opened) => {
      dealer = opened;
    });
  });
  return (frames) => dealer.send(frames);
}

async function packageDealer(url, message) {
  const { Dealer } = await import("zeromq");
  const socket = new Dealer({ sendHighWaterMark: 0, receiveHighWaterMark: 0 });
  socket.connect(url);
  void (async () => {
    for await (const frames of socket) message(frames);
  })();
  return inTurn((frames) => socket.send(frames));
}

async function router(kind) {
  if (kind === "plain") {
    const { openRouter } = await import("../../dist/protocols/zeromq/index.js");
    const opened = await openRouter(
      { host: "127.0.0.1", port: 0 },
      { message: ({ key }, frames) => opened.send(key, frames) },
    );
    return opened.url;
  }
  const { Router } = await import("zeromq");
  const socket = new Router({ sendHighWaterMark: 0, receiveHighWaterMark: 0 });
  await socket.bind("tcp://127.0.0.1:*");
  const send = inTurn((frames) => socket.send(frames));
  void (async () => {
    for await (const frames of socket) send(frames);
  })();
  return socket.lastEndpoint;
}

/** The package takes one send after the other. */
function inTurn(send) {
  const queue = [];
  let sending = false;
  const pump = async () => {
    sending = true;
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await send(next);
    sending = false;
  };
  return (frames) => {
    queue.push(frames);
    if (!sending) void pump();
  };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [, kind] = process.argv.slice(2);
  console.log(`listening on ${await router(kind)}`);
  process.on("SIGTERM", () => process.exit(0));
  process.on("disconnect", () => process.exit(0));
}
