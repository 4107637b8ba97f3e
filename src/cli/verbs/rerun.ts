/** `laboro rerun`: run finished tasks again. */
import { Command, Option } from "commander";
import { pluralize } from "../../base/format.js";
import type { TaskEnd } from "../../model/outcome.js";
import {
  addBrokerOptions,
  type BrokerChoice,
  connectToBroker,
  localDataInstead,
  localDataOf,
  withBroker,
} from "../lib/broker-connection.js";
import { changeJobs } from "../lib/change-jobs.js";
import { JOB_STATES, OPEN_STATES } from "../lib/job-states.js";
import { selectJobs } from "../lib/select-jobs.js";
import { indicesOf, parseSelector } from "../lib/selectors.js";
import type { JobView } from "../lib/views.js";

const PROBE_TIMEOUT_MS = 1_000;

interface Options extends BrokerChoice {
  readonly failed?: boolean;
  readonly all?: boolean;
}

export function rerun(): Command {
  const command = new Command("rerun")
    .description(
      "Run ended tasks of a job again, as they were submitted: without an option, those that failed or were cancelled. " +
        "What an interrupted laboro run has left runs, too. The job keeps its number and the output of earlier attempts.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all; or tasks of one: 3.1-9,12")
    .addOption(new Option("--failed", "only those that failed").conflicts("all"))
    .addOption(new Option("--all", "those that succeeded, too"))
    .addHelpText("after", "\nExamples:\n  laboro rerun last --failed\n  laboro rerun 3.12 --all")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const { jobs, tasks } = parseSelector(text);
  const states = statesOf(options);
  const change = {
    states: options.all === true ? JOB_STATES : ([...OPEN_STATES, "failed", "cancelled"] as const),
    noneMessage: "to rerun",
  };
  const selectionOf = (job: JobView) => ({ states, ...(tasks && { tasks: indicesOf(job, tasks) }) });
  const ends = states.map((state) => (state === "cancelled" ? "was cancelled" : `has ${state}`)).join(" or ");
  const noneText = (job: number): string => `job ${job} has no task that ${ends}`;
  const localDir =
    options.local === true
      ? localDataOf(options)
      : await connectToBroker(options, PROBE_TIMEOUT_MS)
          .then((client) => client.close())
          .catch((cause: unknown) => localDataInstead(options, cause));
  if (localDir !== undefined) {
    const { rerunLocally } = await import("./rerun/rerun-local.js");
    await rerunLocally(localDir, (client) => selectJobs(client, jobs, { state: change.states }), selectionOf, noneText);
    return;
  }
  await withBroker(options, (client) =>
    changeJobs(client, jobs, {
      ...change,
      apply: async (_, job) => {
        const { id } = job;
        const { count } = await client.ask("rerun", { job: id, ...selectionOf(job) });
        if (count > 0) return `${pluralize(count, "task")} of job ${id} ${count === 1 ? "runs" : "run"} again`;
        return noneText(id);
      },
    }),
  );
}

function statesOf({ failed, all }: Options): readonly TaskEnd[] {
  if (all === true) return ["failed", "cancelled", "succeeded"];
  return failed === true ? ["failed"] : ["failed", "cancelled"];
}
