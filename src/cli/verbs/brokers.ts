/** `laboro brokers`: the brokers of a group. */
import { Command } from "commander";
import type { OperationOutput } from "../../broker/operations/index.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { formatDuration } from "../lib/option-parsers.js";
import { printJson, printLines } from "../lib/print.js";
import { type Column, table } from "../lib/terminal/table.js";
import { detectTerminal, stateColour } from "../lib/terminal/terminal.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
  readonly stepBack?: string;
}

type BrokerView = OperationOutput<"brokers">["brokers"][number];

export function brokers(): Command {
  const command = new Command("brokers")
    .description("List the brokers that share a store, with their listeners, workers and services.")
    .option("--json", "print one JSON document")
    .option("--step-back <broker>", "let an active fallback close its listeners; its workers go to the other brokers")
    .addHelpText(
      "after",
      "\nStates: open: assigns tasks; draining: sends its workers to the other brokers; standby: a fallback that does not listen." +
        "\nThe broker with * answered. LAST SEEN is the time since its last heartbeat, COMMIT the time that a commit takes.\n" +
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
  { title: "LAST SEEN", align: "right", dropPriority: 2 },
  { title: "COMMIT", align: "right", dropPriority: 3 },
  { title: "UPTIME", align: "right", dropPriority: 5 },
  { title: "SERVICES", minWidth: 8, dropPriority: 4 },
  { title: "LISTENERS", minWidth: 8, dropPriority: 1 },
];

async function run(options: Options): Promise<void> {
  const { stepBack } = options;
  if (stepBack !== undefined) {
    const { broker } = await withBroker(options, (client) => client.ask("stepBack", { broker: stepBack }));
    printLines(`broker ${broker} closes its listeners`);
    return;
  }
  const answer = await withBroker(options, (client) => client.ask("brokers", {}));
  if (options.json === true) printJson(answer);
  else printLines(...table(COLUMNS, answer.brokers.map(rowOf), detectTerminal()));
}

function rowOf(broker: BrokerView) {
  const { name, self, fallback, state, workers, slots, heartbeatAgeMs, commitMs, started, services, listeners } =
    broker;
  const shown = fallback && state !== "standby" ? `${state} (fallback)` : state;
  return [
    self ? `${name} *` : name,
    { text: shown, colour: stateColour(state === "open" ? "ready" : state) },
    String(workers),
    `${slots.total - slots.free}/${slots.total}`,
    `${(heartbeatAgeMs / 1000).toFixed(1)}s`,
    `${commitMs.toFixed(1)}ms`,
    formatDuration(Math.max(0, Math.floor((Date.now() - started) / 1000) * 1000)),
    [...new Set(services.map(({ service }) => service))].join(","),
    listeners.map((listener) => `${listener.name}=${new URL(listener.url).host || listener.url}`).join(" "),
  ];
}
