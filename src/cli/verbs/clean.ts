/** `laboro clean`: forget jobs that have ended. */
import { Command } from "commander";
import { badInput } from "../../base/errors.js";
import { pluralize } from "../../base/format.js";
import type { TaskEnd } from "../../model/outcome.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { changeJobs } from "../lib/change-jobs.js";
import { parseDuration } from "../lib/duration.js";
import { ENDED_STATES, stateParser } from "../lib/job-states.js";
import { parseWholeNumber } from "../lib/option-parsers.js";
import { printLines } from "../lib/print.js";
import { parseJobSelector } from "../lib/selectors.js";

interface Options extends BrokerChoice {
  readonly olderThan?: number;
  readonly keep?: number;
  readonly state?: readonly TaskEnd[];
}

export function clean(): Command {
  const command = new Command("clean")
    .description(
      "Forget jobs that have ended, with their results and output, and free their disk space. " +
        "Without a selector all that the options allow; jobs that are open are never touched.",
    )
    .argument("[selector]", "jobs: last, 3, 1-4,7, all")
    .option("--older-than <duration>", "only what ended longer ago than this: 7d, 12h", parseDuration)
    .option("--keep <n>", "but not the newest so many", parseWholeNumber)
    .option("--state <states>", "only those that ended so: succeeded, failed, cancelled", stateParser(ENDED_STATES))
    .addHelpText(
      "after",
      "\nExamples:\n  laboro clean --older-than 7d --keep 100\n  laboro clean --state succeeded\n  laboro clean 1-4,7",
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
  await withBroker(options, async (client) => {
    if (selector !== undefined) {
      await changeJobs(client, selector, {
        states: ENDED_STATES,
        noneMessage: "to clean: none of them has ended",
        apply: async (_, { id }) => {
          await client.ask("remove", { job: id });
          return `job ${id} is forgotten`;
        },
      });
      return;
    }
    const input = {
      ...(olderThan === undefined ? {} : { olderThanMs: olderThan }),
      ...(keep === undefined ? {} : { keep }),
      ...(states === undefined ? {} : { states }),
    };
    const { removed } = await client.ask("clean", input);
    printLines(
      removed === 0
        ? "there is no job to clean"
        : `${pluralize(removed, "job")} ${removed === 1 ? "is" : "are"} forgotten`,
    );
  });
}
