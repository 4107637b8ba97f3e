// A worker by the SDK whose patience with tasks is short. Argument: its options as JSON, with graceMs for all that it stops.
import { startWorker } from "../../dist/entries/worker.js";

const { graceMs, ...options } = JSON.parse(process.argv[2]);
const log = Object.fromEntries(["info", "warn", "error"].map((level) => [level, (_, text) => console.error(text)]));
const worker = startWorker({ ...options, cancelGraceMs: graceMs, log });
process.on("SIGTERM", () => void worker.stop({ graceMs }).then(() => process.exit(0)));
