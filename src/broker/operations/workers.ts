/** Operations on workers. */
import { now } from "../../base/clock.js";
import { badInput, LaboroError } from "../../base/errors.js";
import { onUndrain, standingRecordOf, type WorkerState } from "../../dispatch/index.js";
import { WorkerId } from "../../model/ids.js";
import * as s from "../../model/schema.js";
import type { MachineLoad } from "../../model/worker-settings.js";
import type { Core } from "../core.js";
import type { Peer } from "../group/peers.js";
import { nothing, operation } from "./operation.js";

const worker = s.described(s.text(), "its id, or its name if only one worker has it");

export const workerView = s.object({
  id: s.text(),
  name: s.text(),
  protocol: s.text(),
  pool: s.described(s.anyText(), "empty while unknown"),
  tags: s.list(s.text(), 1024),
  services: s.list(s.text(), 1024),
  connected: s.flag("false within the grace period, while its tasks are kept for it"),
  draining: s.flag(),
  paused: s.optional(s.described(s.anyText(65_536), "why it takes no tasks at the moment")),
  standing: s.choice("good", "suspended", "banned"),
  stats: s.described(
    s.object({
      results: s.count(),
      succeeded: s.count(),
      recent: s.described(s.anyText(10), "the last ten, the latest last: + for success, - for failure"),
    }),
    "results of workers of this name, which determine their standing",
  ),
  address: s.optional(s.text()),
  machine: s.optional(
    s.described(
      s.object({ cpus: s.count(), load: s.number(), memory: s.count(), freeMemory: s.count() }),
      "laboro's own workers report it every 10 s: CPUs, load of the last minute, memory in bytes",
    ),
  ),
  total: s.record(s.number()),
  free: s.record(s.number()),
  tasks: s.count("how many it has, running or prefetched"),
  prefetched: s.count("those of them that it has not started"),
  requests: s.count(),
  broker: s.optional(s.described(s.text(), "in a group: the name of the broker that it is connected to")),
});

export type WorkerView = s.ReadType<typeof workerView>;

export const workers = operation({
  name: "workers",
  role: "read",
  method: "GET",
  path: "/workers",
  summary: "Workers that are connected, or disconnected within the grace period",
  input: nothing,
  output: s.object({ workers: s.list(workerView, 1_000_000) }),
  perform: async (core) => ({ workers: (await allWorkers(core)).map(({ view }) => view) }),
});

export const localWorkers = (core: Core): WorkerView[] =>
  Array.from(core.state.workers.values(), (one) => viewOfWorker(core, one));

interface LocatedWorker {
  readonly view: WorkerView;
  /** Its broker, if that is another one. */
  readonly peer?: Peer;
}

/** A worker that has moved may still be listed by its old broker. The broker where it is connected counts. */
async function allWorkers(core: Core): Promise<LocatedWorker[]> {
  const { peers, group } = core;
  if (peers === undefined || group === undefined) return localWorkers(core).map((view) => ({ view }));
  const found = new Map<string, LocatedWorker>();
  const add = (worker: LocatedWorker): void => {
    if (worker.view.connected || !found.has(worker.view.id)) found.set(worker.view.id, worker);
  };
  for (const view of localWorkers(core)) add({ view: { ...view, broker: group.name ?? group.identity } });
  for (const { peer, answer } of await peers.askAll<{ workers: WorkerView[] }>("peer.workers", {})) {
    for (const view of answer.workers) add({ view: { ...view, broker: peer.name }, peer });
  }
  return [...found.values()];
}

export const viewOfWorker = (core: Core, one: WorkerState): WorkerView => ({
  id: one.profile.id,
  name: one.profile.name,
  protocol: one.profile.protocol,
  pool: one.profile.pool,
  tags: one.profile.tags,
  services: one.profile.services,
  connected: one.connected,
  draining: one.draining,
  ...pausedOf(core, one),
  standing: one.standing,
  stats: statsOf(core, one.profile.name),
  ...(one.profile.address === undefined ? {} : { address: one.profile.address }),
  ...machineOf(core, one),
  total: { ...one.profile.total },
  free: { ...one.free },
  tasks: one.assigned,
  prefetched: one.assigned - one.started,
  requests: one.requests.size,
});

function machineOf(core: Core, { profile }: WorkerState): { readonly machine?: MachineLoad } {
  const machine = core.portOf(profile.id)?.machine;
  return machine === undefined ? {} : { machine };
}

function pausedOf({ state }: Core, { profile }: WorkerState): { readonly paused?: string } {
  if (profile.paused !== undefined) return { paused: profile.paused };
  if (!state.pausedPools.has(profile.pool)) return {};
  const reason = state.pausedPools.get(profile.pool);
  return { paused: reason === undefined ? "its pool is paused" : `its pool is paused: ${reason}` };
}

function statsOf(core: Core, name: string): { results: number; succeeded: number; recent: string } {
  const { results, succeeded, recent } = standingRecordOf(core.state, name);
  return { results, succeeded, recent };
}

