/** The brokers that a peer may use: this one, those of its group, and those in the config. */

import type { GroupBroker } from "../../../broker/config/group.js";
import type { Core } from "../../../broker/core.js";
import { readSettings } from "../../../model/worker-settings.js";
import type { BrokerUris } from "../commands.js";

export class Brokers {
  readonly #core: Core;
  readonly #self: BrokerUris;

  /** `self.identity` is for a broker that is in no group. */
  constructor(core: Core, self: BrokerUris) {
    this.#core = core;
    this.#self = self;
  }

  get self(): BrokerUris {
    return { ...this.#self, identity: this.#core.group?.identity ?? this.#self.identity };
  }

  /** The preferred one first: this one, unless it is drained. Fallbacks last: they open when no other is left. */
  list(): BrokerUris[] {
    return this.#core.maintenance.draining
      ? this.others()
      : [this.self, ...this.others(), ...urisOf(this.#core.group?.standbys?.())];
  }

  /** Those that a peer can go to now. */
  others(): BrokerUris[] {
    const configured = (readSettings(this.#core.config.current.settings).brokers ?? []).flatMap(
      ({ identity, worker_uri, client_uri }) =>
        worker_uri === undefined && client_uri === undefined
          ? []
          : [{ identity, worker_uri: worker_uri ?? "", client_uri: client_uri ?? "" }],
    );
    const found = new Map<string, BrokerUris>();
    for (const entry of [...this.#alive(), ...configured]) {
      const own = entry.identity === this.self.identity || entry.worker_uri === this.self.worker_uri;
      if (!own && !found.has(entry.identity)) found.set(entry.identity, entry);
    }
    return [...found.values()];
  }

  /** One of the group that is known to be there. */
  alive(identity: string): BrokerUris | undefined {
    return this.#alive().find((entry) => entry.identity === identity);
  }

  #alive(): BrokerUris[] {
    return urisOf(this.#core.group?.brokers());
  }
}

const urisOf = (brokers: readonly GroupBroker[] = []): BrokerUris[] =>
  brokers.flatMap(({ identity, listeners }) => {
    const [client, worker] = listeners.filter(({ name }) => name === "scale0").map(({ url }) => url);
    return client === undefined || worker === undefined ? [] : [{ identity, worker_uri: worker, client_uri: client }];
  });
