/**
 * One `run` from start to end, on any broker:
 *
 *   started      submitted, or an earlier batch resumed
 *   running      tasks end and their output is printed
 *   interrupted  Ctrl-C: the job is held, running tasks may end; a second Ctrl-C stops them. Output that cannot be written: the job is
 *                held, its running tasks are stopped and return to the queue
 *   ended        all tasks have ended, or after an interrupt no task runs
 */

import { LaboroError } from "../../../base/errors.js";
import { shortDuration } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import { taskNumber } from "../../../model/task-numbers.js";
import { EXIT } from "../failures.js";
import type { Interrupt } from "../interrupt.js";
import { OutputWriter } from "../output-writer.js";
import { escapeLines } from "../print.js";
import { outcomeText, taskLabel } from "../result-text.js";
import type { JobView, TaskView } from "../views.js";
import { BatchFollower } from "./batch-follower.js";
import { JobLog } from "./joblog.js";
import { LiveOutput } from "./live-output.js";
import { OutputNotices } from "./output-notices.js";
import { type OutputOptions, OutputPrinter } from "./output-printer.js";
import { ProgressBar, type TaskCounts } from "./progress-bar.js";
import { RelaySpool } from "./relay-spool.js";
import type { StartedBatch } from "./resume.js";
import { removeRecord, ShownTasks } from "./shown-tasks.js";

export interface BatchOptions extends OutputOptions {
  /** Where it is recorded what was printed. */
  readonly dir: string;
  readonly joblog?: string;
  /** A single task: its output is shown as it comes. */
  readonly live: boolean;
}

/** Returns a connected client; called again, with the job of this run, when that client has lost its broker. */
export type ConnectBroker = (job?: number) => Promise<Client>;

/** If nothing runs after this time, the reason is printed. */
const EXPLAIN_AFTER_MS = 2_000;
/** How many failures are named at the end. */
const MAX_LISTED = 10;

