/**
 * Every invariant of dispatch. Runs after each step of each of its tests, and throws at the first violation. Slow on
 * purpose: it trusts no counter and no index.
 */

import { isReady, mayRun } from "../../src/dispatch/job-queue.js";
import { fullLimit } from "../../src/dispatch/limits.js";
import { mayUse } from "../../src/dispatch/reservation.js";
import { fitCount, isCapable, maxFitCount } from "../../src/dispatch/signature.js";
import {
  claimsOf,
  GONE,
  type JobState,
  nextJobOf,
  type Signature,
  STARTED,
  type State,
  type WorkerState,
} from "../../src/dispatch/state.js";
import { sizeOf } from "../../src/model/ranges.js";
import { neededOf } from "../../src/model/recipe.js";

export function checkInvariants(state: State): void {
  for (const job of state.jobs.values()) checkJob(state, job);
  for (const worker of state.workers.values()) checkWorker(state, worker);
  checkLimits(state);
  for (const signature of state.signatures.values()) {
    const where = `signature ${signature.key}`;
    for (const worker of state.workers.values()) {
      const capable = isCapable(worker, signature);
      const fits = capable && fitCount(worker, signature) > 0;
      assertSame(`${where}: ${worker.profile.name} capable`, signature.capable.has(worker), capable);
      assertSame(`${where}: ${worker.profile.name} in capableOf`, worker.capableOf.has(signature), capable);
      const indexed = !signature.dormant;
      assertSame(`${where}: ${worker.profile.name} in indexedIn`, worker.indexedIn.has(signature), indexed && capable);
      assertSame(`${where}: ${worker.profile.name} available`, signature.available.has(worker), indexed && fits);
    }
    if (signature.capacity !== undefined) {
      const capacity = [...signature.capable].reduce((sum, worker) => sum + maxFitCount(worker, signature), 0);
      assertSame(`${where}: capacity`, signature.capacity, capacity);
    }
    const oldest = Math.min(...[...signature.available].map((worker) => worker.lastUse));
    if (signature.available.size > 0)
      assertSame(`${where}: least recently used on top`, signature.available.peek()?.lastUse, oldest);
    const waits = signature.jobs.size > 0 || signature.requests.size > 0;
    assertSame(`${where}: dormant although work waits`, signature.dormant && waits, false);
    const open = signature.full === undefined;
    assertSame(`${where}: active`, state.active.has(signature), waits && signature.capable.size > 0 && open);
    checkReservation(state, signature);
    checkWorkConservation(state, signature);
  }
  for (const request of state.requests.values()) {
    assertSame(`request ${request.id} at its worker`, request.worker?.requests.has(request) ?? true, true);
    assertSame(`request ${request.id} waits`, request.signature.requests.has(request), request.worker === undefined);
  }
}

/**
 * Recounts limits from the claims. No signature waits for a limit with room, and none is assigned while its limit is
 * full.
 */
function checkLimits(state: State): void {
  for (const limit of state.limits.values()) {
    const jobs = [...state.jobs.values()].filter((job) => job.job.limits.named?.includes(limit.name) === true);
    const claims = jobs.flatMap((job) => [...job.claims]);
    assertSame(
      `limit ${limit.name}: running`,
      limit.running,
      claims.reduce((sum, { open }) => sum + open, 0),
    );
    const starts = [...limit.starts].reduce((sum, { count }) => sum + count, 0);
    assertSame(`limit ${limit.name}: starts`, limit.startCount, starts);
    assertSame(`limit ${limit.name}: timer`, limit.timer === undefined || state.timers.has(limit.timer), true);
  }
  for (const signature of state.signatures.values()) {
    if (signature.limits === undefined) continue;
    const full = state.shared ? undefined : fullLimit(signature);
    assertSame(`signature ${signature.key}: full`, signature.full, full);
    // Otherwise it would wait for ever.
    if (full !== undefined && full.running < (full.rule?.running ?? Number.POSITIVE_INFINITY))
      assertSame(`signature ${signature.key}: waits for a time`, full.timer !== undefined, true);
  }
}

function checkReservation(state: State, signature: Signature): void {
  const { reservation, key } = signature;
  if (reservation === undefined) return;
  const { worker } = reservation;
  assertSame(`signature ${key}: reservation`, worker.reservedFor, reservation);
  assertSame(`signature ${key}: reserved worker is capable`, signature.capable.has(worker), true);
  assertSame(`signature ${key}: something waits for the reserved worker`, signature.jobs.size > 0, true);
  if (state.halted === undefined)
    assertSame(`signature ${key}: the reserved worker has too few free slots`, fitCount(worker, signature), 0);
  const used: Record<string, number> = {};
  for (const { passed, job, placed } of claimsOf(worker)) {
    if (passed !== reservation) continue;
    for (const [name, need] of Object.entries(job.job.requirement.needs))
      used[name] = (used[name] ?? 0) + neededOf(need, worker.profile.total[name] ?? 0) * placed;
  }
  for (const { passed } of worker.requests) if (passed === reservation) used.slots = (used.slots ?? 0) + 1;
  for (const name of new Set([...Object.keys(used), ...Object.keys(reservation.used)])) {
    const difference = (used[name] ?? 0) - (reservation.used[name] ?? 0);
    assertSame(`signature ${key}: ${name} used since the reservation`, Math.abs(difference) < 1e-6, true);
  }
}

