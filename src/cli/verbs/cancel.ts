/** `laboro cancel`: stop running tasks, start no more. */
import { Command } from "commander";
import { pluralize } from "../../base/format.js";
import { countOf, type Ranges } from "../../model/ranges.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { confirm, requireTerminal } from "../lib/print.js";
import { changeJobs, indicesOf, OPEN_STATES, parseSelector } from "../lib/select-jobs.js";

interface Options extends BrokerChoice {
  readonly reason?: string;
  readonly yes?: boolean;
}

export function cancel(): Command {
  const command = new Command("cancel")
    .description(
      "Cancel jobs, or some tasks of a job. Waiting tasks never start. Running tasks get SIGTERM, and SIGKILL if they do not " +
        "end. When this returns, the cancellation is on disk: the tasks end as cancelled, even if a result arrives later. " +
        "It asks before it cancels all jobs; without a terminal it needs --yes.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all; or tasks of one: 3.1-9,12")
    .option("--reason <text>", "the reason, shown with the job")
    .option("--yes", "do not ask for confirmation")
    .addHelpText("after", "\nExamples:\n  laboro cancel last\n  laboro cancel 3.100-199 --reason 'wrong input'")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const { jobs, tasks } = parseSelector(text);
  const { reason } = options;
  const asks = jobs.kind === "all" && options.yes !== true;
  if (asks) requireTerminal("cancel");
  await withBroker(options, async (client, place) => {
    if (asks && !(await confirm(`cancel all open jobs in ${place}?`))) return;
    await changeJobs(client, jobs, {
      states: OPEN_STATES,
      noneMessage: "to cancel: none is open",
      apply: async (_, job) => {
        const chosen = tasks && indicesOf(job, tasks);
        await client.ask("cancel", { job: job.id, ...(chosen && { tasks: chosen }), ...(reason && { reason }) });
        return whatOf(job.id, chosen);
      },
    });
  });
}

function whatOf(id: number, tasks: Ranges | undefined): string {
  if (tasks === undefined) return `job ${id} is cancelled`;
  const count = countOf(tasks);
  return `${pluralize(count, "task")} of job ${id} ${count === 1 ? "is" : "are"} cancelled, except what had ended before`;
}
