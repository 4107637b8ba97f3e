/** laboro's worker as a process: `echo-worker.mjs URL TOKEN SLOTS`. Its services return their body (`echo`) or nothing (`nothing`). */
import { startWorker } from "../../dist/entries/worker.js";

const [broker, token, slots] = process.argv.slice(2);
const worker = startWorker({
  broker,
  token,
  slots: Number(slots),
  services: { echo: (body) => body, nothing: () => undefined },
});
process.on("SIGTERM", () => worker.stop().then(() => process.exit(0)));
