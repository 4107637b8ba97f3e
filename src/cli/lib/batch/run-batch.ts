/**
 * One `run` from beginning to end, on whatever broker it has:
 *
 *   begun        submitted, or found where an earlier run left it
 *   running      tasks end and are shown
 *   interrupted  Ctrl-C: the job is held, what runs may end; a second one stops it
 *   ended        all tasks have ended, or an interrupted one has none left that run
 */

import { LaboroError } from "../../../base/errors.js";
import { shortDuration } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import { EXIT } from "../failures.js";
import type { Interrupt } from "../interrupt.js";
import type { TaskView } from "../views.js";
import { BatchWatcher } from "./batch-watcher.js";
import { JobLog } from "./joblog.js";
import { streamOutput } from "./live-output.js";
import { OutputPrinter, type OutputOptions } from "./output-printer.js";
import { ProgressBar, type TaskCounts } from "./progress-bar.js";
import type { StartedBatch } from "./resume.js";

export interface BatchOptions extends OutputOptions {
  readonly joblog?: string;
  /** A single task: its output is shown as it comes. */
  readonly live: boolean;
}

/** Gives a client of the broker; called again when the one it gave has lost its broker. */
export type ConnectBroker = () => Promise<Client>;

/** Nothing running for so long is worth a word. */
const EXPLAIN_AFTER_MS = 2_000;
/** How many failures are named at the end. */
const MAX_LISTED_FAILURES = 10;

/** `start` submits the batch, or finds it; the tasks that end from then on are shown. */
export async function runBatch(
  reach: ConnectBroker,
  start: (client: Client) => Promise<StartedBatch>,
  options: BatchOptions,
  interrupt: Interrupt,
): Promise<number> {
  const started = Date.now();
  // Before anything is begun: a log that cannot be written is a mistake in the command.
  const log = options.joblog === undefined ? undefined : new JobLog(options.joblog);
  const broker = new ReconnectingClient(reach, await reach());
  const { last } = await broker.client.ask("events", { limit: 1, waitMs: 0 });
  const begun = await start(broker.client);
  const { job, count, doneBefore: before, labelOf } = begun;
  if (begun.resumed) process.stderr.write(`going on with job ${job}: ${before} of ${before + begun.remaining} are done\n`);
  if (begun.differenceText !== undefined)
    process.stderr.write(`${begun.differenceText}; --fresh begins anew with what you say now\n`);
  const progress = new ProgressBar(process.stderr, count, begun.endedBefore.size);
  const show = new OutputPrinter(options, labelOf, () => progress.clear());
  const failures: TaskView[] = [];
  const watch = new BatchWatcher(job, last, {
    onEnded: async (tasks) => {
      if (!options.live) await show.add(broker.client, job, tasks);
      for (const task of tasks) {
        log?.add(task, begun.commandOf(task.index));
        if (task.state === "failed") failures.push(task);
      }
    },
    onCounters: (now) => progress.update(now),
  });
  for (const index of begun.endedBefore) {
    watch.skip(index);
    show.skip(index);
  }
  if (!options.live) progress.begin({ succeeded: begun.endedBefore.size, failed: 0, cancelled: 0 });
  const unwanted = new AbortController();
  const live = options.live ? streamOutput(() => broker.client, job, unwanted.signal) : undefined;
  const stopping = handleInterrupt(() => broker.client, job, interrupt, progress);
  const silence = setTimeout(() => void explainWaiting(broker.client, begun, progress).catch(() => {}), EXPLAIN_AFTER_MS);
  const end = await broker.withRetry((client) => watch.waitForEnd(client, stopping.done));
  clearTimeout(silence);
  stopping.dispose();
  if (end === undefined) unwanted.abort();
  await live;
  await broker.withRetry((client) => show.finish(client, job));
  progress.end();
  log?.close();
  const view = await broker.withRetry((client) => client.ask("job", { job }));
  printFailures(failures, labelOf, view.count);
  printSummary(job, view.count, view.counters, Date.now() - started, end === undefined);
  if (end === undefined) return EXIT.interrupted;
  return end === "succeeded" ? EXIT.ok : EXIT.failed;
}

