/**
 * One `run` from start to end, on any broker:
 *
 *   started      submitted, or an earlier batch resumed
 *   running      tasks end and their output is printed
 *   interrupted  Ctrl-C: the job is held, running tasks may finish; a second Ctrl-C stops them. If the output cannot be
 *                written, the job is held, its running tasks are stopped and return to the queue
 *   ended        all tasks have ended, or after an interrupt no task runs
 */
import { constants } from "node:os";
import { LaboroError } from "../../../base/errors.js";
import { shortDuration } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import { leftToHalt } from "../../../model/job.js";
import { taskNumber } from "../../../model/task-numbers.js";
import { EXIT } from "../failures.js";
import type { Interrupt } from "../interrupt.js";
import { escapeLines, printNotice } from "../print.js";
import { type JobView, outcomeText, type TaskView, taskLabel } from "../result-text.js";
import { type HaltOption, haltedExitCode } from "../submission/parallel-options.js";
import { RelaySpool } from "../task-output/attempt-output.js";
import { OutputPrinter } from "../task-output/output-printer.js";
import { LineOutput, OutputWriter, type TaskWriter } from "../task-output/output-writer.js";
import { JobLog, OutputNotices, type ResultFiles, removeRecord, ShownTasks } from "./batch-files.js";
import { BatchFollower } from "./batch-follower.js";
import { EXPLAIN_AFTER_MS, explainWaiting } from "./explain-waiting.js";
import { ProgressBar, type TaskCounts } from "./progress-bar.js";
import type { StartedBatch } from "./resume.js";

interface BatchOptions {
  readonly keepOrder: boolean;
  /** The entry before each line. */
  readonly tag: boolean;
  /** Lines of running tasks are printed as they come, so each task's output is whole lines. */
  readonly lineBuffer?: boolean;
  /** Directory of the records of printed output (batch-files.ts). */
  readonly dir: string;
  readonly joblog?: string;
  readonly halt?: HaltOption | undefined;
  readonly results?: ResultFiles | undefined;
  /** A single task: its output is printed as it arrives. */
  readonly live: boolean;
}

/** Returns a connected client. Called again, with the job of this run, when the broker disconnects. */
export type ConnectBroker = (job?: number) => Promise<Client>;

/** How many failures are listed at the end. */
const MAX_LISTED = 10;

