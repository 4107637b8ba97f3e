/** A lease for what one broker of a group does for all of them. It runs by the store's clock, and ends with the broker that has it. */
import type { Core } from "../core.js";

const BUCKET = "lease";

export class NamedLease {
  readonly #core: Core;
  readonly #name: string;
  /** Since when it has been seen to be free. */
  #freeSince = 0;

  constructor(core: Core, name: string) {
    this.#core = core;
    this.#name = name;
  }

  /** Takes it for `ms`, or renews it, and returns whether this broker has it. One that is free is left to other brokers for `yieldMs`. */
  async take(ms: number, yieldMs: number): Promise<boolean> {
    const { membership, state, store } = this.#core;
    if (!store.shared || store.group === undefined) return true;
    const now = await store.group.clock();
    const found = (await store.keyValues(BUCKET)).find(({ key }) => key === this.#name);
    const { epoch = 0, until = 0 } = found === undefined ? {} : (JSON.parse(found.value) as Record<string, number>);
    if (epoch === state.epoch && until - now > ms / 2) return true;
    if (epoch !== state.epoch) {
      const alive = membership?.liveMembers.some((one) => one.epoch === epoch) ?? true;
      if (alive && until > now) {
        this.#freeSince = 0;
        return false;
      }
      this.#freeSince ||= now;
      if (now - this.#freeSince < yieldMs) return false;
    }
    const value = JSON.stringify({ epoch: state.epoch, until: now + ms });
    return (await this.#core.put(BUCKET, this.#name, value, found?.version ?? 0)).stored;
  }
}
