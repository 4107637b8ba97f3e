/** `laboro workers`: who works. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { say, sayJson } from "../lib/print.js";
import { type Column, table } from "../lib/terminal/table.js";
import { colourOf, terminalOf } from "../lib/terminal/terminal.js";
import type { WorkerView } from "../lib/views.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
}

export function workers(): Command {
  const command = new Command("workers")
    .description("List the workers that the broker knows, and how much room they have.")
    .option("--json", "one JSON document")
    .addHelpText(
      "after",
      "\nStates: ready has a free slot, busy has none, draining gets nothing new, away has lost its link and is waited for, " +
        "\nsuspended and banned have failed too much.\n\nExamples:\n  laboro workers\n  laboro workers --json | jq '.workers[].name'",
    )
    .action(run);
  return addBrokerOptions(command);
}

const COLUMNS: readonly Column[] = [
  { title: "WORKER", least: 24, endMatters: true },
  { title: "STATE" },
  { title: "SLOTS", align: "right" },
  { title: "STOCK", align: "right", drop: 3 },
  { title: "REQUESTS", align: "right", drop: 2 },
  { title: "POOL", least: 6, drop: 4 },
  { title: "HAS", least: 8, drop: 5 },
  { title: "TAGS", least: 8, drop: 6 },
  { title: "SERVICES", least: 8, drop: 1 },
  { title: "RESULTS", align: "right", drop: 8 },
  { title: "LAST TEN", drop: 9 },
  { title: "PROTOCOL", drop: 7 },
];

async function run(options: Options): Promise<void> {
  const answer = await withBroker(options, (client) => client.ask("workers", {}));
  if (options.json === true) {
    sayJson(answer);
    return;
  }
  if (answer.workers.length === 0) {
    say("no worker is connected; laboro worker starts one");
    return;
  }
  const sorted = [...answer.workers].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  say(...table(COLUMNS, sorted.map(rowOf), terminalOf()));
}

function rowOf(worker: WorkerView) {
  const { slots = 0, ...others } = worker.total;
  const state = stateOf(worker);
  return [
    worker.name,
    { text: state, colour: colourOf(state) },
    `${slots - (worker.free.slots ?? 0)}/${slots}`,
    worker.stock === 0 ? "" : String(worker.stock),
    worker.requests === 0 ? "" : String(worker.requests),
    worker.pool === "default" ? "" : worker.pool,
    Object.entries(others)
      .map(([name, amount]) => `${name}=${worker.free[name] ?? 0}/${amount}`)
      .join(" "),
    worker.tags.join(","),
    worker.services.join(","),
    resultsOf(worker),
    worker.figures.recent.includes("-") ? worker.figures.recent : "",
    worker.protocol === "laboro" ? "" : worker.protocol,
  ];
}

function resultsOf({ figures: { results, succeeded } }: WorkerView): string {
  if (results === 0) return "";
  return succeeded === results ? String(results) : `${results} (${Math.floor((100 * succeeded) / results)} %)`;
}

/** The one word that says most. */
export function stateOf(worker: WorkerView): string {
  if (!worker.connected) return "away";
  if (worker.draining) return "draining";
  if (worker.standing !== "good") return worker.standing;
  return (worker.free.slots ?? 0) > 0 ? "ready" : "busy";
}
