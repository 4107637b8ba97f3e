/** Requests by the round-robin protocol, beside laboro's own link and NATS. */
import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";
import { startLaboro } from "../lib/laboro.mjs";
import { metered } from "../lib/usage.mjs";
import { nats } from "../peers/nats.mjs";

const REQUESTER = fileURLToPath(new URL("../lib/requester.mjs", import.meta.url));
const ENDS = fileURLToPath(new URL("../lib/rr-ends.mjs", import.meta.url));
const SLOTS = 64;
const CASES = [
  { about: "1 worker, 1 in flight", workers: 1, inFlight: 1, count: 4_000 },
  { about: "1 worker, 64 in flight", workers: 1, inFlight: 64, count: 60_000 },
  { about: "4 workers, 1 in flight", workers: 4, inFlight: 1, count: 4_000 },
  { about: "4 workers, 64 in flight", workers: 4, inFlight: 64, count: 60_000 },
];
/** Five times what the original server, worker and client do together. */
const FIVE_TIMES = 11_500;

export const roundRobin = {
  name: "round-robin",
  title: "Requests by the round-robin protocol, 64 B",
  note: "`laboro` is the round-robin listener with laboro's worker and client of this protocol. Peers of the zeromq package are ROUTER sockets in Node, as the original programs have them in C. Client, broker and each worker are processes of their own.",
  targets: CASES.filter(({ inFlight }) => inFlight > 1).map(({ about }) => ({
    figure: "req/s",
    about,
    least: FIVE_TIMES,
  })),
  async contestants({ scale }) {
    const list = [];
    const stops = [];
    for (const { about, workers, inFlight, count } of CASES) {
      const drive = { inFlight, count: scale(count) };
      const add = (who, contestant) => {
        stops.push(contestant.stop);
        list.push({ about, who, measure: () => contestant.measure(drive) });
      };
      add("laboro", await listener("plain", workers, 64));
      add("the listener, TRACKEXEC PING", await listener("plain", workers, 0));
      add("the listener, zeromq package", await listener("zeromq", workers, 64));
      add("laboro's own link", await ownLink(workers));
      if (!nats.available()) continue;
      for (const variant of await nats.start(workers)) add(variant.who, variant);
    }
    return {
      list,
      stop: async () => {
        for (const stop of stops) await stop();
      },
    };
  },
};

async function listener(kind, workers, bytes) {
  const laboro = await startLaboro(["--protocol", "round-robin=127.0.0.1:0"]);
  const [, url] = await laboro.broker.says(/round-robin listens on (\S+)/);
  const ends = Array.from({ length: workers }, () => startModule(ENDS, [kind, url, String(SLOTS)]));
  await laboro.joined(workers);
  return measured(laboro, startModule(REQUESTER, ["round-robin", kind, url, String(bytes)]), ends);
}

async function ownLink(workers) {
  const laboro = await startLaboro();
  for (let i = 0; i < workers; i++) await laboro.echoWorker(SLOTS);
  return measured(laboro, startModule(REQUESTER, ["laboro", laboro.url, laboro.token]), []);
}

async function measured(laboro, requester, ends) {
  await requester.ask({ inFlight: 64, count: 5_000 });
  return {
    measure: async (drive) => {
      let figures;
      const { cpu } = await metered({ broker: laboro.broker }, async () => {
        figures = await requester.ask(drive);
      });
      return { ...figures, "broker CPU µs": cpu.broker / drive.count };
    },
    stop: async () => {
      await requester.stop();
      await Promise.all(ends.map((end) => end.stop()));
      await laboro.stop();
    },
  };
}
