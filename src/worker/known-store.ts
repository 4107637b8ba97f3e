/** The store that the worker last worked for. It is kept in the worker's directory when the worker has joined a broker. */
import * as fs from "node:fs";
import type { Log } from "../base/log.js";
import { JobId } from "../model/ids.js";
import type { RememberedStore } from "../model/store.js";
import type { JobRecipe, StoreInfo } from "../protocols/laboro/messages.js";

export class KnownStore {
  readonly #path: string;
  readonly #log: Log;
  remembered: RememberedStore | undefined;

  constructor(path: string, log: Log) {
    this.#path = path;
    this.#log = log;
    this.remembered = readRemembered(path);
  }

  /** The worker has tasks of this job. */
  addJob({ job, acceptedBy }: Pick<JobRecipe, "job" | "acceptedBy">): void {
    if (this.remembered !== undefined && job > this.remembered.job) {
      this.remembered = { ...this.remembered, job, acceptedBy };
    }
  }

  joined({ identity, epoch, older }: StoreInfo): void {
    const before = this.remembered;
    const same = before?.identity === identity;
    if (before !== undefined && !same) {
      this.#log.warn({}, "the broker has another store than before: tasks and results of the former one are dropped");
    }
    if (older) {
      const text = `the broker's store is older than what this worker remembers (job ${before?.job})`;
      this.#log.warn({}, `${text}: it was restored from a copy. Tasks and results that it does not know are dropped`);
    }
    if (same && before.epoch === epoch && !older) return;
    this.remembered = same && !older ? { ...before, epoch } : { identity, epoch, job: JobId(0) };
    try {
      // Not synced: it is only for messages, and one that a crash has cut counts as none.
      fs.writeFileSync(this.#path, JSON.stringify(this.remembered), { mode: 0o600 });
    } catch (cause) {
      this.#log.warn({}, `the identity of the store is not kept: ${String(cause)}`);
    }
  }
}

/** A file that cannot be read says nothing. The next join writes it again. */
function readRemembered(path: string): RememberedStore | undefined {
  try {
    const { identity, epoch, job, acceptedBy } = JSON.parse(fs.readFileSync(path, "utf8")) as Partial<RememberedStore>;
    if (typeof identity !== "string" || !Number.isSafeInteger(epoch) || !Number.isSafeInteger(job)) return undefined;
    return { identity, epoch: Number(epoch), job: JobId(Number(job)), acceptedBy };
  } catch {
    return undefined;
  }
}
