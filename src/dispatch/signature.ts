/**
 * The index of which worker can take which work. Work is grouped by signature; each signature keeps the workers that
 * could ever take it and, least recently used on top, those that can take one more now. A pick costs O(log workers);
 * nothing walks the list of workers except the first piece of work with a new signature. A change to a worker updates
 * those of its signatures that have waiting work or had some lately. The others are dormant: the next read of one
 * updates all of its workers, after at least as many changes that did not update it.
 */
import { ALL, neededOf, type Requirement, type Resources, type TaskKind } from "../model/recipe.js";
import { copyShareLevels, mergeShareLevels } from "./job-queue.js";
import { fullLimit, limitFor } from "./limits.js";
import { IndexedHeap } from "./queues.js";
import { unreserve } from "./reservation.js";
import type { JobState, Reservation, Signature, State, WorkerState } from "./state.js";

/** Unused signatures that are kept: the next request for the service finds its index ready. */
const MAX_IDLE_SIGNATURES = 512;
/** An unused signature becomes dormant after one change for each of its workers, plus this many. */
const DORMANT_AFTER = 8;

/** Properties that only signatures of tasks have. `timeNeededMs`: how long a worker must stay to take a task. */
export interface TaskTraits {
  readonly kind: TaskKind;
  readonly timeNeededMs?: number;
  /** The names of limits. */
  readonly named?: readonly string[];
}

export function signatureFor(state: State, requirement: Requirement, tasks?: TaskTraits): Signature {
  const forRequests = tasks === undefined;
  const key = keyOf(requirement, tasks);
  const known = state.signatures.get(key);
  if (known !== undefined) return known;
  if (state.signatures.size >= MAX_IDLE_SIGNATURES) removeIdleSignatures(state);
  const { named, ...traits } = tasks ?? {};
  const signature: Signature = {
    key,
    requirement,
    forRequests,
    ...traits,
    ...(named === undefined ? {} : { limits: named.map((name) => limitFor(state, name)) }),
    wide: !forRequests && isWide(requirement.needs),
    jobs: new IndexedHeap(goesBefore),
    requests: new IndexedHeap((a, b) => a.id < b.id),
    capable: new Set(),
    available: new IndexedHeap((a, b) => a.lastUse < b.lastUse),
    byFreeSlots: new IndexedHeap((a, b) => freeSlots(a) > freeSlots(b)),
    needsLease: new IndexedHeap(goesBefore),
    leasingTasks: 0,
    shareLevels: new Map(),
    unusedFor: 0,
    dormant: false,
  };
  state.signatures.set(key, signature);
  for (const limit of signature.limits ?? []) limit.signatures.add(signature);
  if (!state.shared) signature.full = fullLimit(signature);
  for (const worker of state.workers.values()) {
    if (isCapable(worker, signature)) joinSignature(worker, signature);
  }
  return signature;
}

/** All that a request can require. */
export const requestKey = (pool: string, service: string | undefined): string => `${pool}\0${service}`;

function keyOf(requirement: Requirement, tasks: TaskTraits | undefined): string {
  if (tasks === undefined) return requestKey(requirement.pool, requirement.service);
  const needs = Object.entries(requirement.needs)
    .filter(([, amount]) => amount > 0)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const tags = requirement.tags.length > 1 ? [...new Set(requirement.tags)].sort() : requirement.tags;
  const { kind, timeNeededMs, named } = tasks;
  const limits = named === undefined ? [] : [named];
  return JSON.stringify([
    requirement.pool,
    tags,
    requirement.service ?? null,
    needs,
    kind,
    timeNeededMs ?? null,
    ...limits,
  ]);
}

const isWide = (needs: Resources): boolean =>
  needs.slots > 1 || Object.entries(needs).some(([name, amount]) => name !== "slots" && amount > 0);

/** By priority, then by the smaller share of the slots so far, then by age. */
export function goesBefore(a: JobState, b: JobState): boolean {
  if (a.job.priority !== b.job.priority) return a.job.priority > b.job.priority;
  if (a.served !== b.served) return a.served < b.served;
  return a.id < b.id;
}

