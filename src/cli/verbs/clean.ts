/** `laboro clean`: delete ended jobs. */
import { Command } from "commander";
import { badInput } from "../../base/errors.js";
import { pluralize } from "../../base/format.js";
import { definedOnly } from "../../model/input.js";
import { END_STATES } from "../../model/job.js";
import type { TaskEnd } from "../../model/outcome.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { formatDuration, parseDuration, wholeNumber } from "../lib/option-parsers.js";
import { confirm, printLines, requireTerminal } from "../lib/print.js";

import { changeJobs, parseJobSelector, stateParser } from "../lib/select-jobs.js";

interface Options extends BrokerChoice {
  readonly olderThan?: number;
  readonly keep?: number;
  readonly state?: readonly TaskEnd[];
  readonly yes?: boolean;
}

export function clean(): Command {
  const command = new Command("clean")
    .description(
      "Delete ended jobs with their results and output, and free their disk space. " +
        "Without a selector, all ended jobs that the options select. Open jobs are never deleted. " +
        "It asks first, unless all jobs are named by number; without a terminal it needs --yes.",
    )
    .argument("[selector]", "jobs: last, 3, 1-4,7, all")
    .option("--older-than <duration>", "delete only jobs that ended longer ago than this: 7d, 12h", parseDuration)
    .option("--keep <n>", "keep the newest N ended jobs", wholeNumber(100))
    .option(
      "--state <states>",
      "delete only jobs in these states: succeeded, failed, cancelled",
      stateParser(END_STATES),
    )
    .option("--yes", "do not ask for confirmation")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro clean --older-than 7d --keep 100 --yes\n  laboro clean --state succeeded\n  laboro clean 1-4,7\n  laboro clean all --local",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string | undefined, options: Options): Promise<void> {
  const { olderThan, keep, state: states } = options;
  const limited = olderThan !== undefined || keep !== undefined || states !== undefined;
  const selector = text === undefined ? undefined : parseJobSelector(text);
  if (selector !== undefined && limited) {
    throw badInput("clean takes a selector or options, not both");
  }
  const isExplicit = selector?.kind === "some" || options.yes === true;
  if (!isExplicit) requireTerminal("clean");
  await withBroker(options, async (client, place) => {
    if (!isExplicit && !(await confirm(`forget ${whatOf(text, options)} in ${place}?`))) return;
    if (selector !== undefined) {
      await changeJobs(client, selector, {
        states: END_STATES,
        noneMessage: "to clean: none of them has ended",
        apply: async (_, { id }) => {
          await client.ask("remove", { job: id });
          return `job ${id} is forgotten`;
        },
      });
      return;
    }
    const input = {
      ...definedOnly({ olderThanMs: olderThan, keep, states }),
    };
    const { removed } = await client.ask("clean", input);
    printLines(
      removed === 0
        ? "there is no job to clean"
        : `${pluralize(removed, "job")} ${removed === 1 ? "is" : "are"} forgotten`,
    );
  });
}

/** Describes the selected jobs, for the question. */
function whatOf(selector: string | undefined, { olderThan, keep, state }: Options): string {
  if (selector === "last") return "the last job";
  const ended = state === undefined ? "all jobs that have ended" : `all jobs that have ended as ${state.join(" or ")}`;
  const age = olderThan === undefined ? "" : `, longer ago than ${formatDuration(olderThan)}`;
  return `${ended}${age}${keep === undefined ? "" : `, but not the newest ${keep}`},`;
}
