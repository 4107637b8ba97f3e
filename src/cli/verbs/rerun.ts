/** `laboro rerun`: run finished tasks again. */
import { availableParallelism } from "node:os";
import { Command, Option } from "commander";
import { badInput } from "../../base/errors.js";
import { pluralize } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import type { TaskEnd } from "../../model/outcome.js";
import type { RerunSelection } from "../lib/batch/resume.js";
import {
  addBrokerOptions,
  type BrokerChoice,
  connectToBroker,
  localDataInstead,
  localDataOf,
  withBroker,
} from "../lib/broker-connection.js";
import { EXIT } from "../lib/failures.js";
import type { LocalBroker } from "../lib/local-broker.js";
import { printLines } from "../lib/print.js";
import type { JobView } from "../lib/result-text.js";
import { changeJobs, indicesOf, JOB_STATES, OPEN_STATES, parseSelector, selectJobs } from "../lib/select-jobs.js";

const PROBE_TIMEOUT_MS = 1_000;

interface Options extends BrokerChoice {
  readonly failed?: boolean;
  readonly all?: boolean;
  readonly withDependents?: boolean;
}

export function rerun(): Command {
  const command = new Command("rerun")
    .description(
      "Run ended tasks of a job again, as they were submitted: by default those that failed or were cancelled. " +
        "Tasks that an interrupted laboro run did not finish run too. The job keeps its number and the output of earlier attempts.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all; or tasks of one: 3.1-9,12")
    .addOption(new Option("--failed", "run only the failed tasks again").conflicts("all"))
    .addOption(new Option("--all", "run succeeded tasks again, too"))
    .option("--with-dependents", "then the same for the jobs that depend on these, directly or not; they wait for them")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro rerun last --failed\n  laboro rerun 3.12 --all\n  laboro rerun 3 --with-dependents",
    )
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
    if (options.withDependents === true)
      throw badInput(
        "--with-dependents needs a running broker, such as laboro serve: without one, only the named jobs are rerun",
      );
    await rerunLocally(localDir, (client) => selectJobs(client, jobs, { state: change.states }), selectionOf, noneText);
    return;
  }
  await withBroker(options, (client) =>
    changeJobs(client, jobs, {
      ...change,
      apply: async (_, job) => {
        const { id } = job;
        const { withDependents = false } = options;
        const selection = { ...selectionOf(job), ...(withDependents ? { withDependents } : {}) };
        const { count, dependents = [] } = await client.ask("rerun", { job: id, ...selection });
        const lines = dependents.flatMap((one) =>
          one.refused === undefined
            ? one.count > 0
              ? [againText(one.job, one.count)]
              : []
            : [`job ${one.job}: ${one.refused}`],
        );
        return [count > 0 ? againText(id, count) : noneText(id), ...lines].join("\n");
      },
    }),
  );
}

const againText = (job: number, count: number): string =>
  `${pluralize(count, "task")} of job ${job} ${count === 1 ? "runs" : "run"} again`;

function statesOf({ failed, all }: Options): readonly TaskEnd[] {
  if (all === true) return ["failed", "cancelled", "succeeded"];
  return failed === true ? ["failed"] : ["failed", "cancelled"];
}

/** Runs tasks here, on the data of `laboro run` in `dir`. Loads the broker, which a rerun elsewhere does not need. */
async function rerunLocally(
  dir: string,
  choose: (client: Client) => Promise<readonly JobView[]>,
  selectionOf: (job: JobView) => RerunSelection,
  noneText: (job: number) => string,
): Promise<void> {
  const { openLocalBroker } = await import("../lib/local-broker.js");
  const { rerunTasks } = await import("../lib/batch/resume.js");
  const { runBatch } = await import("../lib/batch/run-batch.js");
  const { onInterrupt } = await import("../lib/interrupt.js");
  const interrupt = onInterrupt({ watchOutput: true });
  let local: LocalBroker | undefined;
  const connectBroker = async (ownJob?: number): Promise<Client> => {
    await local?.close(false);
    local = await openLocalBroker(dir, availableParallelism(), ({ id }) => id !== ownJob);
    return local.client;
  };
  const start = async (client: Client, id: number, selection: RerunSelection) => {
    const started = await rerunTasks(client, id, selection);
    if (started === undefined) {
      printLines(noneText(id));
      return undefined;
    }
    // Unfinished tasks of a stopped run continue, too.
    const { held } = await client.ask("job", { job: id });
    if (held) await client.ask("release", { job: id });
    return started;
  };
  try {
    const jobs = await choose(await connectBroker());
    if (jobs.length === 0) printLines("there is nothing to run again");
    const selections = jobs.map((job) => ({ id: job.id, selection: selectionOf(job) }));
    for (const { id, selection } of selections) {
      if (interrupt.once.aborted || interrupt.outputLost.aborted) break;
      const options = { keepOrder: false, tag: false, live: false, dir };
      const code = await runBatch(connectBroker, (client) => start(client, id, selection), options, interrupt);
      if (code !== EXIT.ok) process.exitCode = code;
    }
  } finally {
    interrupt.dispose();
    await local?.close(!interrupt.twice.aborted);
    interrupt.endAfterHangup();
  }
}
