/** A job that a client follows until its end. After a lost connection the link names the tasks that it has. */
import { checkTimeout, MAX_TIMER_MS } from "../base/clock.js";
import { LaboroError } from "../base/errors.js";
import { JobId } from "../model/ids.js";
import type { JobProgress } from "../model/outcome.js";
import { EndedTasks, type Ranges } from "../model/ranges.js";
import type { TaskOutput } from "../protocols/laboro/messages.js";
import { type ClientLink, withCallers } from "./link.js";

/** Resolves when it has taken the output; until then no more than a window of the same task is sent. */
export type TakeOutput = (output: TaskOutput) => Promise<void>;

/** What to report of a job, and for how long. */
export interface FollowOptions {
  /** Tasks that are not wanted. */
  readonly has?: Ranges;
  /** False: only the end of the job is reported. True if absent. */
  readonly tasks?: boolean;
  /** Report tasks that run and have output, too. */
  readonly live?: boolean;
  /** Takes output beyond the cap, of a job with `relay`. After a lost connection, output that was not taken repeats. */
  readonly relay?: TakeOutput;
  /** False: a lost connection is an error, LABORO_BROKER_GONE. True if absent. */
  readonly reconnect?: boolean;
  /** Rejects with LABORO_DEADLINE after this time. */
  readonly timeoutMs?: number | undefined;
  /** Rejects at once with its reason when it is aborted. */
  readonly signal?: AbortSignal | undefined;
}

/** Credit is returned for this many tasks at once. The broker's window is several times as large. */
const CREDIT_STEP = 250;
/** The most ranges that are sent to the broker. Tasks that it sends twice are dropped here. */
const MAX_RANGES = 50_000;

/** Every end of a task once, in batches; the last one has `ended`. */
export async function* followJob(
  link: ClientLink,
  job: number,
  options: FollowOptions = {},
): AsyncGenerator<JobProgress, void> {
  const { tasks = true, live = false, relay, reconnect = true, signal, timeoutMs } = options;
  checkTimeout(timeoutMs);
  const known = new EndedTasks(options.has);
  const waiting: { readonly progress: JobProgress; readonly sent: number }[] = [];
  let failure: { readonly cause: unknown } | undefined;
  let wake = (): void => {};
  const fail = (cause: unknown): void => {
    failure ??= { cause };
    wake();
  };
  const follow = link.follow({
    job: JobId(job),
    request: () => ({
      ...{ tasks, live },
      has: known.ranges.slice(0, MAX_RANGES),
      relay: relay !== undefined,
    }),
    ...{ relay, reconnect, onError: fail },
    onProgress: (progress) => {
      const unknown = progress.tasks.filter((task) => !known.has(task));
      for (const task of unknown) known.add(task);
      waiting.push({ progress: { ...progress, tasks: unknown }, sent: progress.tasks.length });
      wake();
    },
  });
  const onAbort = (): void => fail(signal?.reason);
  const onTimeout = (): void =>
    fail(new LaboroError("LABORO_DEADLINE", `job ${job} has not ended within ${timeoutMs} ms${link.whyNoAnswer()}`));
  const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, Math.min(timeoutMs, MAX_TIMER_MS));
  signal?.addEventListener("abort", onAbort);
  if (signal?.aborted === true) onAbort();
  let credit = 0;
  try {
    for (;;) {
      const next = waiting.shift();
      if (next === undefined) {
        if (failure !== undefined) throw signal?.aborted === true ? failure.cause : withCallers(failure.cause);
        await new Promise<void>((resolve) => (wake = resolve));
        continue;
      }
      yield next.progress;
      if (next.progress.ended !== undefined) return;
      credit += next.sent;
      if (credit < CREDIT_STEP) continue;
      follow.credit(credit);
      credit = 0;
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
    follow.end();
  }
}
