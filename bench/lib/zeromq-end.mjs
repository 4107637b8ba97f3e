/**
 * One end of an echo over ZeroMQ, as a process. `zeromq-end.mjs router KIND` binds a ROUTER and prints its URL; `requester.mjs zeromq KIND URL`
 * sends the requests. KIND is `plain` for ZMTP in TypeScript, `zeromq` for the package; with `-curve`, with the keys below.
 */
import { pathToFileURL } from "node:url";

const SERVER = {
  publicKey: "NAuVk+/n7pqmj#*99H-7bKQr-(w!SFt^kIYlT7vN",
  secretKey: "/TUi5HYYXCz=Z@nRlLg836%#Uup2Hj]8{RP*.P9I",
};
const CLIENT = {
  publicKey: "r>ep/vj:IvsBAo(YF:N/4bV?Hplc{Agd*$ROgo<-",
  secretKey: "sMM!/.mkU1eff:k5oc6WK+Obn6i0{o(kocTx{qhg",
};
const ofPackage = ({ publicKey, secretKey }) => ({ curvePublicKey: publicKey, curveSecretKey: secretKey });

/** Sends a body and receives it back, many at a time, distinguished by a number in front. */
export async function openClient(kind, url, body) {
  const waiting = new Map();
  const onMessage = ([number, answer]) => {
    const key = number.readUInt32LE();
    waiting.get(key)?.(answer);
    waiting.delete(key);
  };
  const [whose, secured] = kind.split("-");
  const open = whose === "plain" ? plainDealer : packageDealer;
  const send = await open(url, onMessage, secured === "curve");
  let numbers = 0;
  return () =>
    new Promise((resolve) => {
      const number = Buffer.alloc(4);
      number.writeUInt32LE(++numbers);
      waiting.set(numbers, resolve);
      send([number, body]);
    });
}

async function plainDealer(url, message, secured) {
  const { openDealer } = await import("../../dist/protocols/zeromq/index.js");
  let dealer;
  await new Promise((resolve) => {
    const curve = secured ? { ...CLIENT, serverKey: SERVER.publicKey } : undefined;
    openDealer({ url, curve }, { message, opened: resolve }).then((opened) => {
      dealer = opened;
    });
  });
  return (frames) => dealer.send(frames);
}

async function packageDealer(url, message, secured) {
  const { Dealer } = await import("zeromq");
  const keys = secured ? { ...ofPackage(CLIENT), curveServerKey: SERVER.publicKey } : {};
  const socket = new Dealer({ sendHighWaterMark: 0, receiveHighWaterMark: 0, ...keys });
  socket.connect(url);
  void (async () => {
    for await (const frames of socket) message(frames);
  })();
  return inTurn((frames) => socket.send(frames));
}

async function router(kind) {
  const [whose, secured] = kind.split("-");
  if (whose === "plain") {
    const { openRouter } = await import("../../dist/protocols/zeromq/index.js");
    const opened = await openRouter(
      { host: "127.0.0.1", port: 0, curve: secured ? { ...SERVER, known: [CLIENT.publicKey] } : undefined },
      { message: ({ key }, frames) => opened.send(key, frames) },
    );
    return opened.url;
  }
  const { Router } = await import("zeromq");
  const keys = secured ? { ...ofPackage(SERVER), curveServer: true } : {};
  const socket = new Router({ sendHighWaterMark: 0, receiveHighWaterMark: 0, ...keys });
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
