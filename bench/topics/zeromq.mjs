/** What a message costs by the zeromq package and by ZMTP in TypeScript: an echo, 64 in flight. */
import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";
import { metered } from "../lib/usage.mjs";

const REQUESTER = fileURLToPath(new URL("../lib/requester.mjs", import.meta.url));
const END = fileURLToPath(new URL("../lib/zeromq-end.mjs", import.meta.url));
const NAMES = {
  plain: "TypeScript",
  zeromq: "zeromq package",
  "plain-curve": "TypeScript, CURVE",
  "zeromq-curve": "zeromq package, CURVE",
};
const PAIRS = ["", "-curve"].flatMap((keys) =>
  ["plain", "zeromq"].flatMap((server) => ["plain", "zeromq"].map((peer) => [server + keys, peer + keys])),
);

export const zeromq = {
  name: "zeromq",
  title: "ZeroMQ: an echo of 64 B between two processes, 64 in flight",
  note: "ROUTER and DEALER. Each answer is two messages through each of them.",
  async contestants({ scale }) {
    const list = [];
    const stops = [];
    for (const [server, peer] of PAIRS) {
      const router = startModule(END, ["router", server]);
      const [, url] = await router.says(/listening on (\S+)/);
      const requester = startModule(REQUESTER, ["zeromq", peer, url]);
      await requester.ask({ inFlight: 64, count: 5_000 });
      stops.push(
        () => requester.stop(),
        () => router.stop(),
      );
      list.push({
        about: `router: ${NAMES[server]}`,
        who: `dealer: ${NAMES[peer]}`,
        measure: async () => {
          const count = scale(100_000);
          let figures;
          const { cpu } = await metered({ router }, async () => {
            figures = await requester.ask({ inFlight: 64, count });
          });
          return { "req/s": figures["req/s"], "router CPU µs": cpu.router / count };
        },
      });
    }
    return {
      list,
      stop: async () => {
        for (const stop of stops) await stop();
      },
    };
  },
};