/** A broker that goes away is followed by the next one. */
class ReconnectingClient {
  readonly #reach: ConnectBroker;
  client: Client;

  constructor(reach: ConnectBroker, client: Client) {
    this.#reach = reach;
    this.client = client;
  }

  /** For what may be asked again. */
  async withRetry<T>(act: (client: Client) => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await act(this.client);
      } catch (cause) {
        if (!(cause instanceof LaboroError) || !/^LABORO_BROKER_/.test(cause.code)) throw cause;
        this.client = await this.#reach();
      }
    }
  }
}

/** Nothing runs yet: say what `laboro explain` would. */
async function explainWaiting(client: Client, { job, count, endedBefore: ended }: StartedBatch, progress: ProgressBar): Promise<void> {
  const { tasks } = await client.ask("running", { job, limit: 1 });
  let first = 0;
  while (ended.has(first)) first++;
  if (tasks.length > 0 || first >= count) return;
  const task = await client.ask("task", { job, index: first });
  if (task.state !== "waiting") return;
  progress.clear();
  process.stderr.write(`nothing runs yet: ${task.reason}\n`);
}

/** Once: hold. Twice: stop what runs, by cancelling nothing: the worker gives it back. */
function handleInterrupt(
  currentClient: () => Client,
  job: number,
  interrupt: Interrupt,
  progress: ProgressBar,
): { done: AbortSignal; dispose(): void } {
  const over = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const first = (): void => {
    progress.clear();
    process.stderr.write("stopping: what runs may end; Ctrl-C again stops it too\n");
    void currentClient()
      .ask("hold", { job })
      .catch(() => {});
    // Held, it never ends: it is over when nothing of it is at a worker.
    timer = setInterval(() => {
      void currentClient()
        .ask("running", { job, limit: 1 })
        .then(({ tasks }) => tasks.length === 0 && over.abort())
        .catch(() => over.abort());
    }, 100);
  };
  const second = (): void => over.abort();
  interrupt.once.addEventListener("abort", first, { once: true });
  interrupt.twice.addEventListener("abort", second, { once: true });
  return { done: over.signal, dispose: () => clearInterval(timer) };
}

function printFailures(failures: readonly TaskView[], labelOf: (index: number) => string, count: number): void {
  for (const { index, code, signal, timedOut, error } of failures.slice(0, MAX_LISTED_FAILURES)) {
    const how = error ?? (timedOut === true ? "time limit" : signal !== undefined ? signal : `exit code ${code}`);
    process.stderr.write(
      count === 1
        ? `${how}
`
        : `task ${index} (${labelOf(index)}): ${how}
`,
    );
  }
  if (failures.length > MAX_LISTED_FAILURES) process.stderr.write(`and ${failures.length - MAX_LISTED_FAILURES} more that failed\n`);
}

function printSummary(
  job: number,
  count: number,
  { succeeded, failed, cancelled }: TaskCounts,
  ms: number,
  interrupted: boolean,
): void {
  const parts = [`${succeeded} succeeded`];
  if (failed > 0) parts.push(`${failed} failed`);
  if (cancelled > 0) parts.push(`${cancelled} cancelled`);
  const left = count - succeeded - failed - cancelled;
  if (left > 0) parts.push(`${left} left`);
  process.stderr.write(`${count} ${count === 1 ? "task" : "tasks"}: ${parts.join(", ")} in ${shortDuration(ms)}\n`);
  if (interrupted) process.stderr.write("the same command goes on where this one stopped\n");
  else if (failed > 0) process.stderr.write(`to run the failed ones again: laboro rerun ${job} --failed\n`);
}
