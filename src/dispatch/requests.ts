/**
 * Requests: messages for a service, answered now, never stored. A request goes to the least recently used worker with a
 * free slot, or waits in a bounded queue. If its caller no longer waits (deadline, disconnect), it keeps its slot until
 * the worker reports its end, because the worker still works on it.
 */
import type { RequestId, WorkerId } from "../model/ids.js";
import { DEFAULT_POOL, ONE_SLOT } from "../model/recipe.js";
import type { Decisions } from "./decisions.js";
import { fillWorker } from "./placement.js";
import { availableOf, fitCount, occupy, reindexWorker, requestKey, signatureFor, updateActive } from "./signature.js";
import type { RequestState, Signature, State, WorkerState } from "./state.js";

/** The requests that are scanned for expired deadlines per millisecond, on average. */
const REQUESTS_PER_MS = 1_000;

export interface Request {
  readonly id: RequestId;
  readonly service: string;
  readonly pool?: string;
  readonly deadline: number;
  readonly retry: boolean;
}

export function onRequest(state: State, out: Decisions, incoming: Request): void {
  const signature = signatureOf(state, incoming.service, incoming.pool);
  const request: RequestState = {
    id: incoming.id,
    service: incoming.service,
    signature,
    deadline: incoming.deadline,
    retry: incoming.retry,
    worker: undefined,
    passed: undefined,
    ended: false,
  };
  const worker = availableOf(signature).peek();
  if (worker === undefined && signature.requests.size >= state.settings.maxWaitingRequests) {
    const why = `${signature.requests.size} requests wait for service ${incoming.service} already`;
    out.calls.push({ kind: "refuse", request: incoming.id, code: "LABORO_QUEUE_FULL", why });
    return;
  }
  state.requests.set(request.id, request);
  state.requestsDueAt = Math.min(state.requestsDueAt, request.deadline);
  if (worker === undefined) enqueue(state, request);
  else assignRequest(state, out, request, worker);
}

const signatureOf = (state: State, service: string, pool: string = DEFAULT_POOL): Signature =>
  state.signatures.get(requestKey(pool, service)) ?? signatureFor(state, { pool, tags: [], service, needs: ONE_SLOT });

/** Whether any worker here offers the service, free or busy. */
export const isServiceOffered = (state: State, service: string, pool: string): boolean =>
  signatureOf(state, service, pool).capable.size > 0;

/** The worker has finished a request. Returns whether its caller still waits for the answer. */
export function onReply(state: State, out: Decisions, id: WorkerId, requestId: RequestId, now: number): boolean {
  const request = state.requests.get(requestId);
  const worker = state.workers.get(id);
  if (request === undefined || worker === undefined || request.worker !== worker) return false;
  const wanted = !request.ended;
  freeSlot(request, worker);
  state.requests.delete(request.id);
  fillWorker(state, out, worker, now);
  return wanted;
}

/** The caller no longer waits. */
export function onRequestCancelled(state: State, out: Decisions, requestId: RequestId): void {
  const request = state.requests.get(requestId);
  if (request !== undefined && !request.ended) endRequest(state, out, request);
}

/**
 * Ends requests whose deadline has passed. Scans all of them: nearly all are answered in time, so an index by deadline
 * would cost more. If many wait, the scans are some milliseconds apart, and a request may end that much after its
 * deadline.
 */
export function expireRequests(state: State, out: Decisions, now: number): void {
  let next = Number.POSITIVE_INFINITY;
  for (const request of state.requests.values()) {
    if (request.ended) continue;
    if (request.deadline <= now) expire(state, out, request);
    else next = Math.min(next, request.deadline);
  }
  state.requestsDueAt = Math.max(next, now + state.requests.size / REQUESTS_PER_MS);
}

/** No answer came in time. */
function expire(state: State, out: Decisions, request: RequestState): void {
  const why = `service ${request.service}: ${deadlineReason(request)} before the deadline`;
  out.calls.push({ kind: "refuse", request: request.id, code: "LABORO_DEADLINE", why });
  endRequest(state, out, request);
}

function deadlineReason({ worker, signature }: RequestState): string {
  if (worker !== undefined) return `${worker.profile.name} did not answer`;
  return signature.capable.size === 0 ? "no worker offered it" : "no worker was free";
}

/** The worker is gone with its requests, and no index contains it. */
export function loseRequests(state: State, out: Decisions, worker: WorkerState): void {
  for (const request of [...worker.requests]) {
    freeSlot(request, worker);
    if (request.ended) {
      state.requests.delete(request.id);
    } else if (request.retry) {
      request.retry = false;
      const other = availableOf(request.signature).peek();
      if (other === undefined) enqueue(state, request);
      else assignRequest(state, out, request, other);
    } else {
      const why = `${worker.profile.name} was lost while it had a request for ${request.service}`;
      out.calls.push({ kind: "refuse", request: request.id, code: "LABORO_WORKER_LOST", why });
      state.requests.delete(request.id);
    }
  }
}

/** Gives the worker waiting requests while it has free slots, oldest first. */
export function assignRequestsTo(state: State, out: Decisions, worker: WorkerState): void {
  for (;;) {
    let oldest: RequestState | undefined;
    for (const signature of state.active) {
      if (signature.requests.size === 0 || !worker.capableOf.has(signature) || fitCount(worker, signature) === 0)
        continue;
      const first = signature.requests.peek();
      if (first !== undefined && (oldest === undefined || first.id < oldest.id)) oldest = first;
    }
    if (oldest === undefined) return;
    dequeue(state, oldest);
    assignRequest(state, out, oldest, worker);
  }
}

/** Gives waiting requests to any worker with free slots. Called when more than the slots of one worker has changed. */
export function placeRequests(state: State, out: Decisions): void {
  for (const signature of state.active) {
    for (let request = signature.requests.peek(); request !== undefined; request = signature.requests.peek()) {
      const worker = availableOf(signature).peek();
      if (worker === undefined) break;
      dequeue(state, request);
      assignRequest(state, out, request, worker);
    }
  }
}

function enqueue(state: State, request: RequestState): void {
  request.signature.requests.upsert(request);
  updateActive(state, request.signature);
}

function dequeue(state: State, request: RequestState): void {
  request.signature.requests.remove(request);
  updateActive(state, request.signature);
}

function assignRequest(state: State, out: Decisions, request: RequestState, worker: WorkerState): void {
  request.worker = worker;
  worker.requests.add(request);
  if (worker.reservedFor !== undefined) request.passed = worker.reservedFor;
  occupy(worker, ONE_SLOT, 1, request.passed);
  worker.lastUse = ++state.uses;
  reindexWorker(worker);
  out.calls.push({ kind: "call", worker: worker.profile.id, request: request.id });
}

/** The worker is in no index, or is indexed after this. */
function freeSlot(request: RequestState, worker: WorkerState): void {
  worker.requests.delete(request);
  request.worker = undefined;
  occupy(worker, ONE_SLOT, -1, request.passed);
  request.passed = undefined;
}

function endRequest(state: State, out: Decisions, request: RequestState): void {
  request.ended = true;
  if (request.worker !== undefined) {
    out.calls.push({ kind: "cancelCall", worker: request.worker.profile.id, request: request.id });
    return;
  }
  dequeue(state, request);
  state.requests.delete(request.id);
}
