/** `laboro wait`: until jobs have ended. */
import { Command } from "commander";
import { LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { addBrokerOptions, type BrokerChoice, followWithRetry, withBroker } from "../lib/broker-connection.js";
import { formatDuration, parseDuration } from "../lib/duration.js";
import { EXIT } from "../lib/failures.js";
import { OPEN_STATES } from "../lib/job-states.js";
import { printJson, printLines, printNotice } from "../lib/print.js";
import { failureLines, jobResultLine } from "../lib/result-text.js";
import { getJob, selectJobs } from "../lib/select-jobs.js";
import { parseJobSelector } from "../lib/selectors.js";

interface Options extends BrokerChoice {
  readonly timeout?: number;
  readonly json?: boolean;
}

/** More failures of a job than this are counted only. */
const MAX_LINES = 10;

export function wait(): Command {
  const command = new Command("wait")
    .description(
      "Wait until jobs have ended, over restarts of the broker. Exits 0 if every task succeeded; 1 if some failed or were " +
        "cancelled, and says which.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all; all waits for those that are open now")
    .option("--timeout <duration>", "give up after this time, with exit code 1: 90s, 5m, 1h30m", parseDuration)
    .option("--json", "one JSON document, when all have ended")
    .addHelpText("after", "\nExamples:\n  laboro wait last\n  laboro wait 3-5 --timeout 1h && echo done")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const selector = parseJobSelector(text);
  await withBroker(options, async (client) => {
    const jobs = await selectJobs(client, selector, selector.kind === "all" ? { state: OPEN_STATES } : {});
    if (jobs.length === 0) printNotice("there is no open job to wait for");
    await waitForAll(
      client,
      jobs.map(({ id }) => id),
      options.timeout,
    );
    const all = await Promise.all(jobs.reverse().map(({ id }) => getJob(client, id)));
    if (options.json === true) printJson({ jobs: all });
    for (const job of all) {
      if (job.state !== "succeeded") process.exitCode = EXIT.failed;
      if (options.json !== true) printLines(...(await failureLines(client, job, MAX_LINES)), jobResultLine(job));
    }
  });
}

/** Resolves when all have ended, also across restarts of the broker. */
async function waitForAll(client: Client, jobs: readonly number[], timeoutMs: number | undefined): Promise<void> {
  const stop = new AbortController();
  const ended = new Set<number>();
  const waits = jobs.map(async (job) => {
    const follow = followWithRetry(client, job, { tasks: false, signal: stop.signal });
    for await (const { ended: end } of follow) if (end !== undefined) ended.add(job);
  });
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    if (timeoutMs === undefined) return;
    timer = setTimeout(
      () =>
        reject(
          deadlineError(
            jobs.filter((job) => !ended.has(job)),
            timeoutMs,
          ),
        ),
      timeoutMs,
    );
  });
  try {
    await Promise.race([Promise.all(waits), late]);
  } finally {
    stop.abort();
    clearTimeout(timer);
    // Nobody awaits these any more: a rejection must not count as unhandled.
    for (const wait of waits) wait.catch(() => {});
  }
}

function deadlineError(open: readonly number[], timeoutMs: number): LaboroError {
  const [first] = open;
  const which = open.length === 1 ? `job ${first} has` : `jobs ${open.join(", ")} have`;
  const text = `${which} not ended within ${formatDuration(timeoutMs)}; laboro status ${first} says how far it is`;
  return new LaboroError("LABORO_DEADLINE", text);
}
