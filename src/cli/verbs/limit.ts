/** `laboro limit` and `laboro limits`: set, remove and list named limits. */
import { Argument, Command } from "commander";
import { badInput } from "../../base/errors.js";
import { formatCount } from "../../base/format.js";
import type { LimitRule, Rate } from "../../model/limit.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { formatDuration, parseDuration, wholeNumber } from "../lib/option-parsers.js";
import { printLines } from "../lib/print.js";
import { type Column, printList } from "../lib/terminal/table.js";

interface LimitOptions extends BrokerChoice {
  readonly running?: number;
  readonly rate?: Rate;
}

export function limit(): Command {
  const command = new Command("limit")
    .description(
      "Set or remove a named limit. All jobs that were submitted with --limit NAME share it, at all brokers of a group. " +
        "A change applies at once to every task that has not started. set replaces the former rule.",
    )
    .addArgument(new Argument("<action>", "what to do").choices(["set", "remove"]))
    .argument("<name>", "the limit")
    .option("--running <n>", "for set: at most N tasks run at once; 0 starts none", wholeNumber(4))
    .option("--rate <n/duration>", "for set: at most N tasks start within any such time: 100/1m, 5/s", parseRate)
    .addHelpText("after", EXAMPLES)
    .action(changeLimit);
  return addBrokerOptions(command);
}

const EXAMPLES = `
Examples:
  laboro limit set api --running 5 --rate 100/1m
  laboro submit --limit api --each-line users.txt -- ./fetch {}
  laboro limits
  laboro limit remove api`;

function parseRate(text: string): Rate {
  const [, starts = "", time = ""] = /^(\d[\d_]*)\/(.+)$/.exec(text) ?? [];
  if (starts === "") throw badInput(`--rate: expected a number and a time, such as 100/1m, got ${text}`);
  return { starts: wholeNumber(5)(starts), intervalMs: parseDuration(/^\d/.test(time) ? time : `1${time}`) };
}

async function changeLimit(action: string, name: string, { running, rate, ...options }: LimitOptions): Promise<void> {
  const rule: LimitRule = { ...(running === undefined ? {} : { running }), ...(rate === undefined ? {} : { rate }) };
  const given = running !== undefined || rate !== undefined;
  if (action === "set" && !given) throw badInput("nothing to set: give --running N, --rate N/TIME or both");
  if (action === "remove" && given) throw badInput("--running and --rate can only be used with set");
  await withBroker(options, async (client) => {
    if (action === "set") await client.ask("limitSet", { name, ...rule });
    else await client.ask("limitRemove", { name });
  });
  printLines(
    action === "set"
      ? `limit ${name}: ${ruleText(rule)}`
      : `limit ${name} is removed; jobs that name it continue without it`,
  );
}

/** `laboro limits`: the named limits, and what waits for them. */
interface ListOptions extends BrokerChoice {
  readonly json?: boolean;
}

export function limits(): Command {
  const command = new Command("limits")
    .description(
      "List the named limits: how much of each is used, at all brokers of a group, and how many tasks wait for it.",
    )
    .option("--json", "print one JSON document")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro limits\n  laboro limits --json | jq '.limits[] | select(.waiting > 0)'",
    )
    .action(listLimits);
  return addBrokerOptions(command);
}

const COLUMNS: readonly Column[] = [
  { title: "LIMIT", minWidth: 8 },
  { title: "RUNNING", align: "right" },
  { title: "STARTS", align: "right" },
  { title: "NEXT START", align: "right", dropPriority: 2 },
  { title: "WAITING", align: "right" },
  { title: "JOBS", minWidth: 6, dropPriority: 1 },
];

async function listLimits(options: ListOptions): Promise<void> {
  const answer = await withBroker(options, (client) => client.ask("limits", {}));
  const rows = answer.limits.map(({ name, running, rate, used, waiting, jobs, jobCount, nextMs }) => [
    name,
    running === undefined ? formatCount(used.running) : `${formatCount(used.running)}/${formatCount(running)}`,
    rate === undefined
      ? ""
      : `${formatCount(used.starts)}/${formatCount(rate.starts)} in ${formatDuration(rate.intervalMs)}`,
    nextMs === undefined ? "" : `in ${formatDuration(Math.ceil(nextMs / 1000) * 1000)}`,
    waiting === 0 ? "" : formatCount(waiting),
    jobs.join(",") + (jobCount > jobs.length ? ` and ${formatCount(jobCount - jobs.length)} more` : ""),
  ]);
  const none = "there are no limits; laboro limit set NAME --running N --rate N/TIME creates one";
  printList({ document: answer, json: options.json, columns: COLUMNS, rows, none });
}

const ruleText = ({ running, rate }: LimitRule): string =>
  [
    ...(running === undefined ? [] : [`at most ${formatCount(running)} running`]),
    ...(rate === undefined ? [] : [`at most ${formatCount(rate.starts)} starts in ${formatDuration(rate.intervalMs)}`]),
  ].join(", ");