const freeSlots = (worker: WorkerState): number => worker.free.slots ?? 0;

/** Whether the worker takes work of this kind and its total resources meet the requirement. */
export const isCapable = (worker: WorkerState, signature: Signature): boolean =>
  whyNotTaking(worker, signature) === undefined && meets(worker, signature);

/** Why the worker takes no such work at the moment, apart from its resources. */
export function whyNotTaking(worker: WorkerState, { forRequests }: Signature): string | undefined {
  const { paused } = worker.profile;
  if (!worker.connected) return "is away";
  if (worker.draining) return "is draining";
  if (worker.standing === "banned") return "is banned";
  return forRequests || paused === undefined ? undefined : `takes no tasks: ${paused}`;
}

/** Whether the worker could take such work if it were idle. */
export function meets(worker: WorkerState, signature: Signature): boolean {
  const { profile } = worker;
  const { pool, tags, service, needs } = signature.requirement;
  if (profile.pool !== pool) return false;
  if (service !== undefined && !profile.services.includes(service)) return false;
  if (signature.kind !== undefined && !canRun(profile, signature.kind)) return false;
  for (const tag of tags) if (!profile.tags.includes(tag)) return false;
  for (const name in needs) if (!hasEnough(needs[name] ?? 0, mostOf(worker, name, signature.forRequests))) return false;
  return true;
}

/** A need of ALL is not met by an amount of 0. */
const hasEnough = (need: number, most: number): boolean => (need === ALL ? most > 0 : need <= most);

/** The maximum of a resource that the worker ever has for one task or request. */
export function mostOf({ profile, mostSlots }: WorkerState, name: string, forRequests: boolean): number {
  if (name !== "slots") return profile.total[name] ?? 0;
  return forRequests ? mostSlots : mostSlots - profile.reserveRequests;
}

export const canRun = ({ taskKinds }: WorkerState["profile"], kind: TaskKind): boolean =>
  taskKinds === undefined || taskKinds.includes(kind) || (kind === "numbered" && taskKinds.includes("command"));

/** How many tasks or requests of this signature fit into the worker's free resources. */
export const fitCount = (worker: WorkerState, signature: Signature): number => countIn(worker.free, worker, signature);

/** How many fit if the worker has no other work. */
export const maxFitCount = (worker: WorkerState, signature: Signature): number =>
  countIn({ ...worker.profile.total, slots: worker.mostSlots }, worker, signature);

function countIn(free: Readonly<Record<string, number>>, worker: WorkerState, signature: Signature): number {
  const { needs } = signature.requirement;
  const reserved = signature.forRequests ? 0 : worker.profile.reserveRequests;
  let count = Number.POSITIVE_INFINITY;
  for (const name in needs) {
    const wanted = needs[name] ?? 0;
    if (wanted === 0) continue;
    const need = neededOf(wanted, worker.profile.total[name] ?? 0);
    if (need === 0) return 0;
    const freeAmount = (free[name] ?? 0) - (name === "slots" ? reserved : 0);
    // The small addition undoes 0.3 / 0.1 = 2.9999999999999996.
    count = Math.min(count, Math.floor(freeAmount / need + 1e-9));
  }
  return Math.max(0, count);
}

/** Work takes these resources; with negative `times` it returns them. `passed`: the reservation that it passed. */
export function occupy(worker: WorkerState, needs: Resources, times: number, passed: Reservation | undefined): void {
  add(worker.free, worker, needs, -times);
  if (passed !== undefined) add(passed.used, worker, needs, times);
}

function add(amounts: Record<string, number>, { profile }: WorkerState, needs: Resources, times: number): void {
  for (const name in needs) {
    const sum = (amounts[name] ?? 0) + neededOf(needs[name] ?? 0, profile.total[name] ?? 0) * times;
    // Fractions are rounded. Otherwise returned parts would not add up to the whole.
    amounts[name] = Number.isInteger(sum) ? sum : Math.round(sum * 1e6) / 1e6;
  }
}