export const forgive = operation({
  name: "forgive",
  role: "admin",
  method: "POST",
  path: "/workers/{name}/forgive",
  summary: "Reset the standing of a worker: it starts with good standing and gets work again",
  input: s.object({ name: s.described(s.text(), "its name; it need not be connected") }),
  output: s.object({ name: s.text(), known: s.flag("whether there were results of that name") }),
  perform: async (core, { name }) => {
    const known = await core.forgive(name);
    const others = (await core.peers?.askAll<{ known: boolean }>("peer.forgive", { name })) ?? [];
    return { name, known: known || others.some(({ answer }) => answer.known) };
  },
});

export const drain = operation({
  name: "drain",
  role: "admin",
  method: "POST",
  path: "/workers/{worker}/drain",
  summary: "Assign nothing new to a worker",
  input: s.object({ worker }),
  output: s.object({ worker: s.text() }),
  perform: (core, given) => drainOrStop(core, "drain", given),
});

export const undrain = operation({
  name: "undrain",
  role: "admin",
  method: "POST",
  path: "/workers/{worker}/undrain",
  summary: "Assign tasks to a drained worker again",
  input: s.object({ worker }),
  output: s.object({ worker: s.text(), drained: s.flag("whether it was drained") }),
  perform: async (core, given) => {
    const { view, peer } = workerNamed(await allWorkers(core), given.worker);
    const located = { worker: WorkerId(view.id) };
    if (core.peers === undefined || peer === undefined) return undrainHere(core, located);
    return core.peers.ask<{ worker: string; drained: boolean }>(peer, "peer.undrain", located);
  },
});

/** For a worker that is connected to this broker. */
export function undrainHere(core: Core, { worker: id }: { worker: WorkerId }): { worker: string; drained: boolean } {
  const one = core.state.workers.get(id);
  if (one === undefined) throw unknownWorker(id);
  if (one.leaving)
    throw new LaboroError("LABORO_NOT_SUPPORTED", `worker ${one.profile.name} is ending: start it again`);
  const drained = core.decide((out) => onUndrain(core.state, out, id, now()));
  if (drained) core.events.add({ kind: "worker-undrained", worker: id, name: one.profile.name });
  return { worker: id, drained };
}

export const stopInput = s.object({
  worker,
  slots: s.optional(s.integer(1, 65_535, "only so many of its slots, each as soon as it is free")),
  now: s.optional(s.flag("do not wait for its tasks: they are killed and go to other workers")),
});

export const stop = operation({
  name: "stop",
  role: "admin",
  method: "POST",
  path: "/workers/{worker}/stop",
  summary: "Let a worker finish its tasks and leave, or stop some of its slots, or stop it now",
  input: stopInput,
  output: s.object({ worker: s.text() }),
  perform: (core, given) => drainOrStop(core, "stop", given),
});

type StopInput = s.ReadType<typeof stopInput>;

async function drainOrStop(core: Core, how: "drain" | "stop", given: StopInput): Promise<{ worker: string }> {
  if (core.state.workers.get(WorkerId(given.worker))?.connected === true) return drainOrStopHere(core, how, given);
  const { view, peer } = workerNamed(await allWorkers(core), given.worker);
  const located = { ...given, worker: view.id };
  if (core.peers === undefined || peer === undefined) return drainOrStopHere(core, how, located);
  return core.peers.ask<{ worker: string }>(peer, `peer.${how}`, located);
}

/** For a worker that is connected to this broker. */
export function drainOrStopHere(core: Core, how: "drain" | "stop", given: StopInput): { worker: string } {
  const id = WorkerId(given.worker);
  const one = core.state.workers.get(id);
  if (one === undefined) throw unknownWorker(id);
  const { slots, now: atOnce = false } = given;
  const port = core.portOf(id);
  if (slots !== undefined && atOnce) throw badInput("slots and now exclude each other");
  if (slots !== undefined || atOnce) {
    if (port?.stopSlots === undefined) {
      const why =
        port === undefined ? "is disconnected" : `speaks ${one.profile.protocol}: it can only be stopped as a whole`;
      throw new LaboroError("LABORO_NOT_SUPPORTED", `worker ${id} ${why}`);
    }
    port.stopSlots(slots ?? "now");
  } else if (how === "drain") port?.drain();
  else port?.stop();
  if (slots === undefined) core.workerDrains(id, how === "stop" || port?.drainEnds === true);
  return { worker: id };
}

function workerNamed(known: readonly LocatedWorker[], given: string): LocatedWorker {
  const exact = known.find(({ view }) => view.id === given);
  if (exact !== undefined) return exact;
  const named = known.filter(({ view }) => view.name === given);
  const [only] = named;
  if (only === undefined) throw unknownWorker(given);
  if (named.length === 1) return only;
  const ids = named.map(({ view }) => view.id);
  throw badInput(`${named.length} workers are called ${given}: ${ids.join(", ")}`);
}

const unknownWorker = (given: string): LaboroError =>
  new LaboroError("LABORO_NO_SUCH_WORKER", `no worker ${given} is known here`);
