/** `laboro workers`: lists the workers and their used slots. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import type { WorkerView } from "../lib/result-text.js";
import { type Column, printList } from "../lib/terminal/table.js";
import { stateColour } from "../lib/terminal/terminal.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
}

export function workers(): Command {
  const command = new Command("workers")
    .description("List the workers of the broker, with their slots and resources: in use and in total.")
    .option("--json", "print one JSON document")
    .addHelpText(
      "after",
      "\nStates: ready has a free slot, busy has none, draining gets no new tasks, paused takes none for a while (low memory),\n" +
        "disconnected has lost its connection and may come back, suspended and banned have failed too often.\n\nExamples:\n  laboro workers\n  laboro workers --json | jq '.workers[].name'",
    )
    .action(run);
  return addBrokerOptions(command);
}

const COLUMNS: readonly Column[] = [
  { title: "WORKER", minWidth: 24, keepEnd: true },
  { title: "STATE" },
  { title: "SLOTS", align: "right" },
  { title: "PREFETCHED", align: "right", dropPriority: 3 },
  { title: "REQUESTS", align: "right", dropPriority: 2 },
  { title: "POOL", minWidth: 6, dropPriority: 4 },
  { title: "RESOURCES", minWidth: 8, dropPriority: 5 },
  { title: "TAGS", minWidth: 8, dropPriority: 6 },
  { title: "SERVICES", minWidth: 8, dropPriority: 1 },
  { title: "RESULTS", align: "right", dropPriority: 8 },
  { title: "RECENT", dropPriority: 9 },
  { title: "PROTOCOL", dropPriority: 7 },
];

async function run(options: Options): Promise<void> {
  const answer = await withBroker(options, (client) => client.ask("workers", {}));
  const sorted = [...answer.workers].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const none = "no worker is connected; laboro worker starts one";
  printList({ document: answer, json: options.json, columns: COLUMNS, rows: sorted.map(rowOf), none });
}

function rowOf(worker: WorkerView) {
  const { slots: _, ...others } = worker.total;
  const state = workerState(worker);
  return [
    worker.name,
    { text: state, colour: stateColour(state) },
    usedOf("slots", worker),
    worker.prefetched === 0 ? "" : String(worker.prefetched),
    worker.requests === 0 ? "" : String(worker.requests),
    worker.pool === "default" ? "" : worker.pool,
    Object.keys(others)
      .map((name) => `${name}=${usedOf(name, worker)}`)
      .join(" "),
    worker.tags.join(","),
    worker.services.join(","),
    resultsOf(worker),
    worker.stats.recent.includes("-") ? worker.stats.recent : "",
    worker.protocol === "laboro" ? "" : worker.protocol,
  ];
}

/** `used/total`, rounded: 2 - 1.7 is 0.3. */
function usedOf(name: string, { total, free }: WorkerView): string {
  const amount = total[name] ?? 0;
  return `${Math.round((amount - (free[name] ?? 0)) * 1e6) / 1e6}/${amount}`;
}

function resultsOf({ stats: { results, succeeded } }: WorkerView): string {
  if (results === 0) return "";
  return succeeded === results ? String(results) : `${results} (${Math.floor((100 * succeeded) / results)} %)`;
}

/** The state that the table shows. */
function workerState(worker: WorkerView): string {
  if (!worker.connected) return "disconnected";
  if (worker.draining) return "draining";
  if (worker.standing !== "good") return worker.standing;
  if (worker.paused !== undefined) return "paused";
  return (worker.free.slots ?? 0) > 0 ? "ready" : "busy";
}
