/** Jobs that have ended are forgotten after a while, or when they take too much room: the oldest first. Open ones are never touched. */
import { asLaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { Core } from "./core.js";
import { endedJobs, removeJobs } from "./operations/job-list.js";

export interface Retention {
  /** Since they ended. */
  readonly keepForMs?: number;
  /** All that is stored, in bytes. */
  readonly keepBytes?: number;
  readonly everyMs?: number;
}

const EVERY_MS = 60_000;
/** So many go before the room is looked at again. */
const AT_ONCE = 20;
const ALL_ENDS = ["succeeded", "failed", "cancelled"] as const;

/** Returns what ends it. */
export function startRetention(core: Core, retention: Retention, log: Log): () => void {
  const { everyMs = EVERY_MS } = retention;
  let sweeping = false;
  const sweep = async (): Promise<void> => {
    if (sweeping || core.refusing !== undefined) return;
    sweeping = true;
    try {
      const forgotten = (await forgetOld(core, retention)) + (await removeOverSize(core, retention));
      if (forgotten > 0) log.info({ jobs: forgotten }, "jobs that ended long ago are forgotten");
    } catch (cause) {
      log.warn({ code: asLaboroError(cause).code }, `what ended long ago could not be forgotten: ${String(cause)}`);
    } finally {
      sweeping = false;
    }
  };
  const timer = setInterval(() => void sweep(), everyMs).unref();
  void sweep();
  return () => clearInterval(timer);
}

async function forgetOld(core: Core, { keepForMs }: Retention): Promise<number> {
  if (keepForMs === undefined) return 0;
  const old = await endedJobs(core, { olderThanMs: keepForMs, states: [...ALL_ENDS], keep: 0 });
  return (await removeJobs(core, old)).length;
}

async function removeOverSize(core: Core, { keepBytes }: Retention): Promise<number> {
  if (keepBytes === undefined || (await core.store.bytesUsed()) <= keepBytes) return 0;
  const ended = await endedJobs(core, { states: [...ALL_ENDS], keep: 0 });
  let forgotten = 0;
  while (ended.length > 0 && (await core.store.bytesUsed()) > keepBytes) {
    forgotten += (await removeJobs(core, ended.splice(-AT_ONCE))).length;
  }
  return forgotten;
}
