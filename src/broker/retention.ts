/** Removes ended jobs when their time is over or they take too much space, oldest first. Open jobs always stay. */
import { now } from "../base/clock.js";
import { asLaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import { END_STATES } from "../model/job.js";
import type { Core } from "./core.js";
import { endedJobs, removeJobs } from "./operations/job-view.js";

/** Which ended jobs are removed. */
export interface Retention {
  /** Since the end of the job, for jobs without `keepMs`; for ever if absent. */
  readonly keepMs?: number;
  /** For jobs that did not succeed; `keepMs` if absent. */
  readonly keepFailedMs?: number;
  /** The size of the store, in bytes. */
  readonly keepBytes?: number;
  /** A job is kept at least this long after its end, whatever the size. */
  readonly keepAtLeastMs?: number;
  /** How often it is checked; every minute if absent. */
  readonly everyMs?: number;
}

const EVERY_MS = 60_000;
/** Jobs removed before the size is measured again. */
const AT_ONCE = 20;
const PAUSE_MS = 5;

/** Returns the function that stops it. */
export function startRetention(core: Core, retention: Retention, log: Log): () => void {
  const { everyMs = EVERY_MS } = retention;
  let sweeping = false;
  const sweep = async (): Promise<void> => {
    if (sweeping || core.refusing !== undefined) return;
    sweeping = true;
    try {
      const removed = (await removeExpired(core, retention)) + (await removeOverSize(core, retention));
      if (removed > 0) log.info({ jobs: removed }, "removed ended jobs");
    } catch (cause) {
      log.warn({ code: asLaboroError(cause).code }, `cannot remove ended jobs: ${String(cause)}`);
    } finally {
      sweeping = false;
    }
  };
  const timer = setInterval(() => void sweep(), everyMs).unref();
  void sweep();
  return () => clearInterval(timer);
}

/** A few at a time, so that other commits do not wait long. */
async function removeExpired(core: Core, { keepMs, keepFailedMs }: Retention): Promise<number> {
  const keep = { ...(keepMs === undefined ? {} : { keepMs }), ...(keepFailedMs === undefined ? {} : { keepFailedMs }) };
  let removed = 0;
  for (;;) {
    const expired = await core.store.expiredJobs(now(), keep, AT_ONCE);
    const gone = expired.length === 0 ? 0 : (await removeJobs(core, expired)).length;
    removed += gone;
    if (gone === 0 || core.stopping) return removed;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function removeOverSize(core: Core, { keepBytes, keepAtLeastMs }: Retention): Promise<number> {
  if (keepBytes === undefined || (await core.store.bytesUsed()) <= keepBytes) return 0;
  const ended = await endedJobs(core, {
    ...(keepAtLeastMs === undefined ? {} : { olderThanMs: keepAtLeastMs }),
    states: [...END_STATES],
    keep: 0,
  });
  let removed = 0;
  while (ended.length > 0 && (await core.store.bytesUsed()) > keepBytes) {
    removed += (await removeJobs(core, ended.splice(-AT_ONCE))).length;
  }
  return removed;
}