/** `start` submits the batch or resumes it, or returns undefined where nothing runs; the tasks that end from then on are printed. */
export async function runBatch(
  connectBroker: ConnectBroker,
  start: (client: Client) => Promise<StartedBatch | undefined>,
  options: BatchOptions,
  interrupt: Interrupt,
): Promise<number> {
  const started = Date.now();
  // Before anything starts: a log that cannot be written is a mistake in the command.
  const log = options.joblog === undefined ? undefined : new JobLog(options.joblog);
  const broker = new ReconnectingClient(connectBroker, await connectBroker());
  const batch = await start(broker.client);
  if (batch === undefined) {
    log?.close();
    return EXIT.ok;
  }
  const { job, count, doneBefore, labelOf } = batch;
  log?.begin(batch);
  if (batch.resumed)
    process.stderr.write(`resuming job ${job}: ${doneBefore} of ${doneBefore + batch.remaining} tasks are done\n`);
  if (batch.differenceText !== undefined)
    process.stderr.write(
      `${escapeLines(batch.differenceText)}; --fresh starts a new job with the options of this command\n`,
    );
  const progress = new ProgressBar(process.stderr, count, batch.endedBefore.size);
  const writer = new OutputWriter(interrupt.outputLost);
  const submitted = await broker.withRetry((client) => client.ask("job", { job }));
  const nameOf = (index: number): string =>
    `task ${taskLabel(taskNumber(submitted, index), submitted.hasEntries ? labelOf(index) : undefined)}`;
  const clear = (): void => progress.clear();
  const notices = new OutputNotices({ nameOf, outputCap: submitted.limits.outputCap, clear });
  const relayed = new RelaySpool();
  const onPrinted = (record: ShownTasks | undefined, tasks: readonly TaskView[], missingBytes: number): void => {
    if (!writer.stopped) record?.add(...tasks);
    for (const task of tasks) notices.add(task, missingBytes, relayed.failure);
  };
  // The output of a single task is printed as it comes: from its beginning, at each start.
  const shown = options.live ? undefined : new ShownTasks(options.dir, submitted, batch.shownBefore);
  const earlier = batch.earlier.filter((one) => one.job.id !== job || shown !== undefined);
  for (const record of batch.dropped ?? []) removeRecord(options.dir, record);
  const records = earlier.map(
    (one) => (one.job.id === job ? shown : undefined) ?? new ShownTasks(options.dir, one.job),
  );
  for (const [i, { job: from, ended, labelOf: earlierLabel }] of earlier.entries()) {
    const left = new Set(records[i]?.unshown(ended));
    const printEarlier = new OutputPrinter(
      { ...options, keepOrder: false },
      {
        ...{ writer, relayed, labelOf: earlierLabel, clear },
        onPrinted: (tasks, missingBytes) => {
          for (const task of tasks) left.delete(task);
          onPrinted(records[i], tasks, missingBytes);
        },
      },
    );
    await broker.withRetry((client) => printEarlier.add(client, from.id, [...left]));
  }
  const printer = new OutputPrinter(options, {
    ...{ writer, relayed, labelOf, clear },
    onPrinted: (tasks, missingBytes) => onPrinted(shown, tasks, missingBytes),
  });
  const liveOutput = options.live ? new LiveOutput(writer) : undefined;
  const failures: TaskView[] = [];
  const follower = new BatchFollower(job, batch.endedBefore, {
    onEnded: async (tasks) => {
      if (liveOutput === undefined) await printer.add(broker.client, job, tasks);
      for (const task of tasks) {
        liveOutput?.taskEnded(task);
        if (task.state === "failed") failures.push(task);
      }
      log?.add(tasks, batch.commandOf);
    },
    onProgress: ({ counters, running }) => {
      if (counters !== undefined) progress.update(counters);
      if (running !== undefined) liveOutput?.outputStored();
    },
    relay: (output) => (liveOutput ?? relayed).take(output),
    live: options.live,
  });
  broker.onReconnected(job, async (client) => {
    // The process that opened the data after the end of another run has held the jobs that are not its own.
    if (!follower.held && !interrupt.once.aborted && !interrupt.outputLost.aborted) await releaseIfHeld(client, job);
  });
  for (const index of batch.endedBefore) printer.skip(index);
  if (!options.live) progress.begin({ succeeded: batch.endedBefore.size, failed: 0, cancelled: 0 });
  const stopLive = new AbortController();
  const live = liveOutput?.print(() => broker.client, job, stopLive.signal);
  const stopping = handleInterrupt(() => broker.client, job, interrupt, progress);
  const explainTimer = setTimeout(
    () => void explainWaiting(broker.client, batch, progress).catch(() => {}),
    EXPLAIN_AFTER_MS,
  );
  const end = await broker.withRetry((client) => follower.waitForEnd(client, stopping.done));
  clearTimeout(explainTimer);
  const isHeld = interrupt.outputLost.aborted && (await stopping.stopped);
  stopping.dispose();
  if (end === undefined) stopLive.abort();
  await live;
  await broker.withRetry((client) => printer.finish(client, job));
  relayed.close();
  writer.endLine();
  progress.end();
  log?.close();
  for (const record of new Set([shown, ...records])) {
    if (end === undefined || interrupt.outputLost.aborted) record?.close();
    else record?.remove();
  }
  if (interrupt.outputLost.aborted) {
    if (isHeld)
      process.stderr.write(
        `laboro: the output can no longer be written: job ${job} is held; the same command resumes it\n`,
      );
    return interrupt.exitCode;
  }
  if (liveOutput?.ended !== undefined) notices.add(liveOutput.ended, end === undefined ? 0 : liveOutput.missingBytes);
  notices.summarize();
  if (failures.length > 0) await printFailures(failures, nameOf, submitted);
  printSummary(job, submitted.count, follower.counters, Date.now() - started, end === undefined);
  if (end === undefined) return interrupt.exitCode;
  return end === "succeeded" && !notices.incomplete ? EXIT.ok : EXIT.failed;
}

