/** The store that the worker last worked for. It is kept in the worker's directory when the worker has joined a broker. */
import * as fs from "node:fs";
import { asLaboroError } from "../base/errors.js";
import { writeFileAtomically } from "../base/files/durable.js";
import type { Log } from "../base/log.js";
import { JobId } from "../model/ids.js";
import type { RememberedStore } from "../model/store.js";
import type { JobRecipe, StoreInfo } from "../protocols/laboro/messages.js";

export class KnownStore {
  readonly #path: string;
  readonly #log: Log;
  #remembered: RememberedStore | undefined;

  constructor(path: string, log: Log) {
    this.#path = path;
    this.#log = log;
    this.#remembered = readRemembered(path);
  }

  get remembered(): RememberedStore | undefined {
    return this.#remembered;
  }

  /** A job whose tasks come from this store. */
  addJob({ job, acceptedBy }: JobRecipe): void {
    if (this.#remembered === undefined || job <= this.#remembered.job) return;
    const { identity, epoch } = this.#remembered;
    this.#remembered = { identity, epoch, job, ...(acceptedBy === undefined ? {} : { acceptedBy }) };
  }

  joined({ identity, epoch, older }: StoreInfo): void {
    const before = this.#remembered;
    const same = before?.identity === identity;
    if (before !== undefined && !same) {
      this.#log.warn({}, "the broker has another store than before: tasks and results of the former one are dropped");
    }
    if (older) {
      const text = `the broker's store is older than what this worker remembers (job ${before?.job ?? 0})`;
      this.#log.warn({}, `${text}: it was restored from a copy. Tasks and results that it does not know are dropped`);
    }
    this.#remembered = same && !older ? { ...before, epoch } : { identity, epoch, job: JobId(0) };
    if (same && before.epoch === epoch && before.job === this.#remembered.job) return;
    try {
      writeFileAtomically(this.#path, JSON.stringify(this.#remembered));
    } catch (cause) {
      this.#log.warn({ code: asLaboroError(cause).code }, `the identity of the store is not kept: ${String(cause)}`);
    }
  }
}

/** A file that cannot be read says nothing; the next join writes it again. */
function readRemembered(path: string): RememberedStore | undefined {
  try {
    const { identity, epoch, job, acceptedBy } = JSON.parse(fs.readFileSync(path, "utf8")) as Partial<RememberedStore>;
    if (typeof identity !== "string" || !Number.isSafeInteger(epoch) || !Number.isSafeInteger(job)) return undefined;
    const known = { identity, epoch: Number(epoch), job: JobId(Number(job)) };
    return typeof acceptedBy === "string" ? { ...known, acceptedBy } : known;
  } catch {
    return undefined;
  }
}
