/**
 * The asking side as a process: `requester.mjs KIND …`. For each message `{ inFlight, count }` it asks that often and
 * answers with what it saw.
 */
import { percentile } from "./figures.mjs";

let body = Buffer.alloc(64, "x");
const [kind, ...rest] = process.argv.slice(2);
const ASKERS = {
  laboro: async (broker, token) => {
    const { connect } = await import("../../dist/entries/client.js");
    const client = await connect({ broker, token });
    return () => client.request("echo", body);
  },
  nats: async (port, quick) => (await import("../peers/nats-ends.mjs")).asker(port, quick === "quick", body),
  "round-robin": async (ends, url, bytes) => {
    body = body.subarray(0, Number(bytes));
    return (await import("./rr-ends.mjs")).asker(ends, url, body);
  },
  zeromq: async (ends, url) => (await import("./zeromq-end.mjs")).asker(ends, url, body),
  tcp: async (port) => (await import("../peers/tcp-ends.mjs")).asker(port, body),
};

const ready = ASKERS[kind](...rest);

process.on("message", async ({ inFlight, count }) => {
  try {
    const ask = await ready;
    const times = new Float64Array(count);
    let asked = 0;
    const one = async () => {
      while (asked < count) {
        const number = asked++;
        const begin = performance.now();
        const answer = await ask();
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
