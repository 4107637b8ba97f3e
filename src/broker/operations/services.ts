/** Operations on services: what there is, and asking one. */

import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import type { RequestId } from "../../model/ids.js";
import { DEFAULT_POOL } from "../../model/recipe.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { nothing } from "./shared-fields.js";
import { operation } from "./operation.js";

const DEFAULT_TIMEOUT = 30_000;

const serviceView = s.object({
  name: s.text(),
  pool: s.text(),
  workers: s.described(s.count(), "that offer it and are connected"),
  slots: s.number(),
  free: s.number(),
  waiting: s.described(s.count(), "requests that wait for a worker"),
  completed: s.described(s.count(), "since the broker was started, refusals included"),
  failed: s.count(),
  rate: s.described(s.number(), "answers a second, over the last minute"),
  latencyMs: s.optional(
    s.described(s.object({ mean: s.number(), p50: s.number(), p99: s.number() }), "of the last 1024"),
  ),
});

type ServiceView = s.ReadType<typeof serviceView>;

export const services = operation({
  name: "services",
  role: "read",
  method: "GET",
  path: "/services",
  summary: "Services that workers offer or that were asked for lately",
  input: nothing,
  output: s.object({ services: s.list(serviceView, 1_000_000) }),
  perform: async (core) => {
    const others = (await core.peers?.askAll<{ services: ServiceView[] }>("peer.services", {})) ?? [];
    return { services: others.reduce((all, { answer }) => mergeServices(all, answer.services), localServices(core)) };
  },
});

/** What workers of several brokers offer. The latency is that of the broker that has answered most. */
function mergeServices(some: readonly ServiceView[], others: readonly ServiceView[]): ServiceView[] {
  const found = new Map(some.map((one) => [`${one.pool}\0${one.name}`, one]));
  for (const one of others) {
    const key = `${one.pool}\0${one.name}`;
    const known = found.get(key);
    found.set(key, known === undefined ? one : sumServices(known, one));
  }
  return [...found.values()];
}

const SUMMED = ["workers", "slots", "free", "waiting", "answered", "failed", "rate"] as const;

function sumServices(a: ServiceView, b: ServiceView): ServiceView {
  const sums = Object.fromEntries(SUMMED.map((name) => [name, a[name] + b[name]]));
  return { ...(b.completed > a.completed ? b : a), ...sums };
}

export function localServices(core: Core): ServiceView[] {
  const found = new Map<string, { name: string; pool: string; workers: number; slots: number; free: number }>();
  const entry = (name: string, pool: string) => {
    const key = `${pool}\0${name}`;
    const known = found.get(key) ?? { name, pool, workers: 0, slots: 0, free: 0 };
    found.set(key, known);
    return known;
  };
  for (const { service, pool } of core.requests.serviceStats.names()) entry(service, pool);
  for (const { connected, draining, profile, free } of core.state.workers.values()) {
    if (!connected || draining) continue;
    for (const name of profile.services) {
      const service = entry(name, profile.pool);
      service.workers++;
      service.slots += profile.total.slots;
      service.free += free.slots ?? 0;
    }
  }
  const waiting = new Map<string, number>();
  for (const { requirement, forRequests, requests } of core.state.signatures.values()) {
    if (!forRequests || requirement.service === undefined || requests.size === 0) continue;
    entry(requirement.service, requirement.pool);
    waiting.set(`${requirement.pool}\0${requirement.service}`, requests.size);
  }
  return Array.from(found, ([key, one]) => ({
    ...one,
    waiting: waiting.get(key) ?? 0,
    ...core.requests.serviceStats.of(one.name, one.pool, now()),
  }));
}

export const request = operation({
  name: "request",
  role: "client",
  method: "POST",
  path: "/services/{service}",
  summary: "Ask a service; over HTTP the body is the message, and the answer's body the answer",
  bodyLimit: 64 * 1024 * 1024,
  input: s.object({
    service: s.text(),
    body: s.withDefault(s.bytes(), new Uint8Array(0)),
    timeoutMs: s.withDefault(s.integer(1, 2 ** 31 - 1), DEFAULT_TIMEOUT),
    pool: s.withDefault(s.text(), DEFAULT_POOL),
    retry: s.withDefault(s.described(s.flag(), "let another worker answer, once, where the first is lost"), false),
  }),
  output: s.object({ body: s.bytes() }),
  perform: (core, given, { signal: gone }) =>
    new Promise((resolve, reject) => {
      let id: RequestId | undefined;
      const forget = (): void => {
        if (id !== undefined) core.cancelRequest(id);
        reject(new LaboroError("LABORO_DEADLINE", "the asker no longer waits"));
      };
      gone.addEventListener("abort", forget, { once: true });
      // A refusal may come before the number is known here.
      id = core.request(given, (body, error) => {
        gone.removeEventListener("abort", forget);
        if (error === undefined) resolve({ body });
        else reject(new LaboroError(error, Buffer.from(body).toString() || error));
      });
    }),
});
