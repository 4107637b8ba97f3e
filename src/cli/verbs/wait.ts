/** `laboro wait`: waits until jobs have ended. */
import { setTimeout as pause } from "node:timers/promises";
import { Command } from "commander";
import { LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { EXPLAIN_AFTER_MS, explainWaiting } from "../lib/batch/explain-waiting.js";
import { ProgressBar, type TaskCounts } from "../lib/batch/progress-bar.js";
import { addBrokerOptions, type BrokerChoice, followWithRetry, withBroker } from "../lib/broker-connection.js";
import { EXIT } from "../lib/failures.js";
import { formatDuration, parseDuration } from "../lib/option-parsers.js";
import { printJson, printLines, printNotice } from "../lib/print.js";
import { failureLines, type JobView, jobResultLine } from "../lib/result-text.js";
import { getJob, OPEN_STATES, parseJobSelector, selectJobs } from "../lib/select-jobs.js";

interface Options extends BrokerChoice {
  readonly timeout?: number;
  readonly json?: boolean;
}

const PROGRESS_MS = 1_000;
/** How many failures of a job are listed. The others are counted. */
const MAX_LINES = 10;

export function wait(): Command {
  const command = new Command("wait")
    .description(
      "Wait until jobs have ended, also across restarts of the broker. Exit with 0 if every task succeeded; with 1 if some " +
        "failed or were cancelled, and list them.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all; all are the jobs that are open now")
    .option("--timeout <duration>", "give up after this time, with exit code 1: 90s, 5m, 1h30m", parseDuration)
    .option("--json", "print one JSON document when all jobs have ended")
    .addHelpText("after", "\nExamples:\n  laboro wait last\n  laboro wait 3-5 --timeout 1h && echo done")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const selector = parseJobSelector(text);
  await withBroker(options, async (client) => {
    const jobs = await selectJobs(client, selector, selector.kind === "all" ? { state: OPEN_STATES } : {});
    if (jobs.length === 0) printNotice("nothing to wait for: all jobs have ended");
    for (const { id, open } of jobs)
      if (open === true) printNotice(`job ${id} takes more tasks: it ends after laboro close ${id}`);
    await waitForAll(client, jobs, options.timeout);
    const all = await Promise.all(jobs.reverse().map(({ id }) => getJob(client, id)));
    if (options.json === true) printJson({ jobs: all });
    for (const job of all) {
      if (job.state !== "succeeded") process.exitCode = EXIT.failed;
      if (options.json !== true) printLines(...(await failureLines(client, job, MAX_LINES)), jobResultLine(job));
    }
  });
}

/** Resolves when all have ended, also across restarts of the broker. On a terminal with a progress bar. */
async function waitForAll(client: Client, jobs: readonly JobView[], timeoutMs: number | undefined): Promise<void> {
  const stop = new AbortController();
  const ended = new Set<number>();
  const waits = jobs.map(async ({ id }) => {
    const follow = followWithRetry(client, id, { tasks: false, signal: stop.signal });
    for await (const { ended: end } of follow) if (end !== undefined) ended.add(id);
  });
  if (process.stderr.isTTY) void showProgress(client, jobs, stop.signal);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    if (timeoutMs === undefined) return;
    timer = setTimeout(
      () =>
        reject(
          deadlineError(
            jobs.map(({ id }) => id).filter((id) => !ended.has(id)),
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

/** Asks for the counters: a stream that reports only the end of a job has none, so that long waits cost nothing. */
async function showProgress(client: Client, jobs: readonly JobView[], signal: AbortSignal): Promise<void> {
  let counts = sumOf(jobs);
  const total = jobs.reduce((sum, { count }) => sum + count, 0);
  const usages = await Promise.all(jobs.map(({ id }) => client.ask("usage", { job: id }).catch(() => undefined)));
  // All may have ended meanwhile: a bar that begins now would stay on the screen.
  if (signal.aborted) return;
  const starts = usages.flatMap((usage) => (usage === undefined || usage.firstStart === 0 ? [] : [usage.firstStart]));
  const since = starts.length === 0 ? undefined : Math.min(...starts);
  const progress = new ProgressBar(process.stderr, total, since === undefined ? endedOf(counts) : 0, since);
  signal.addEventListener("abort", () => progress.end());
  progress.begin(counts);
  const explainAt = Date.now() + EXPLAIN_AFTER_MS;
  let explained = false;
  while (!signal.aborted) {
    try {
      const views = await Promise.all(jobs.map(({ id }) => getJob(client, id)));
      counts = sumOf(views);
      const [first] = views.filter(({ ended }) => ended === undefined).sort((a, b) => a.id - b.id);
      if (!explained && Date.now() >= explainAt && first !== undefined) {
        explained = true;
        const idle = endedOf(counts) === 0 && views.every(({ counters }) => counters.running === 0);
        if (idle) await explainWaiting(client, { job: first.id, count: first.count, endedBefore: new Set() }, progress);
      }
    } catch {
      // The broker is away, or a job was removed. `waitForAll` reports it.
    }
    progress.update(counts);
    await pause(PROGRESS_MS, undefined, { signal }).catch(() => {});
  }
}

const endedOf = ({ succeeded, failed, cancelled }: TaskCounts): number => succeeded + failed + cancelled;

function sumOf(jobs: readonly JobView[]): TaskCounts {
  const sum = { succeeded: 0, failed: 0, cancelled: 0 };
  for (const { counters } of jobs) {
    sum.succeeded += counters.succeeded;
    sum.failed += counters.failed;
    sum.cancelled += counters.cancelled;
  }
  return sum;
}

function deadlineError(open: readonly number[], timeoutMs: number): LaboroError {
  const [first] = open;
  const which = open.length === 1 ? `job ${first} has` : `jobs ${open.join(", ")} have`;
  const text = `${which} not ended within ${formatDuration(timeoutMs)}; laboro status ${first} shows its progress`;
  return new LaboroError("LABORO_DEADLINE", text);
}
