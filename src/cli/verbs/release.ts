/** `laboro release`: hand out a held job's tasks again. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { changeJobs } from "../lib/change-jobs.js";
import { OPEN_STATES } from "../lib/job-states.js";
import { parseJobSelector } from "../lib/selectors.js";

export function release(): Command {
  const command = new Command("release")
    .description("Hand out the tasks of held jobs again.")
    .argument("<selector>", "jobs: last, 3, 1-4,7, all")
    .addHelpText("after", "\nExamples:\n  laboro release 3\n  laboro release all")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: BrokerChoice): Promise<void> {
  const selector = parseJobSelector(text);
  await withBroker(options, (client) =>
    changeJobs(client, selector, {
      states: OPEN_STATES,
      noneMessage: "to release: none is open",
      apply: async (_, { id, held }) => {
        await client.ask("release", { job: id });
        return held ? `job ${id} goes on` : `job ${id} was not held`;
      },
    }),
  );
}