/**
 * Work conservation: nothing waits while a worker has free slots for it, except slots that are kept for a wider task.
 */
function checkWorkConservation(state: State, signature: Signature): void {
  if (signature.requests.size > 0)
    assertSame(`${signature.key}: requests wait beside a free slot`, signature.available.size, 0);
  const next = nextJobOf(signature);
  if (state.halted !== undefined || next === undefined) return;
  for (const worker of signature.available) {
    if (mayUse(state, worker, next))
      throw new Error(`job ${next.id} waits although ${worker.profile.name} has free slots for it`);
  }
}

function checkJob(state: State, job: JobState): void {
  const where = `job ${job.id}`;
  const seen = new Set<number>();
  const put = (index: number): void => {
    if (seen.has(index)) throw new Error(`${where}: task ${index} is in two places`);
    if (index < 0 || index >= job.job.count) throw new Error(`${where}: task ${index} does not exist`);
    seen.add(index);
  };
  let ready = 0;
  for (const waiting of job.waiting) {
    ready += sizeOf(waiting);
    for (let index = waiting.first; index <= waiting.last; index++) put(index);
  }
  for (const waiting of job.inBackoff) for (let index = waiting.first; index <= waiting.last; index++) put(index);
  for (const pending of job.pending) for (let index = pending.first; index <= pending.last; index++) put(index);
  let assigned = 0;
  let started = 0;
  for (const claim of job.claims) {
    claim.tasks.forEach((task, i) => {
      if (task === GONE) return;
      assigned++;
      if (task === STARTED) started++;
      put(claim.first + i);
    });
    assertSame(`${where}: claim known to its worker`, claim.worker.claims.get(job.id)?.includes(claim), true);
  }
  assertSame(`${where}: ready`, job.ready, ready);
  assertSame(`${where}: assigned`, job.assigned, assigned);
  assertSame(`${where}: started`, job.started, started);
  assertSame(`${where}: in its order`, job.signature.jobs.has(job), isReady(job));
  const refused = job.leasing || job.leaseRefused || job.eachStalled;
  const needsLease = state.shared && job.mayLease && !refused && job.ready === 0 && mayRun(job);
  assertSame(`${where}: needs a lease`, job.signature.needsLease.has(job), needsLease);
  assertSame(
    `${where}: a signature that needs a lease`,
    state.needsLease.has(job.signature),
    job.signature.needsLease.size > 0,
  );
  if (job.job.limits.maxRunning !== undefined) {
    let mostRunning = 0;
    for (const { runShares } of state.workers.values()) {
      const { assigned: has = 0, atOnce = 0 } = runShares.get(job) ?? {};
      mostRunning += Math.min(has, atOnce);
    }
    assertSame(`${where}: most running at once`, job.mostRunning, mostRunning);
  }
  assertSame(`${where}: known`, state.jobs.get(job.id), job);
}

function checkWorker(state: State, worker: WorkerState): void {
  const where = `worker ${worker.profile.name}`;
  const used: Record<string, number> = {};
  let prefetched = 0;
  let assigned = 0;
  let started = 0;
  for (const claims of worker.claims.values()) {
    for (const claim of claims) {
      assertSame(`${where}: claim open`, claim.open, claim.placed + claim.prefetched);
      assertSame(`${where}: claim not empty`, claim.open > 0, true);
      assertSame(`${where}: claim known to its job`, claim.job.claims.has(claim), true);
      prefetched += claim.prefetched;
      assigned += claim.open;
      started += claim.tasks.filter((task: number) => task === STARTED).length;
      for (const [name, need] of Object.entries(claim.job.job.requirement.needs)) {
        used[name] = (used[name] ?? 0) + neededOf(need, worker.profile.total[name] ?? 0) * claim.placed;
      }
    }
  }
  used.slots = (used.slots ?? 0) + worker.requests.size;
  assertSame(`${where}: prefetched`, worker.prefetched, prefetched);
  assertSame(`${where}: assigned`, worker.assigned, assigned);
  assertSame(`${where}: started`, worker.started, started);
  for (const [job, share] of worker.runShares) {
    const has = claimsOf(worker).reduce((sum, claim) => sum + (claim.job === job ? claim.open : 0), 0);
    assertSame(`${where}: tasks of job ${job.id}`, share.assigned, has);
    assertSame(`${where}: has tasks of job ${job.id}`, has > 0, true);
  }
  assertSame(`${where}: has prefetched tasks`, state.workersWithPrefetched.has(worker), prefetched > 0);
  assertSame(`${where}: reserved`, worker.reservedFor?.signature.reservation, worker.reservedFor);
  assertSame(`${where}: connected or in grace`, worker.connected, worker.grace === undefined);
  if (!worker.connected) return;
  for (const [name, total] of Object.entries(worker.profile.total)) {
    const free = worker.free[name] ?? 0;
    // Free slots are negative only if the worker has reduced its slots below its requests.
    if (free < 0 && worker.requests.size <= total) throw new Error(`${where}: ${free} ${name} free`);
    assertSame(`${where}: free ${name}`, Math.abs(free - total + (used[name] ?? 0)) < 1e-6, true);
  }
}

function assertSame(what: string, found: unknown, expected: unknown): void {
  if (!Object.is(found, expected)) throw new Error(`${what}: ${String(found)}, expected ${String(expected)}`);
}
