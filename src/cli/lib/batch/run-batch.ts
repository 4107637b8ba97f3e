/**
 * One `run` from beginning to end, on whatever broker it has:
 *
 *   begun        submitted, or found where an earlier run left it
 *   running      tasks end and are shown
 *   interrupted  Ctrl-C: the job is held, what runs may end; a second one stops it
 *   ended        all tasks have ended, or an interrupted one has none left that run
 */

import { LaboroError } from "../../../base/errors.js";
import { shownDuration } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import { EXIT } from "../failures.js";
import type { Interrupt } from "../interrupt.js";
import type { TaskView } from "../views.js";
import { Watch } from "./batch-watcher.js";
import { JobLog } from "./joblog.js";
import { showLive } from "./live-output.js";
import { Show, type ShowOptions } from "./output-printer.js";
import { Progress, type Standing } from "./progress-bar.js";
import type { Begun } from "./resume.js";

export interface BatchOptions extends ShowOptions {
  readonly joblog?: string;
  /** A single task: its output is shown as it comes. */
  readonly live: boolean;
}

/** Gives a client of the broker; called again when the one it gave has lost its broker. */
export type Reach = () => Promise<Client>;

/** Nothing running for so long is worth a word. */
const SILENCE_MS = 2_000;
/** How many failures are named at the end. */
const NAMED = 10;

/** `start` submits the batch, or finds it; the tasks that end from then on are shown. */
export async function runBatch(
  reach: Reach,
  start: (client: Client) => Promise<Begun>,
  options: BatchOptions,
  interrupt: Interrupt,
): Promise<number> {
  const started = Date.now();
  // Before anything is begun: a log that cannot be written is a mistake in the command.
  const log = options.joblog === undefined ? undefined : new JobLog(options.joblog);
  const broker = new Lasting(reach, await reach());
  const { last } = await broker.client.ask("events", { limit: 1, waitMs: 0 });
  const begun = await start(broker.client);
  const { job, count, before, labelOf } = begun;
  if (begun.resumed) process.stderr.write(`going on with job ${job}: ${before} of ${before + begun.left} are done\n`);
  if (begun.differs !== undefined)
    process.stderr.write(`${begun.differs}; --fresh begins anew with what you say now\n`);
  const progress = new Progress(process.stderr, count, begun.ended.size);
  const show = new Show(options, labelOf, () => progress.clear());
  const failures: TaskView[] = [];
  const watch = new Watch(job, last, {
    ended: async (tasks) => {
      if (!options.live) await show.add(broker.client, job, tasks);
      for (const task of tasks) {
        log?.add(task, begun.commandOf(task.index));
        if (task.state === "failed") failures.push(task);
      }
    },
    standing: (now) => progress.update(now),
  });
  for (const index of begun.ended) {
    watch.skip(index);
    show.passed(index);
  }
  if (!options.live) progress.begin({ succeeded: begun.ended.size, failed: 0, cancelled: 0 });
  const unwanted = new AbortController();
  const live = options.live ? showLive(() => broker.client, job, unwanted.signal) : undefined;
  const stopping = obeyInterrupt(() => broker.client, job, interrupt, progress);
  const silence = setTimeout(() => void sayWhy(broker.client, begun, progress).catch(() => {}), SILENCE_MS);
  const end = await broker.lasting((client) => watch.toEnd(client, stopping.over));
  clearTimeout(silence);
  stopping.dispose();
  if (end === undefined) unwanted.abort();
  await live;
  await broker.lasting((client) => show.finish(client, job));
  progress.end();
  log?.close();
  const view = await broker.lasting((client) => client.ask("job", { job }));
  sayFailures(failures, labelOf, view.count);
  sayEnd(job, view.count, view.counters, Date.now() - started, end === undefined);
  if (end === undefined) return EXIT.interrupted;
  return end === "succeeded" ? EXIT.ok : EXIT.failed;
}

/** A broker that goes away is followed by the next one. */
class Lasting {
  readonly #reach: Reach;
  client: Client;

  constructor(reach: Reach, client: Client) {
    this.#reach = reach;
    this.client = client;
  }

  /** For what may be asked again. */
  async lasting<T>(act: (client: Client) => Promise<T>): Promise<T> {
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
async function sayWhy(client: Client, { job, count, ended }: Begun, progress: Progress): Promise<void> {
  const { tasks } = await client.ask("running", { job, limit: 1 });
  let first = 0;
  while (ended.has(first)) first++;
  if (tasks.length > 0 || first >= count) return;
  const task = await client.ask("task", { job, index: first });
  if (task.state !== "waiting") return;
  progress.clear();
  process.stderr.write(`nothing runs yet: ${task.why}\n`);
}

/** Once: hold. Twice: stop what runs, by cancelling nothing: the worker gives it back. */
function obeyInterrupt(
  now: () => Client,
  job: number,
  interrupt: Interrupt,
  progress: Progress,
): { over: AbortSignal; dispose(): void } {
  const over = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const first = (): void => {
    progress.clear();
    process.stderr.write("stopping: what runs may end; Ctrl-C again stops it too\n");
    void now()
      .ask("hold", { job })
      .catch(() => {});
    // Held, it never ends: it is over when nothing of it is at a worker.
    timer = setInterval(() => {
      void now()
        .ask("running", { job, limit: 1 })
        .then(({ tasks }) => tasks.length === 0 && over.abort())
        .catch(() => over.abort());
    }, 100);
  };
  const second = (): void => over.abort();
  interrupt.once.addEventListener("abort", first, { once: true });
  interrupt.twice.addEventListener("abort", second, { once: true });
  return { over: over.signal, dispose: () => clearInterval(timer) };
}

function sayFailures(failures: readonly TaskView[], labelOf: (index: number) => string, count: number): void {
  for (const { index, code, signal, timedOut, error } of failures.slice(0, NAMED)) {
    const how = error ?? (timedOut === true ? "time limit" : signal !== undefined ? signal : `exit code ${code}`);
    process.stderr.write(
      count === 1
        ? `${how}
`
        : `task ${index} (${labelOf(index)}): ${how}
`,
    );
  }
  if (failures.length > NAMED) process.stderr.write(`and ${failures.length - NAMED} more that failed\n`);
}

function sayEnd(
  job: number,
  count: number,
  { succeeded, failed, cancelled }: Standing,
  ms: number,
  interrupted: boolean,
): void {
  const parts = [`${succeeded} succeeded`];
  if (failed > 0) parts.push(`${failed} failed`);
  if (cancelled > 0) parts.push(`${cancelled} cancelled`);
  const left = count - succeeded - failed - cancelled;
  if (left > 0) parts.push(`${left} left`);
  process.stderr.write(`${count} ${count === 1 ? "task" : "tasks"}: ${parts.join(", ")} in ${shownDuration(ms)}\n`);
  if (interrupted) process.stderr.write("the same command goes on where this one stopped\n");
  else if (failed > 0) process.stderr.write(`to run the failed ones again: laboro rerun ${job} --failed\n`);
}
