/** Requests to an echo service in another process, 64 B each way. */
import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";
import { startLaboro } from "../lib/laboro.mjs";
import { metered } from "../lib/usage.mjs";
import { nats } from "../peers/nats.mjs";
import { tcpEcho } from "../peers/tcp-echo.mjs";

const REQUESTER = fileURLToPath(new URL("../lib/requester.mjs", import.meta.url));
const CASES = [
  { about: "1 worker, 1 in flight", workers: 1, inFlight: 1, count: 4_000 },
  { about: "1 worker, 64 in flight", workers: 1, inFlight: 64, count: 60_000 },
  { about: "4 workers, 1 in flight", workers: 4, inFlight: 1, count: 4_000 },
  { about: "4 workers, 64 in flight", workers: 4, inFlight: 64, count: 60_000 },
];

export const requests = {
  name: "requests",
  title: "Requests and answers, 64 B",
  note: "Client, broker and each worker are processes of their own. laboro's workers offer 64 slots.",
  targets: [
    ...["NATS, nats.js", "NATS, nats.js noAsyncTraces"].map((than) => ({ figure: "req/s", than, least: 1 })),
    ...CASES.filter(({ inFlight }) => inFlight > 1).map(({ about }) => ({ about, figure: "broker CPU µs", most: 9 })),
  ],
  async contestants({ scale }) {
    const list = [];
    const stops = [];
    for (const { about, workers, inFlight, count } of CASES) {
      const drive = { inFlight, count: scale(count) };
      const ours = await echoes(workers);
      stops.push(ours.stop);
      list.push({ about, who: "laboro", measure: () => ours.measure(drive) });
      for (const peer of [nats, tcpEcho]) {
        if (!peer.available() || workers > peer.mostWorkers) continue;
        for (const variant of await peer.start(workers)) {
          stops.push(variant.stop);
          list.push({ about, who: variant.who, measure: () => variant.measure(drive) });
        }
      }
    }
    return {
      list,
      stop: async () => {
        for (const stop of stops) await stop();
      },
    };
  },
};

async function echoes(workers) {
  const laboro = await startLaboro();
  let echo;
  for (let i = 0; i < workers; i++) echo = await laboro.echoWorker(64);
  const requester = startModule(REQUESTER, ["laboro", laboro.url, laboro.token]);
  await requester.ask({ inFlight: 64, count: 5_000 });
  return {
    measure: async (drive) => {
      let figures;
      const { cpu } = await metered({ broker: laboro.broker, worker: echo, client: requester }, async () => {
        figures = await requester.ask(drive);
      });
      const each = Object.fromEntries(["broker", "client"].map((name) => [`${name} CPU µs`, cpu[name] / drive.count]));
      return { ...figures, ...each, "worker CPU µs": (cpu.worker * workers) / drive.count };
    },
    stop: async () => {
      await requester.stop();
      await laboro.stop();
    },
  };
}
