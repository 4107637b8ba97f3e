/**
 * Who has registered and with how many slots, kept with the jobs: an original never registers twice by itself, so a broker that was
 * started again must know its workers. One that went without DEREGISTER has a new identity when it is back, and is forgotten after a while.
 */
import { now } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import type { Core } from "../../../broker/core.js";

const AREA = "round-robin workers";
/** Workers that are remembered. */
export const MAX_REGISTERED = 10_000;
const RETENTION_MS = 30 * 24 * 3_600_000;

export class RegisteredWorkers {
  readonly #core: Core;
  readonly #log: Log;
  /** Slots by key, as they are kept; the oldest first. */
  readonly #slotsByKey = new Map<string, number>();
  /** Those from before this start, by the key of their peers. */
  readonly loaded: ReadonlyMap<string, number>;

  private constructor(core: Core, log: Log, before: ReadonlyMap<string, number>) {
    this.#core = core;
    this.#log = log;
    this.loaded = before;
  }

  static async load(core: Core, log: Log): Promise<RegisteredWorkers> {
    const old = now() - RETENTION_MS;
    const all = [...(await core.keptTexts(AREA))].sort((a, b) => a.updatedAt - b.updatedAt);
    const before = new Map(all.map(({ key, value }) => [keyOf(key), Number(value)]));
    const workers = new RegisteredWorkers(core, log, before);
    for (const { key, value, updatedAt } of all) {
      if (updatedAt > old) workers.#slotsByKey.set(keyOf(key), Number(value));
      // If it comes back, it is stored again.
      else workers.#save(key, null);
    }
    return workers;
  }

  set(key: string, slots: number): void {
    // An automatic identity is another peer's the next time.
    if (key.startsWith("\0") || this.#slotsByKey.get(key) === slots) return;
    this.#slotsByKey.delete(key);
    this.#slotsByKey.set(key, slots);
    this.#save(nameOf(key), String(slots));
    const [oldest] = this.#slotsByKey.keys();
    if (this.#slotsByKey.size > MAX_REGISTERED && oldest !== undefined) this.delete(oldest);
  }

  delete(key: string): void {
    if (this.#slotsByKey.delete(key)) this.#save(nameOf(key), null);
  }

  #save(name: string, value: string | null): void {
    this.#core.put(AREA, name, value).catch((cause: unknown) => {
      // Work comes before memory: such a worker is registered by hand after the next start.
      this.#log.info({ code: asLaboroError(cause).code }, "a round-robin worker will not be remembered");
    });
  }
}

/** Identities are any bytes. */
const keyOf = (name: string): string => Buffer.from(name, "hex").toString("latin1");
const nameOf = (key: string): string => Buffer.from(key, "latin1").toString("hex");
