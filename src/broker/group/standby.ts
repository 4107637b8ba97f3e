/**
 * A fallback that stands by: it has an epoch and a lease, so other brokers see it and workers know its address, but its
 * listeners are closed and it has no tasks. When no broker with open listeners is left, the fallback that has stood by
 * longest opens.
 */
import { hostname } from "node:os";
import { inUrl, isLoopback } from "../../base/addresses.js";
import { now, pause } from "../../base/clock.js";
import { asLaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { packageVersion } from "../../base/package.js";
import type { Store } from "../../model/store.js";
import { advertisedHost } from "../listeners/listener.js";
import { type BrokerOptions, DEFAULT_PORT } from "../options.js";
import { type HeartbeatInfo, nameOf, readHeartbeatInfo } from "./membership.js";

interface StandbyOptions {
  readonly identity: string;
  readonly leaseMs: number;
  readonly openStore: () => Store | Promise<Store>;
  readonly address: Pick<BrokerOptions, "host" | "port" | "advertise" | "tls" | "listeners">;
  readonly log: Log;
  readonly stopping: AbortSignal;
}

const MAX_POLL_MS = 1_000;
const RETRY_MS = 500;

/** Resolves when it is time to open the listeners, or when the broker stops. */
export async function standBy(options: StandbyOptions): Promise<void> {
  while (!options.stopping.aborted) {
    try {
      if (await watch(options)) return;
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      options.log.warn({ code }, `this fallback cannot read the state of the group: ${message}`);
      await pause(RETRY_MS);
    }
  }
}

async function watch({ openStore, leaseMs, stopping, ...options }: StandbyOptions): Promise<boolean> {
  const store = await openStore();
  try {
    const { epoch } = await store.open(now());
    const { group } = store;
    if (group === undefined) throw new Error("a fallback needs a store that brokers can share");
    const info = JSON.stringify(await standbyHeartbeatInfo(options));
    // Brokers that are just starting come before a fallback.
    const notBefore = now() + leaseMs;
    let lastHeartbeat = 0;
    while (!stopping.aborted) {
      if (now() - lastHeartbeat > leaseMs / 3) {
        await group.heartbeat(info, leaseMs);
        lastHeartbeat = now();
      }
      const members = (await group.members()).filter(({ alive }) => alive);
      const open = members.some((one) => isOpen(readHeartbeatInfo(one.info)));
      const first = Math.min(...members.map((one) => one.epoch)) === epoch;
      if (!open && first && now() > notBefore) {
        await group.leave();
        return true;
      }
      await pause(Math.min(MAX_POLL_MS, leaseMs / 4));
    }
    await group.leave();
    return true;
  } finally {
    await store.close();
  }
}

/** A member whose heartbeat cannot be read counts as open. */
const isOpen = (info: HeartbeatInfo | undefined): boolean => info?.state !== "standby";

async function standbyHeartbeatInfo({
  identity,
  address,
}: Pick<StandbyOptions, "identity" | "address">): Promise<HeartbeatInfo> {
  const listeners = await urlsWhenOpen(address);
  return {
    ...{ identity, listeners, version: packageVersion(), host: hostname(), pid: process.pid },
    name: nameOf(listeners),
    state: "standby",
    fallback: true,
    workers: 0,
    slots: { total: 0, free: 0 },
    services: [],
    commitMs: 0,
  };
}

/** The URLs that its listeners will have. Unknown if any free port is taken. */
async function urlsWhenOpen(address: StandbyOptions["address"]): Promise<HeartbeatInfo["listeners"]> {
  const { host = "127.0.0.1", port = DEFAULT_PORT, advertise = [], tls, listeners = [] } = address;
  const reached = async (bound: string): Promise<string> =>
    bound === "0.0.0.0" || bound === "::" || bound === "" ? advertisedHost() : bound;
  const name = isLoopback(host) ? host : (advertise[0] ?? (await reached(host)));
  const scheme = !isLoopback(host) || tls === "on" ? "https" : "http";
  const urls = port === 0 ? [] : [{ name: "main", url: `${scheme}://${inUrl(name)}:${port}` }];
  for (const one of listeners.filter(({ ports }) => !ports.includes(0))) {
    const own = inUrl(await reached(one.host));
    urls.push(...one.ports.map((number) => ({ name: one.name, url: `tcp://${own}:${number}` })));
  }
  return urls;
}
