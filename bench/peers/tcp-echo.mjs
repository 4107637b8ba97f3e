import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";

const ECHO = fileURLToPath(new URL("tcp-ends.mjs", import.meta.url));
const REQUESTER = fileURLToPath(new URL("../lib/requester.mjs", import.meta.url));

export const tcpEcho = {
  mostWorkers: 1,
  available: () => true,
  async start() {
    const echo = startModule(ECHO);
    const { port } = await echo.ask({});
    const requester = startModule(REQUESTER, ["tcp", String(port)]);
    await requester.ask({ inFlight: 64, count: 5_000 });
    return [
      {
        who: "TCP echo, no broker",
        measure: (drive) => requester.ask(drive),
        stop: async () => {
          await requester.stop();
          await echo.stop();
        },
      },
    ];
  },
};
