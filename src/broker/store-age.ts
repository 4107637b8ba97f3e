/** Detects that the store was restored from an old copy: a worker that joins may remember jobs that it has lost. */
import { now } from "../base/clock.js";
import type { Log } from "../base/log.js";
import type { RememberedStore } from "../model/store.js";
import type { Core } from "./core.js";

export class StoreAge {
  readonly identity: string;
  /** Set when a worker remembers more of this store than it contains. */
  older: { readonly text: string; readonly since: number } | undefined;
  readonly #core: Core;
  readonly #log: Log;

  constructor(core: Core, identity: string, log: Log) {
    this.#core = core;
    this.identity = identity;
    this.#log = log;
  }

  /** Checks a joining worker. Returns whether the store is older than what the worker remembers. */
  async check(worker: string, remembered: RememberedStore): Promise<boolean> {
    if (remembered.identity !== this.identity) {
      this.#log.warn({ worker }, "a worker comes from another store: its tasks and results of that store are dropped");
      return false;
    }
    const { jobs, state, store } = this.#core;
    const found = state.jobs.get(remembered.job)?.job;
    const lastJob = async () => (jobs.nextJob === undefined ? store.group?.lastJob() : jobs.nextJob - 1);
    const known =
      found === undefined ? remembered.job <= ((await lastJob()) ?? 0) : found.acceptedBy === remembered.acceptedBy;
    // In a group, the worker may come from a broker that started later.
    if (known && (store.shared || remembered.epoch <= state.epoch)) return false;
    const text = `the store is older than what worker ${worker} remembers (job ${remembered.job}): it was restored from a copy. Jobs and results after the copy are lost`;
    this.#log.warn({ worker, job: remembered.job }, text);
    this.older ??= { text, since: now() };
    return true;
  }
}
