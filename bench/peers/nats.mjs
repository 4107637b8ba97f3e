/** NATS: nats-server, and nats.js at both ends. */
import { fileURLToPath } from "node:url";
import { start, startModule, which } from "../lib/children.mjs";
import { installed } from "./installed.mjs";
import { freePort } from "./ports.mjs";

const ENDS = fileURLToPath(new URL("nats-ends.mjs", import.meta.url));
const REQUESTER = fileURLToPath(new URL("../lib/requester.mjs", import.meta.url));

export const nats = {
  mostWorkers: Number.POSITIVE_INFINITY,
  available: () => which("nats-server") !== undefined && installed("@nats-io/transport-node"),
  async start(workers) {
    const port = await freePort();
    const server = start(which("nats-server"), ["-a", "127.0.0.1", "-p", String(port)]);
    await server.says(/Server is ready/);
    const echoes = Array.from({ length: workers }, () => startModule(ENDS, [String(port)]));
    await Promise.all(echoes.map((echo) => echo.says(/ready/)));
    const variant = async (who, quick) => {
      const requester = startModule(REQUESTER, ["nats", String(port), quick]);
      await requester.ask({ inFlight: 64, count: 5_000 });
      return { who, measure: (drive) => requester.ask(drive), stop: () => requester.stop() };
    };
    const plain = await variant("NATS, nats.js", "plain");
    const quick = await variant("NATS, nats.js noAsyncTraces", "quick");
    const stop = async () => {
      await plain.stop();
      await Promise.all(echoes.map((echo) => echo.stop()));
      await server.stop();
    };
    return [{ ...plain, stop }, quick];
  },
};
