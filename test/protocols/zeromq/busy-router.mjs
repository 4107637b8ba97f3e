/**
 * A CURVE router that reads nothing for a second and a half, while its peer, a process of its own, sends all the time
 * and is killed. The peer reads nothing, so the kernel resets its connection. Argument: the heartbeat of the router.
 */
import { spawn } from "node:child_process";
import { curveKeyPair } from "zeromq";
import { openRouter } from "../../../dist/protocols/zeromq/index.js";

const PEER = `
  const { Dealer } = require("zeromq");
  const [url, publicKey, secretKey, serverKey] = process.argv.slice(1);
  const curve = { curvePublicKey: publicKey, curveSecretKey: secretKey, curveServerKey: serverKey };
  const peer = new Dealer({ ...curve, receiveHighWaterMark: 1, routingId: "peer" });
  peer.connect(url);
  (async () => {
    for (;;) await peer.send("x".repeat(100));
  })();
`;

const pass = (ms) => {
  for (const until = Date.now() + ms; Date.now() < until; );
};

const [server, known] = [curveKeyPair(), curveKeyPair()];
const heartbeatMs = Number(process.argv[2]);
let received = 0;
const listener = {
  message: ({ key }) => {
    if (received++ > 0) return;
    for (let i = 0; i < 50; i++) router.send(key, [Buffer.alloc(100_000)]);
    setTimeout(() => {
      pass(200);
      peer.kill("SIGKILL");
      pass(5 * heartbeatMs);
      console.log("alive");
      setTimeout(() => process.exit(0), 2 * heartbeatMs);
    }, 200);
  },
};
const curve = { ...server, known: [known.publicKey] };
const router = await openRouter({ host: "127.0.0.1", port: 0, heartbeatMs, curve }, listener);
const args = ["-e", PEER, router.url, known.publicKey, known.secretKey, server.publicKey];
const peer = spawn(process.execPath, args, { stdio: "inherit" });
