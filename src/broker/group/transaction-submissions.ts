/** Makes the jobs that transactions of applications have submitted to the database. */
import { now } from "../../base/clock.js";
import { asLaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import type { JobId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import type { Submissions } from "../../model/store-group.js";
import type { Core } from "../core.js";
import { submitFromTransaction } from "../operations/jobs.js";

/** How long a job that was submitted is waited for, and how often it is looked for. Longer than this only one that cannot be made takes. */
const FIND_MS = 60_000;
const PAUSE_MS = 20;

export class TransactionSubmissions {
  readonly #core: Core;
  readonly #submissions: Submissions;
  readonly #log: Log;
  #taking = false;
  #again = false;

  constructor(core: Core, submissions: Submissions, log: Log) {
    this.#core = core;
    this.#submissions = submissions;
    this.#log = log;
  }

  /** A job that was submitted and may not be stored yet. Another broker may be storing it. */
  async find(id: JobId): Promise<Job | undefined> {
    const end = now() + FIND_MS;
    let found: Job | undefined;
    while (found === undefined && now() < end && (await this.#submissions.waits(id))) {
      await this.take();
      found = await this.#core.store.job(id);
      if (found === undefined) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    // It may have been stored and removed from the submissions since the caller looked for it.
    return found ?? this.#core.store.job(id);
  }

  /** Takes what waits: after a notification, and with each poll. */
  async take(): Promise<void> {
    this.#again = true;
    if (this.#taking) return;
    this.#taking = true;
    try {
      while (this.#again && !this.#core.stopping && this.#core.refusing === undefined) {
        this.#again = false;
        const more = await this.#submissions.take((one) => submitFromTransaction(this.#core, one));
        this.#again ||= more;
      }
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      if (!this.#core.stopping) this.#log.warn({ code }, `cannot read what transactions have submitted: ${message}`);
    } finally {
      this.#taking = false;
    }
  }
}
