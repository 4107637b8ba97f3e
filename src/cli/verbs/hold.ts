/** `laboro hold` and `laboro release`: stop assigning the tasks of a job, and assign them again. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { changeJobs, type JobChange, OPEN_STATES, parseJobSelector } from "../lib/select-jobs.js";

export const hold = (): Command =>
  makeVerb(
    "hold",
    "Start no more tasks of these jobs. Tasks that run continue; laboro release lets the rest follow.",
    "last",
    async (client, { id }) => {
      await client.ask("hold", { job: id });
      return `job ${id} is held; laboro release ${id} continues it`;
    },
  );

export const release = (): Command =>
  makeVerb("release", "Start the tasks of held jobs again.", "3", async (client, { id, held }) => {
    await client.ask("release", { job: id });
    return held ? `job ${id} continues` : `job ${id} was not held`;
  });

function makeVerb(name: string, description: string, example: string, apply: JobChange["apply"]): Command {
  const command = new Command(name)
    .description(description)
    .argument("<selector>", "jobs: last, 3, 1-4,7, all")
    .addHelpText("after", `\nExamples:\n  laboro ${name} ${example}\n  laboro ${name} all`)
    .action(async (text: string, options: BrokerChoice) => {
      const selector = parseJobSelector(text);
      const change = { states: OPEN_STATES, noneMessage: `to ${name}: none is open`, apply };
      await withBroker(options, (client) => changeJobs(client, selector, change));
    });
  return addBrokerOptions(command);
}
