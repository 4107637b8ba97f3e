/** `laboro services`: what can be asked for. */
import { Command } from "commander";
import { shownCount, shownDuration } from "../../base/format.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { say, sayJson } from "../lib/print.js";
import { type Column, table } from "../lib/terminal/table.js";
import { terminalOf } from "../lib/terminal/terminal.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
}

export function services(): Command {
  const command = new Command("services")
    .description("List the services that workers offer, how busy they are and how fast they have answered lately.")
    .option("--json", "one JSON document")
    .addHelpText("after", "\nExamples:\n  laboro services\n  laboro services --json | jq '.services[].name'")
    .action(run);
  return addBrokerOptions(command);
}

const COLUMNS: readonly Column[] = [
  { title: "SERVICE", least: 8 },
  { title: "POOL", least: 6, drop: 3 },
  { title: "WORKERS", align: "right" },
  { title: "FREE", align: "right", drop: 1 },
  { title: "WAITING", align: "right", drop: 2 },
  { title: "ANSWERED", align: "right", drop: 4 },
  { title: "FAILED", align: "right", drop: 6 },
  { title: "RATE", align: "right", drop: 7 },
  { title: "P50", align: "right", drop: 5 },
  { title: "P99", align: "right", drop: 8 },
];

async function run(options: Options): Promise<void> {
  const answer = await withBroker(options, (client) => client.ask("services", {}));
  if (options.json === true) {
    sayJson(answer);
    return;
  }
  if (answer.services.length === 0) {
    say("no worker offers a service; laboro worker --service NAME='COMMAND' does");
    return;
  }
  const orNothing = (count: number): string => (count === 0 ? "" : shownCount(count));
  const rows = answer.services.map(
    ({ name, pool, workers, slots, free, waiting, answered, failed, rate, latencyMs }) => [
      name,
      pool === "default" ? "" : pool,
      workers === 0 ? { text: "none", colour: "red" as const } : shownCount(workers),
      `${free}/${slots}`,
      orNothing(waiting),
      orNothing(answered),
      orNothing(failed),
      rate === 0 ? "" : `${rate < 10 ? rate.toFixed(rate < 1 ? 2 : 1) : Math.round(rate)}/s`,
      latencyMs === undefined ? "" : shownDuration(latencyMs.p50),
      latencyMs === undefined ? "" : shownDuration(latencyMs.p99),
    ],
  );
  say(...table(COLUMNS, rows, terminalOf()));
}