/** Reconnects when the broker is gone. */
class ReconnectingClient {
  readonly #connectBroker: ConnectBroker;
  #batch: { readonly job: number; readonly onReconnected: (client: Client) => Promise<void> } | undefined;
  client: Client;

  constructor(connectBroker: ConnectBroker, client: Client) {
    this.#connectBroker = connectBroker;
    this.client = client;
  }

  /** `act` is called with each new client. */
  onReconnected(job: number, act: (client: Client) => Promise<void>): void {
    this.#batch = { job, onReconnected: act };
  }

  /** For operations that may be repeated. */
  async withRetry<T>(act: (client: Client) => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await act(this.client);
      } catch (cause) {
        if (!(cause instanceof LaboroError) || !/^LABORO_BROKER_/.test(cause.code)) throw cause;
        this.client = await this.#connectBroker(this.#batch?.job);
        // If that broker is gone as well, the next operation finds out.
        await this.#batch?.onReconnected(this.client).catch(() => {});
      }
    }
  }
}

async function releaseIfHeld(client: Client, job: number): Promise<void> {
  const { held, state } = await client.ask("job", { job });
  if (held && state === "held") await client.ask("release", { job });
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
  process.stderr.write(`nothing runs yet: ${escapeLines(task.reason ?? "")}\n`);
}

/** First Ctrl-C: holds the job. Second: stops waiting; running tasks are not cancelled, the worker returns them. */
function handleInterrupt(
  currentClient: () => Client,
  job: number,
  interrupt: Interrupt,
  progress: ProgressBar,
): { done: AbortSignal; stopped: Promise<boolean>; dispose(): void } {
  const done = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let stopped = Promise.resolve(false);
  let holding: Promise<unknown> = Promise.resolve();
  const first = (): void => {
    progress.clear();
    const isTerminated = interrupt.once.reason === "SIGTERM";
    process.stderr.write(
      isTerminated
        ? "stopping the running tasks\n"
        : "no new tasks are started; running tasks may finish (Ctrl-C again stops them)\n",
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
  const outputLost = (): void => {
    stopped = import("./stop-tasks.js")
      .then(({ stopRunningTasks }) => stopRunningTasks(currentClient(), job))
      .catch(() => {
        interrupt.stopAtOnce();
        return true;
      })
      .finally(() => done.abort());
  };
  listen(interrupt.once, first);
  listen(interrupt.twice, second);
  listen(interrupt.outputLost, outputLost);
  return {
    done: done.signal,
    get stopped() {
      return stopped;
    },
    dispose: () => clearInterval(timer),
  };
}

/** Calls the listener also if the signal was aborted before. */
function listen(signal: AbortSignal, listener: () => void): void {
  if (signal.aborted) listener();
  else signal.addEventListener("abort", listener, { once: true });
}

type NameTask = (index: number) => string;

async function printFailures(failures: readonly TaskView[], nameOf: NameTask, { limits }: JobView): Promise<void> {
  const inOrder = [...failures].sort((a, b) => a.index - b.index);
  for (const task of inOrder.slice(0, MAX_LISTED))
    process.stderr.write(`${nameOf(task.index)}: ${outcomeText(task, limits.timeLimitMs)}\n`);
  if (failures.length > MAX_LISTED) process.stderr.write(`and ${failures.length - MAX_LISTED} more failed tasks\n`);
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
  if (interrupted) process.stderr.write("the same command resumes where this one stopped\n");
  else if (cancelled > 0) {
    const which = failed > 0 ? "failed and cancelled" : "cancelled";
    process.stderr.write(`to run the ${which} tasks again: laboro rerun ${job}\n`);
  } else if (failed > 0) process.stderr.write(`to run the failed tasks again: laboro rerun ${job} --failed\n`);
}
