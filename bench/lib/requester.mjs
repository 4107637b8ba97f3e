/**
 * The client side as a process: `requester.mjs KIND …`. For each message `{ inFlight, count }` it sends `count` requests and
 * replies with rate and latencies.
 */
import { percentile } from "./figures.mjs";

let body = Buffer.alloc(64, "x");
const [kind, ...rest] = process.argv.slice(2);
const CLIENTS = {
  laboro: async (broker, token) => {
    const { connect } = await import("../../dist/entries/client.js");
    const client = await connect({ broker, token });
    return () => client.request("echo", body);
  },
  nats: async (port, quick) => (await import("../peers/nats-ends.mjs")).openClient(port, quick === "quick", body),
  "round-robin": async (ends, url, bytes) => {
    body = body.subarray(0, Number(bytes));
    return (await import("./rr-ends.mjs")).openClient(ends, url, body);
  },
  zeromq: async (ends, url) => (await import("./zeromq-end.mjs")).openClient(ends, url, body),
  tcp: async (port) => (await import("../peers/tcp-ends.mjs")).openClient(port, body),
};

const ready = CLIENTS[kind](...rest);

process.on("message", async ({ inFlight, count }) => {
  try {
    const request = await ready;
    const times = new Float64Array(count);
    let sent = 0;
    const one = async () => {
      while (sent < count) {
        const number = sent++;
        const begin = performance.now();
        const answer = await request();
        if (answer.length !== body.length) throw new Error(`${answer.length} bytes came back`);
        times[number] = performance.now() - begin;
      }
    };
    const begin = performance.now();
    await Promise.all(Array.from({ length: inFlight }, one));
    const seconds = (performance.now() - begin) / 1_000;
    process.send({ "req/s": count / seconds, "p50 ms": percentile(times, 0.5), "p99 ms": percentile(times, 0.99) });
  } catch (cause) {
    process.send({ error: cause.stack });
  }
});
process.on("SIGTERM", () => process.exit(0));
process.on("disconnect", () => process.exit(0));