/** `start` submits or resumes the batch. It returns undefined if there is nothing to run. */
export async function runBatch(
  connectBroker: ConnectBroker,
  start: (client: Client) => Promise<StartedBatch | undefined>,
  options: BatchOptions,
  interrupt: Interrupt,
): Promise<number> {
  const started = Date.now();
  // Opened before anything starts: a log that cannot be written is an error in the command.
  const log = options.joblog === undefined ? undefined : new JobLog(options.joblog);
  const broker = new ReconnectingClient(connectBroker, await connectBroker());
  // The broker of another run may end meanwhile. What was submitted there is found and resumed.
  const batch = await broker.withRetry(start);
  if (batch === undefined) {
    log?.close();
    return EXIT.ok;
  }
  const { job, count, doneBefore, labelOf } = batch;
  let follower: BatchFollower | undefined;
  let mustRelease = false;
  broker.onReconnected(job, async (client) => {
    // When another run ends, the next process that opens the data holds the jobs of all other runs. So this run
    // releases its own job, unless it was held before. If that broker ends before it answers, `held` may be the hold of
    // the next process, which is asked again.
    mustRelease ||= follower?.held !== true;
    if (!mustRelease || interrupt.once.aborted || interrupt.outputLost.aborted) return;
    await releaseIfHeld(client, job);
    mustRelease = false;
  });
  log?.begin(batch);
  if (batch.resumed)
    process.stderr.write(`resuming job ${job}: ${doneBefore} of ${doneBefore + batch.remaining} tasks are done\n`);
  if (batch.differenceText !== undefined)
    process.stderr.write(
      `${escapeLines(batch.differenceText)}; --fresh starts a new job with the options of this command\n`,
    );
  const progress = new ProgressBar(process.stderr, count, batch.endedBefore.size);
  const submitted = await broker.withRetry((client) => client.ask("job", { job }));
  const nameOf = (index: number): string =>
    `task ${taskLabel(taskNumber(submitted, index), submitted.hasEntries ? labelOf(index) : undefined)}`;
  const clear = (): void => progress.clear();
  const writer = new OutputWriter({ stop: interrupt.outputLost, clear });
  const notices = new OutputNotices({ nameOf, outputCap: submitted.limits.outputCap, clear });
  const relayed = new RelaySpool();
  const withRetry: typeof broker.withRetry = (act) => broker.withRetry(act);
  const { tag, keepOrder, lineBuffer = false } = options;
  const { results } = options;
  const isLive = results === undefined && (options.live || lineBuffer);
  const printerOf = (
    from: number,
    labels: (index: number) => string,
    record: ShownTasks | undefined,
    how: { readonly keepOrder?: boolean; readonly live?: boolean } = {},
  ): OutputPrinter => {
    const lines = (index: number): TaskWriter => new LineOutput(writer, tag ? `${labels(index)}\t` : "");
    return new OutputPrinter({
      ...{ job: from, withRetry, relayed, writer, writerOf: tag || lineBuffer ? lines : () => writer, ...how },
      onPrinted: (tasks, missingBytes) => {
        if (!writer.stopped) record?.add(...tasks);
        for (const task of tasks) notices.add(task, missingBytes, relayed.failure);
      },
    });
  };
  // The output of a single task is printed live, and from its beginning at each start, so nothing is recorded.
  const shown = options.live ? undefined : new ShownTasks(options.dir, submitted, batch.shownBefore);
  const earlier = batch.earlier.filter((one) => one.job.id !== job || shown !== undefined);
  for (const record of batch.dropped ?? []) removeRecord(options.dir, record);
  const records = earlier.map(
    (one) => (one.job.id === job ? shown : undefined) ?? new ShownTasks(options.dir, one.job),
  );
  let filesMissing = 0;
  const { returns } = submitted.recipe.files ?? {};
  const { FileReceiver } = returns === undefined ? {} : await import("../../../client/task-files.js");
  const receiver = FileReceiver && new FileReceiver(returns ?? [], process.cwd());
  const receive = async (from: number, tasks: Iterable<TaskView>): Promise<void> => {
    for (const task of receiver === undefined ? [] : tasks)
      try {
        await receiver?.receive(broker.client, from, task);
      } catch (cause) {
        if (!(cause instanceof LaboroError) || /^LABORO_BROKER_/.test(cause.code)) throw cause;
        clear();
        if (++filesMissing <= MAX_LISTED)
          printNotice(
            `${nameOf(task.index)}: its files were not fetched: ${cause.message}; again: laboro fetch ${from}`,
          );
      }
  };
  const before = batch.earlier.find((one) => one.job.id === job);
  await broker.withRetry(() => receive(job, (options.live ? before?.ended : undefined) ?? []));
  for (const [i, { job: from, ended, labelOf: earlierLabel }] of earlier.entries()) {
    const left = records[i]?.unshown(ended) ?? [];
    await broker.withRetry(() => receive(from.id, left));
    if (from.id !== job || results === undefined) await printerOf(from.id, earlierLabel, records[i]).add(left);
  }
  const entryOf = batch.entryOf ?? (() => undefined);
  if (results !== undefined)
    await broker.withRetry((client) => results.saveMissing(client, job, before?.ended ?? [], entryOf));
  const printer = printerOf(job, labelOf, shown, { keepOrder, live: isLive });
  const failures: TaskView[] = [];
  const batchFollower = new BatchFollower(job, batch.endedBefore, {
    onEnded: async (tasks) => {
      await withRetry(() => receive(job, tasks));
      if (results === undefined) await printer.add(tasks);
      else {
        // As with GNU parallel, output that goes to files is not printed.
        await withRetry((client) => results.save(client, job, tasks, entryOf));
        shown?.add(...tasks);
        for (const task of tasks) notices.add(task, 0);
      }
      for (const task of tasks) if (task.state === "failed") failures.push(task);
      log?.add(tasks, batch.commandOf);
    },
    onProgress: ({ counters, running }) => {
      if (counters !== undefined) progress.update(counters);
      if (running !== undefined) printer.outputStored(running);
    },
    relay: async (output) => (results === undefined ? printer.take(output) : undefined),
    live: isLive,
  });
  follower = batchFollower;
  for (const index of batch.endedBefore) printer.skip(index);
  if (!options.live)
    progress.begin({ succeeded: batch.endedBefore.size, failed: 0, cancelled: 0 }, () => writer.isLineOpen);
  const stopping = handleInterrupt(() => broker.client, job, interrupt, progress);
  const explainTimer = setTimeout(
    () => void explainWaiting(broker.client, batch, progress).catch(() => {}),
    EXPLAIN_AFTER_MS,
  );
  const end = await broker.withRetry((client) => batchFollower.waitForEnd(client, stopping.done));
  clearTimeout(explainTimer);
  const isHeld = interrupt.outputLost.aborted && (await stopping.stopped);
  stopping.dispose();
  await printer.finish();
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
  notices.summarize();
  if (failures.length > 0) await printFailures(failures, nameOf, submitted);
  printSummary(job, submitted.count, batchFollower.counters, Date.now() - started, end === undefined);
  if (end === undefined) return interrupt.exitCode;
  if (options.halt?.rule !== undefined && submitted.limits.halt !== undefined && !notices.incomplete) {
    const { counters } = batchFollower;
    if (leftToHalt(submitted.limits.halt, counters) <= 0)
      return haltedExitCode(options.halt, counters, count, exitCodeOf(failures[0]));
  }
  return end === "succeeded" && !notices.incomplete && filesMissing === 0 ? EXIT.ok : EXIT.failed;
}

