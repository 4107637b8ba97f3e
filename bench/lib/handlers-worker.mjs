/** laboro's worker with typed handlers: `handlers-worker.mjs URL TOKEN SLOTS inline|threads`. */
import { startWorker } from "../../dist/entries/worker.js";
import { incremented } from "./handlers.mjs";

const [broker, token, slots, how] = process.argv.slice(2);
const worker = startWorker({ broker, token, slots: Number(slots) });
if (how === "threads") await worker.handle(new URL("handlers.mjs", import.meta.url));
else worker.handle(incremented);
process.on("SIGTERM", () => worker.stop().then(() => process.exit(0)));
