/** What a broker of a group publishes about itself with each heartbeat. Another broker may have another version, so it is validated. */
import { hostname } from "node:os";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { countWorkers } from "../stats/load.js";

const MOST = 100_000;

const heartbeatInfo = s.object({
  /** Kept in the data directory, so it is the same over restarts. */
  identity: s.text(),
  /** For people. */
  name: s.text(),
  version: s.text(),
  host: s.text(),
  pid: s.count(),
  /** `standby` is a fallback whose listeners are closed. */
  state: s.choice("open", "draining", "standby"),
  fallback: s.flag(),
  listeners: s.list(s.object({ name: s.text(), url: s.text() }), 100),
  workers: s.count(),
  slots: s.object({ total: s.number(), free: s.number() }),
  /** What its workers offer. */
  services: s.list(s.object({ pool: s.text(), service: s.text() }), MOST),
  /** Average duration of its latest commits, in milliseconds. */
  commitMs: s.number(),
});

export type HeartbeatInfo = s.ReadType<typeof heartbeatInfo>;

/** What the core does not know. */
export interface SelfInfo {
  readonly identity: string;
  readonly version: string;
  readonly fallback: boolean;
  listeners(): readonly { readonly name: string; readonly url: string }[];
}

export function ownHeartbeatInfo(core: Core, self: SelfInfo): HeartbeatInfo {
  const listeners = self.listeners();
  const { workers, slots } = countWorkers(core);
  return {
    identity: self.identity,
    name: nameOf(listeners),
    version: self.version,
    host: hostname(),
    pid: process.pid,
    state: core.maintenance.draining ? "draining" : "open",
    fallback: self.fallback,
    listeners,
    workers: workers.connected,
    slots,
    services: servicesIn(core),
    commitMs: Math.round(core.commitMs * 10) / 10,
  };
}

/** Host and port of the main listener. */
export function nameOf(listeners: HeartbeatInfo["listeners"]): string {
  const main = listeners.find(({ name }) => name === "main");
  return main === undefined ? hostname() : new URL(main.url).host;
}

function servicesIn(core: Core): HeartbeatInfo["services"] {
  const found = new Map<string, { pool: string; service: string }>();
  for (const { connected, draining, standing, profile } of core.state.workers.values()) {
    if (!connected || draining || standing === "banned") continue;
    const { pool, services } = profile;
    for (const service of services) found.set(`${pool}\0${service}`, { pool, service });
  }
  return [...found.values()].slice(0, MOST);
}

/** Undefined if this version cannot read it. Fields that only a newer version has are ignored. */
export function readHeartbeatInfo(text: string): HeartbeatInfo | undefined {
  try {
    const known = Object.entries(JSON.parse(text) as object).filter(([name]) => name in heartbeatInfo.shape);
    return heartbeatInfo.read(Object.fromEntries(known), "info");
  } catch {
    return undefined;
  }
}
