/**
 * One `run` from start to end, on any broker:
 *
 *   started      submitted, or an earlier batch resumed
 *   running      tasks end and their output is printed
 *   interrupted  Ctrl-C: the job is held, running tasks may end; a second Ctrl-C stops them
 *   ended        all tasks have ended, or after an interrupt no task runs
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
import { type OutputOptions, OutputPrinter } from "./output-printer.js";
import { ProgressBar, type TaskCounts } from "./progress-bar.js";
import type { StartedBatch } from "./resume.js";

export interface BatchOptions extends OutputOptions {
  readonly joblog?: string;
  /** A single task: its output is shown as it comes. */
  readonly live: boolean;
}

/** Returns a connected client; called again when that client has lost its broker. */
export type ConnectBroker = () => Promise<Client>;

/** If nothing runs after this time, the reason is printed. */
const EXPLAIN_AFTER_MS = 2_000;
/** How many failures are named at the end. */
const MAX_LISTED_FAILURES = 10;

/** `start` submits the batch or resumes it; the tasks that end from then on are printed. */
export async function runBatch(
  connectBroker: ConnectBroker,
  start: (client: Client) => Promise<StartedBatch>,
  options: BatchOptions,
  interrupt: Interrupt,
): Promise<number> {
  const started = Date.now();
  // Before anything starts: a log that cannot be written is a mistake in the command.
  const log = options.joblog === undefined ? undefined : new JobLog(options.joblog);
  const broker = new ReconnectingClient(connectBroker, await connectBroker());
  const { last } = await broker.client.ask("events", { limit: 1, waitMs: 0 });
  const batch = await start(broker.client);
  const { job, count, doneBefore, labelOf } = batch;
  if (batch.resumed)
    process.stderr.write(`going on with job ${job}: ${doneBefore} of ${doneBefore + batch.remaining} are done\n`);
  if (batch.differenceText !== undefined)
    process.stderr.write(`${batch.differenceText}; --fresh starts a new job with the options given now\n`);
  const progress = new ProgressBar(process.stderr, count, batch.endedBefore.size);
  const printer = new OutputPrinter(options, labelOf, () => progress.clear());
  const failures: TaskView[] = [];
  const watcher = new BatchWatcher(job, last, {
    onEnded: async (tasks) => {
      if (!options.live) await printer.add(broker.client, job, tasks);
      for (const task of tasks) {
        log?.add(task, batch.commandOf(task.index));
        if (task.state === "failed") failures.push(task);
      }
    },
    onCounters: (counters) => progress.update(counters),
  });
  for (const index of batch.endedBefore) {
    watcher.skip(index);
    printer.skip(index);
  }
  if (!options.live) progress.begin({ succeeded: batch.endedBefore.size, failed: 0, cancelled: 0 });
  const stopLive = new AbortController();
  const live = options.live ? streamOutput(() => broker.client, job, stopLive.signal) : undefined;
  const stopping = handleInterrupt(() => broker.client, job, interrupt, progress);
  const explainTimer = setTimeout(
    () => void explainWaiting(broker.client, batch, progress).catch(() => {}),
    EXPLAIN_AFTER_MS,
  );
  const end = await broker.withRetry((client) => watcher.waitForEnd(client, stopping.done));
  clearTimeout(explainTimer);
  stopping.dispose();
  if (end === undefined) stopLive.abort();
  await live;
  await broker.withRetry((client) => printer.finish(client, job));
  progress.end();
  log?.close();
  const view = await broker.withRetry((client) => client.ask("job", { job }));
  printFailures(failures, labelOf, view.count);
  printSummary(job, view.count, view.counters, Date.now() - started, end === undefined);
  if (end === undefined) return EXIT.interrupted;
  return end === "succeeded" ? EXIT.ok : EXIT.failed;
}

/** Reconnects when the broker is gone. */
class ReconnectingClient {
  readonly #connectBroker: ConnectBroker;
  client: Client;

  constructor(connectBroker: ConnectBroker, client: Client) {
    this.#connectBroker = connectBroker;
    this.client = client;
  }

  /** For operations that may be repeated. */
  async withRetry<T>(act: (client: Client) => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await act(this.client);
      } catch (cause) {
        if (!(cause instanceof LaboroError) || !/^LABORO_BROKER_/.test(cause.code)) throw cause;
        this.client = await this.#connectBroker();
      }
    }
  }
}

/** Prints why nothing runs yet, as `laboro explain` does. */
async function explainWaiting(
  client: Client,
  { job, count, endedBefore }: StartedBatch,
  progress: ProgressBar,
): Promise<void> {
  const { tasks } = await client.ask("running", { job, limit: 1 });
  let first = 0;
  while (endedBefore.has(first)) first++;
  if (tasks.length > 0 || first >= count) return;
  const task = await client.ask("task", { job, index: first });
  if (task.state !== "waiting") return;
  progress.clear();
  process.stderr.write(`nothing runs yet: ${task.reason}\n`);
}

/** First Ctrl-C: holds the job. Second: stops waiting; running tasks are not cancelled, the worker returns them. */
function handleInterrupt(
  currentClient: () => Client,
  job: number,
  interrupt: Interrupt,
  progress: ProgressBar,
): { done: AbortSignal; dispose(): void } {
  const done = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let holding: Promise<unknown> = Promise.resolve();
  const first = (): void => {
    progress.clear();
    const isTerminated = interrupt.once.reason === "SIGTERM";
    process.stderr.write(
      isTerminated ? "stopping, with what runs\n" : "stopping: what runs may end; Ctrl-C again stops it too\n",
    );
    holding = currentClient()
      .ask("hold", { job })
      .catch(() => {});
    // A held job never ends: the run is over when no task of it is at a worker.
    timer = setInterval(() => {
      void currentClient()
        .ask("running", { job, limit: 1 })
        .then(({ tasks }) => tasks.length === 0 && done.abort())
        .catch(() => done.abort());
    }, 100);
  };
  // After SIGTERM the first and the second come together.
  const second = (): void => void holding.then(() => done.abort());
  interrupt.once.addEventListener("abort", first, { once: true });
  interrupt.twice.addEventListener("abort", second, { once: true });
  // A signal that came before the batch had started.
  if (interrupt.once.aborted) first();
  if (interrupt.twice.aborted) second();
  return { done: done.signal, dispose: () => clearInterval(timer) };
}

function printFailures(failures: readonly TaskView[], labelOf: (index: number) => string, count: number): void {
  for (const { index, code, signal, timedOut, error } of failures.slice(0, MAX_LISTED_FAILURES)) {
    const how = error ?? (timedOut === true ? "time limit" : signal !== undefined ? signal : `exit code ${code}`);
    process.stderr.write(count === 1 ? `${how}\n` : `task ${index} (${labelOf(index)}): ${how}\n`);
  }
  if (failures.length > MAX_LISTED_FAILURES)
    process.stderr.write(`and ${failures.length - MAX_LISTED_FAILURES} more that failed\n`);
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
