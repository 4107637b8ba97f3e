/** `laboro brokers`: the brokers of a group. */
import { Command } from "commander";
import type { OperationOutput } from "../../broker/operations/index.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { formatDuration } from "../lib/duration.js";
import { printLines, printJson } from "../lib/print.js";
import { type Column, table } from "../lib/terminal/table.js";
import { stateColour, detectTerminal } from "../lib/terminal/terminal.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
  readonly stepBack?: string;
}

type BrokerView = OperationOutput<"brokers">["brokers"][number];

export function brokers(): Command {
  const command = new Command("brokers")
    .description("List the brokers that share a store, with their doors, workers and services.")
    .option("--json", "one JSON document")
    .option("--step-back <broker>", "let a fallback that stands in for others close its doors; its workers go to those")
    .addHelpText(
      "after",
      "\nStates: open hands out work, draining does not and sends its workers to the others, standby is a fallback whose doors are closed." +
        "\nThe one with * was asked. LAG is how long ago it gave a sign of life, COMMIT how long it takes to write.\n" +
        "\nExamples:\n  laboro brokers\n  laboro brokers --step-back spare.cluster:5429",
    )
    .action(run);
  return addBrokerOptions(command);
}

const COLUMNS: readonly Column[] = [
  { title: "BROKER", minWidth: 32, keepEnd: true },
  { title: "STATE" },
  { title: "WORKERS", align: "right" },
  { title: "SLOTS", align: "right" },
  { title: "LAG", align: "right", dropPriority: 2 },
  { title: "COMMIT", align: "right", dropPriority: 3 },
  { title: "UP", align: "right", dropPriority: 5 },
  { title: "SERVICES", minWidth: 8, dropPriority: 4 },
  { title: "DOORS", minWidth: 8, dropPriority: 1 },
];

async function run(options: Options): Promise<void> {
  const { stepBack } = options;
  if (stepBack !== undefined) {
    const { broker } = await withBroker(options, (client) => client.ask("stepBack", { broker: stepBack }));
    printLines(`${broker} steps back`);
    return;
  }
  const answer = await withBroker(options, (client) => client.ask("brokers", {}));
  if (options.json === true) printJson(answer);
  else printLines(...table(COLUMNS, answer.brokers.map(rowOf), detectTerminal()));
}

function rowOf(broker: BrokerView) {
  const { name, self: here, fallback, state, workers, slots, heartbeatAgeMs: lagMs, commitMs, started, services, listeners: doors } = broker;
  const shown = fallback && state !== "standby" ? `${state} (fallback)` : state;
  return [
    here ? `${name} *` : name,
    { text: shown, colour: stateColour(state === "open" ? "ready" : state) },
    String(workers),
    `${slots.total - slots.free}/${slots.total}`,
    `${(lagMs / 1000).toFixed(1)}s`,
    `${commitMs.toFixed(1)}ms`,
    formatDuration(Math.max(0, Math.floor((Date.now() - started) / 1000) * 1000)),
    [...new Set(services.map(({ service }) => service))].join(","),
    doors.map((door) => `${door.name}=${new URL(door.url).host || door.url}`).join(" "),
  ];
}
