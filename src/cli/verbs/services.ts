/** `laboro services`: the services that workers offer. */
import { Command } from "commander";
import { formatCount, shortDuration } from "../../base/format.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { type Column, printList } from "../lib/terminal/table.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
}

export function services(): Command {
  const command = new Command("services")
    .description("List the services that workers offer, with their load and recent latency.")
    .option("--json", "print one JSON document")
    .addHelpText("after", "\nExamples:\n  laboro services\n  laboro services --json | jq '.services[].name'")
    .action(run);
  return addBrokerOptions(command);
}

const COLUMNS: readonly Column[] = [
  { title: "SERVICE", minWidth: 8 },
  { title: "POOL", minWidth: 6, dropPriority: 3 },
  { title: "WORKERS", align: "right" },
  { title: "FREE", align: "right", dropPriority: 1 },
  { title: "WAITING", align: "right", dropPriority: 2 },
  { title: "COMPLETED", align: "right", dropPriority: 4 },
  { title: "FAILED", align: "right", dropPriority: 6 },
  { title: "RATE", align: "right", dropPriority: 7 },
  { title: "P50", align: "right", dropPriority: 5 },
  { title: "P99", align: "right", dropPriority: 8 },
];

async function run(options: Options): Promise<void> {
  const answer = await withBroker(options, (client) => client.ask("services", {}));
  const orNothing = (count: number): string => (count === 0 ? "" : formatCount(count));
  const rows = answer.services.map(
    ({ name, pool, workers, slots, free, waiting, completed, failed, rate, latencyMs }) => [
      name,
      pool === "default" ? "" : pool,
      workers === 0 ? { text: "none", colour: "red" as const } : formatCount(workers),
      `${free}/${slots}`,
      orNothing(waiting),
      orNothing(completed),
      orNothing(failed),
      rate === 0 ? "" : `${rate < 10 ? rate.toFixed(rate < 1 ? 2 : 1) : Math.round(rate)}/s`,
      latencyMs === undefined ? "" : shortDuration(latencyMs.p50),
      latencyMs === undefined ? "" : shortDuration(latencyMs.p99),
    ],
  );
  const none = "no worker offers a service; laboro worker --service NAME='COMMAND' does";
  printList({ document: answer, json: options.json, columns: COLUMNS, rows, none });
}
