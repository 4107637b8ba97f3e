/** Operations on services: listing them, and sending a request to one. */
import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import type { RequestId } from "../../model/ids.js";
import { DEFAULT_POOL } from "../../model/recipe.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { nothing, operation } from "./operation.js";

const DEFAULT_TIMEOUT = 30_000;

const serviceView = s.object({
  name: s.text(),
  pool: s.text(),
  workers: s.count("that offer it and are connected"),
  slots: s.number(),
  free: s.number(),
  waiting: s.count("requests that wait for a worker"),
  completed: s.count("requests since the start of the broker, failed ones included"),
  failed: s.count(),
  rate: s.number("requests completed per second, over the last minute"),
  latencyMs: s.optional(
    s.described(s.object({ mean: s.number(), p50: s.number(), p99: s.number() }), "of the last 1024 requests"),
  ),
});

type ServiceView = s.ReadType<typeof serviceView>;

export const services = operation({
  name: "services",
  role: "read",
  method: "GET",
  path: "/services",
  summary: "Services that workers offer or that were requested recently",
  input: nothing,
  output: s.object({ services: s.list(serviceView, 1_000_000) }),
  perform: async (core) => {
    const others = (await core.peers?.askAll<{ services: ServiceView[] }>("peer.services", {})) ?? [];
    return { services: others.reduce((all, { answer }) => mergeServices(all, answer.services), localServices(core)) };
  },
});

/** Services of several brokers. The latency is that of the broker with the most requests. */
function mergeServices(some: readonly ServiceView[], others: readonly ServiceView[]): ServiceView[] {
  const found = new Map(some.map((one) => [`${one.pool}\0${one.name}`, one]));
  for (const one of others) {
    const key = `${one.pool}\0${one.name}`;
    const known = found.get(key);
    found.set(key, known === undefined ? one : sumServices(known, one));
  }
  return [...found.values()];
}

const SUMMED = ["workers", "slots", "free", "waiting", "completed", "failed", "rate"] as const;

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
  summary: "Send a request to a service; over HTTP its body is the HTTP body, and so is the answer's",
  bodyLimit: 64 * 1024 * 1024,
  input: s.object({
    service: s.text(),
    body: s.withDefault(s.bytes(), new Uint8Array(0)),
    timeoutMs: s.withDefault(s.integer(1, 2 ** 31 - 1), DEFAULT_TIMEOUT),
    pool: s.withDefault(s.text(), DEFAULT_POOL),
    retry: s.withDefault(s.flag("try another worker, once, if the first is lost"), false),
  }),
  output: s.object({ body: s.bytes() }),
  perform: (core, given, { signal }) =>
    new Promise((resolve, reject) => {
      let id: RequestId | undefined;
      const cancel = (): void => {
        if (id !== undefined) core.requests.cancel(id);
        reject(new LaboroError("LABORO_DEADLINE", "the client no longer waits"));
      };
      signal.addEventListener("abort", cancel, { once: true });
      // The reply may be called before the id is known.
      id = core.requests.add(given, (body, error) => {
        signal.removeEventListener("abort", cancel);
        if (error === undefined) resolve({ body });
        else reject(new LaboroError(error, Buffer.from(body).toString() || error));
      });
    }),
});
