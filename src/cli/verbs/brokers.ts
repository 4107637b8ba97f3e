/** `laboro brokers`: the brokers of a group. */
import { Command } from "commander";
import type { OperationOutput } from "../../broker/operations/index.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { formatDuration } from "../lib/duration.js";
import { say, sayJson } from "../lib/print.js";
import { type Column, table } from "../lib/terminal/table.js";
import { colourOf, terminalOf } from "../lib/terminal/terminal.js";

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
  { title: "BROKER", least: 32, endMatters: true },
  { title: "STATE" },
  { title: "WORKERS", align: "right" },
  { title: "SLOTS", align: "right" },
  { title: "LAG", align: "right", drop: 2 },
  { title: "COMMIT", align: "right", drop: 3 },
  { title: "UP", align: "right", drop: 5 },
  { title: "SERVICES", least: 8, drop: 4 },
  { title: "DOORS", least: 8, drop: 1 },
];

async function run(options: Options): Promise<void> {
  const { stepBack } = options;
  if (stepBack !== undefined) {
    const { broker } = await withBroker(options, (client) => client.ask("stepBack", { broker: stepBack }));
    say(`${broker} steps back`);
    return;
  }
  const answer = await withBroker(options, (client) => client.ask("brokers", {}));
  if (options.json === true) sayJson(answer);
  else say(...table(COLUMNS, answer.brokers.map(rowOf), terminalOf()));
}

function rowOf(broker: BrokerView) {
  const { name, here, fallback, state, workers, slots, lagMs, commitMs, started, services, doors } = broker;
  const shown = fallback && state !== "standby" ? `${state} (fallback)` : state;
  return [
    here ? `${name} *` : name,
    { text: shown, colour: colourOf(state === "open" ? "ready" : state) },
    String(workers),
    `${slots.total - slots.free}/${slots.total}`,
    `${(lagMs / 1000).toFixed(1)}s`,
    `${commitMs.toFixed(1)}ms`,
    formatDuration(Math.max(0, Math.floor((Date.now() - started) / 1000) * 1000)),
    [...new Set(services.map(({ service }) => service))].join(","),
    doors.map((door) => `${door.name}=${new URL(door.url).host || door.url}`).join(" "),
  ];
}