/** The capable workers with enough free for one now. */
export function availableOf(signature: Signature): IndexedHeap<WorkerState> {
  wake(signature);
  return signature.available;
}

/** The signature is used: its indexes are up to date. */
export function wake(signature: Signature): void {
  signature.unusedFor = 0;
  if (!signature.dormant) return;
  signature.dormant = false;
  for (const worker of signature.capable) {
    worker.indexedIn.add(signature);
    mergeShareLevels(signature, worker);
    reindexWorkerIn(worker, signature);
  }
}

function makeDormant(signature: Signature): void {
  signature.dormant = true;
  for (const worker of signature.capable) worker.indexedIn.delete(signature);
  signature.available.clear();
  signature.byFreeSlots.clear();
}

const isWaitedIn = ({ jobs, requests }: Signature): boolean => jobs.size > 0 || requests.size > 0;

/** Updates the indexes after the worker's free resources, last use or connection changed. */
export function reindexWorker(worker: WorkerState): void {
  for (const signature of worker.indexedIn) {
    if (!isWaitedIn(signature) && ++signature.unusedFor > signature.capable.size + DORMANT_AFTER)
      makeDormant(signature);
    else reindexWorkerIn(worker, signature);
  }
}

function reindexWorkerIn(worker: WorkerState, signature: Signature): void {
  if (fitCount(worker, signature) > 0) signature.available.upsert(worker);
  else signature.available.remove(worker);
  if (signature.wide) signature.byFreeSlots.upsert(worker);
}

/** Updates the worker's signatures after its profile changed. */
export function updateSignatures(state: State, worker: WorkerState): void {
  for (const signature of state.signatures.values()) {
    if (isCapable(worker, signature)) joinSignature(worker, signature);
    else leaveSignature(state, worker, signature);
    updateActive(state, signature);
  }
}

function joinSignature(worker: WorkerState, signature: Signature): void {
  if (signature.capable.size === 0) copyShareLevels(signature, worker);
  worker.capableOf.add(signature);
  signature.capable.add(worker);
  signature.capacity = undefined;
  if (signature.dormant) return;
  worker.indexedIn.add(signature);
  reindexWorkerIn(worker, signature);
}

/** Removes the worker from every index: it is disconnected, drained or gone. */
export function leaveSignatures(state: State, worker: WorkerState): void {
  for (const signature of worker.capableOf) {
    leaveSignature(state, worker, signature);
    updateActive(state, signature);
  }
}

function leaveSignature(state: State, worker: WorkerState, signature: Signature): void {
  if (signature.dormant && signature.capable.has(worker)) mergeShareLevels(signature, worker);
  worker.capableOf.delete(signature);
  worker.indexedIn.delete(signature);
  signature.capable.delete(worker);
  signature.capacity = undefined;
  signature.available.remove(worker);
  signature.byFreeSlots.remove(worker);
  if (signature.reservation?.worker === worker) unreserve(state, signature);
}

/** Updates `active` after a signature's jobs, requests or workers changed. */
export function updateActive(state: State, signature: Signature): void {
  // Work that nobody here can do, or that a limit holds back, does not slow down the picks of others.
  if (isWaitedIn(signature) && signature.capable.size > 0 && signature.full === undefined) {
    state.active.add(signature);
  } else {
    state.active.delete(signature);
    unreserve(state, signature);
  }
}

function removeIdleSignatures(state: State): void {
  const inUse = new Set<Signature>();
  for (const job of state.jobs.values()) inUse.add(job.signature);
  for (const request of state.requests.values()) inUse.add(request.signature);
  for (const signature of state.signatures.values()) {
    if (inUse.has(signature)) continue;
    for (const worker of signature.capable) {
      worker.capableOf.delete(signature);
      worker.indexedIn.delete(signature);
    }
    for (const limit of signature.limits ?? []) limit.signatures.delete(signature);
    state.signatures.delete(signature.key);
    if (state.signatures.size < MAX_IDLE_SIGNATURES / 2) return;
  }
}
