/** `laboro hold`: hand out nothing more of a job. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { changeJobs } from "../lib/change-jobs.js";
import { OPEN_STATES } from "../lib/job-states.js";
import { parseJobSelector } from "../lib/selectors.js";

export function hold(): Command {
  const command = new Command("hold")
    .description("Hand out nothing more of these jobs. What runs goes on; laboro release lets the rest follow.")
    .argument("<selector>", "jobs: last, 3, 1-4,7, all")
    .addHelpText("after", "\nExamples:\n  laboro hold last\n  laboro hold all")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: BrokerChoice): Promise<void> {
  const selector = parseJobSelector(text);
  await withBroker(options, (client) =>
    changeJobs(client, selector, {
      states: OPEN_STATES,
      noneMessage: "to hold: none is open",
      apply: async (_, { id }) => {
        await client.ask("hold", { job: id });
        return `job ${id} is held; laboro release ${id} lets it go on`;
      },
    }),
  );
}
