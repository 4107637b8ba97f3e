/**
 * One `run` from beginning to end, on whatever broker it has:
 *
 *   begun        submitted, or found where an earlier run left it
 *   running      tasks end and are shown
 *   interrupted  Ctrl-C: the job is held, what runs may end; a second one stops it
 *   ended        all tasks have ended, or an interrupted one has none left that run
 */
import type { Client } from "../../client/client.js";
import { LaboroError } from "../../model/errors.js";
import type { TaskView } from "../answers.js";
import { EXIT } from "../failures.js";
import { shownDuration } from "../screen/figures.js";
import type { Interrupt } from "./interrupt.js";
import { JobLog } from "./joblog.js";
import { showLive } from "./one.js";
import { Progress, type Standing } from "./progress.js";
import type { Begun } from "./resume.js";
import { Show, type ShowOptions } from "./show.js";
import { Watch } from "./watch.js";

export interface BatchOptions extends ShowOptions {
  readonly joblog?: string;
  /** A single task: its output is shown as it comes. */
  readonly live: boolean;
}

/** Gives a client of the broker; called again when the one it gave has lost its broker. */
export type Reach = () => Promise<Client>;

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
  let client = await reach();
  const { last } = await client.ask("events", { limit: 1, waitMs: 0 });
  const begun = await start(client);
  const { job, count, before, labelOf } = begun;
  if (begun.resumed) process.stderr.write(`going on with job ${job}: ${before} of ${before + begun.left} are done\n`);
  const progress = new Progress(process.stderr, count, begun.ended.size);
  const log = options.joblog === undefined ? undefined : new JobLog(options.joblog);
  const show = new Show(options, labelOf, () => progress.clear());
  const failures: TaskView[] = [];
  let standing: Standing = { succeeded: 0, failed: 0, cancelled: 0 };
  const watch = new Watch(job, last, {
    ended: async (tasks) => {
      for (const task of tasks) {
        log?.add(task, labelOf(task.index));
        if (task.state === "failed") failures.push(task);
      }
      if (!options.live) await show.add(client, job, tasks);
    },
    standing: (now) => {
      standing = now;
      progress.update(now);
    },
  });
  for (const index of begun.ended) {
    watch.skip(index);
    show.passed(index);
  }
  const unwanted = new AbortController();
  const live = options.live ? showLive(() => client, job, unwanted.signal) : undefined;
  const stopping = obeyInterrupt(() => client, job, interrupt, progress);
  const end = await toEnd(
    reach,
    () => client,
    (next) => (client = next),
    watch,
    stopping.over,
  );
  stopping.dispose();
  if (end === undefined) unwanted.abort();
  await live;
  await show.finish(client, job);
  progress.clear();
  log?.close();
  const view = await client.ask("job", { job });
  standing = view.counters;
  sayFailures(failures, labelOf);
  sayEnd(job, view.count, standing, Date.now() - started, end === undefined);
  if (end === undefined) return EXIT.interrupted;
  return end === "succeeded" ? EXIT.ok : EXIT.failed;
}

/** On a broker that goes away the batch is watched on at the next one. */
async function toEnd(
  reach: Reach,
  now: () => Client,
  use: (client: Client) => void,
  watch: Watch,
  over: AbortSignal,
): Promise<string | undefined> {
  for (;;) {
    try {
      return await watch.toEnd(now(), over);
    } catch (cause) {
      if (!(cause instanceof LaboroError) || !/^LABORO_BROKER_/.test(cause.code)) throw cause;
      use(await reach());
    }
  }
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

function sayFailures(failures: readonly TaskView[], labelOf: (index: number) => string): void {
  for (const { index, code, signal, timedOut, error } of failures.slice(0, NAMED)) {
    const how = error ?? (timedOut === true ? "time limit" : signal !== undefined ? signal : `exit code ${code}`);
    process.stderr.write(`task ${index} (${labelOf(index)}): ${how}\n`);
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