/** As a shell reports it. */
function exitCodeOf({ code, signal }: Partial<TaskView> = { code: 0 }): number {
  return signal === undefined ? (code ?? EXIT.failed) : 128 + (constants.signals[signal as NodeJS.Signals] ?? 0);
}

/** Reconnects when the broker disconnects. */
class ReconnectingClient {
  readonly #connectBroker: ConnectBroker;
  #batch: { readonly job: number; readonly onReconnected: (client: Client) => Promise<void> } | undefined;
  #reconnecting: Promise<void> | undefined;
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
      const { client } = this;
      try {
        return await act(client);
      } catch (cause) {
        if (!(cause instanceof LaboroError) || !/^LABORO_BROKER_/.test(cause.code)) throw cause;
        // Several operations may fail with one connection.
        if (client === this.client)
          this.#reconnecting ??= this.#reconnect().finally(() => {
            this.#reconnecting = undefined;
          });
        await this.#reconnecting;
      }
    }
  }

  async #reconnect(): Promise<void> {
    this.client = await this.#connectBroker(this.#batch?.job);
    if (this.client.closed) throw new LaboroError("LABORO_BROKER_GONE", "this client was closed");
    // If that broker disconnects as well, the next operation fails and reconnects.
    await this.#batch?.onReconnected(this.client).catch(() => {});
  }
}

async function releaseIfHeld(client: Client, job: number): Promise<void> {
  const { held, state } = await client.ask("job", { job });
  if (held && state === "held") await client.ask("release", { job });
}

/** First Ctrl-C: holds the job. Second: stops waiting; running tasks are not cancelled, the worker returns them. */
function handleInterrupt(
  currentClient: () => Client,
  job: number,
  interrupt: Interrupt,
  progress: ProgressBar,
): { done: AbortSignal; stopped: Promise<boolean>; dispose(): void } {
  const done = new AbortController();
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
    // A held job never ends. The run ends when no worker has a task of it.
    const allReturned = async (): Promise<void> => {
      await holding;
      while (!done.signal.aborted && (await currentClient().ask("running", { job, limit: 1 })).assigned !== undefined)
        await new Promise((resolve) => setTimeout(resolve, INTERRUPTED_POLL_MS));
      // Stored after the results of tasks that have just ended, so these can be read when it is answered.
      await currentClient().ask("hold", { job });
    };
    void allReturned()
      .catch(() => {})
      .then(() => done.abort());
  };
  // SIGTERM aborts both signals at once.
  const second = (): void => void holding.then(() => done.abort());
  const outputLost = (): void => {
    stopped = stopRunningTasks(currentClient(), job)
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
    dispose: () => done.abort(),
  };
}

/** Also calls the listener if the signal is already aborted. */
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

const INTERRUPTED_POLL_MS = 100;
const POLL_MS = 50;
/** Longer than a worker's grace for cancelled tasks. */
const DEADLINE_MS = 10_000;

/**
 * Stops the running tasks of a job so that a later run can resume it: holds the job and returns the tasks to the queue.
 * Returns false if the job has ended. Rejects if a task does not end in time, or the broker disconnects.
 */
async function stopRunningTasks(client: Client, job: number): Promise<boolean> {
  const deadline = Date.now() + DEADLINE_MS;
  if ((await client.ask("wait", { job, timeoutMs: 0 })).ended) return false;
  await client.ask("hold", { job });
  const cancelled = new Set<number>();
  for (;;) {
    const { tasks } = await client.ask("running", { job });
    if (tasks.length === 0) break;
    const added = tasks.map(({ index }) => index).filter((index) => !cancelled.has(index));
    for (const index of added) cancelled.add(index);
    if (added.length > 0)
      await client.ask("cancel", { job, tasks: added.map((index) => ({ first: index, last: index })) });
    if (Date.now() > deadline) throw new LaboroError("LABORO_DEADLINE", `tasks of job ${job} did not stop in time`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  if (cancelled.size === 0) return true;
  const tasks = [...cancelled].map((index) => ({ first: index, last: index }));
  await client.ask("rerun", { job, states: ["cancelled"], tasks });
  return true;
}
