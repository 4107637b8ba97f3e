/** The state of dispatch, without behaviour. Functions of this folder change it; none has a clock or does I/O. */
import type { Attempt, JobId, RequestId, SessionId, TaskIndex, TaskRangeId, WorkerId } from "../model/ids.js";
import type { Job, JobEnd } from "../model/job.js";
import { firstEndingAtOrAfter, type Range, type Ranges, rangesOf } from "../model/ranges.js";
import type { Requirement, Resources, TaskKind } from "../model/recipe.js";
import type { Epoch, TaskRange } from "../model/store.js";
import type { AttemptRange } from "./decisions.js";
import type { LimitState, RunShare } from "./limits.js";
import { IndexedHeap, type TaskQueue } from "./queues.js";
import type { Settings } from "./settings.js";

/** Waiting tasks, granted by the store. `first` rises as they are assigned. */
export interface WaitingRange {
  readonly rangeId: TaskRangeId;
  first: number;
  readonly last: number;
  readonly attempt: Attempt;
  readonly failures: number;
  readonly crashes: number;
  readonly notBefore: number;
  readonly waitMs?: number;
  readonly avoid?: WorkerId;
}

export interface JobState {
  readonly id: JobId;
  /** Replaced when the job is edited. */
  job: Job;
  signature: Signature;
  held: boolean;
  paused: boolean;
  /** Its `notBefore` has not come yet. `onJobsDue` ends this. */
  delayed: boolean;
  cancels: Ranges;
  readonly waiting: TaskQueue;
  ready: number;
  readonly inBackoff: Set<WaitingRange>;
  /** Granted tasks that wait for tasks of other jobs (each.ts). */
  readonly pending: Set<TaskRange>;
  /** By the other job: which of its tasks have succeeded. */
  readonly each: Map<JobId, Ranges>;
  /** Tasks assigned to workers, running or prefetched. */
  assigned: number;
  /** The most that may run at once, for a job with `maxRunning` (limits.ts). */
  mostRunning: number;
  /** The assigned tasks that have been started. */
  started: number;
  readonly claims: Set<Claim>;
  /** The store may grant more of its tasks. */
  mayLease: boolean;
  leasing: boolean;
  /** In a group: as many of its tasks are leased as `maxRunning` allows. */
  leaseRefused: boolean;
  /** In a group: no task that was granted may run before tasks of other jobs have ended (each.ts). */
  eachStalled: boolean;
  /** The most tasks that the pending lease can bring. */
  leasingTasks: number;
  /** Slots given to this job so far, on the scale that its rivals of equal priority share (job-queue.ts). */
  served: number;
  readonly blockedBy: Set<JobId>;
  failed: number;
  succeeded: number;
  /** Its halt rule applies: waiting and returning tasks are cancelled. */
  halted: boolean;
  /** Mean duration of its tasks, once one has ended. */
  meanMs?: number;
}

/** The states of a task in a claim. */
export const UNSTARTED = 0;
export const STARTED = 1;
export const GONE = 2;

export type TaskState = typeof UNSTARTED | typeof STARTED | typeof GONE;

/** A plain list for few tasks, because a typed array costs more to create. */
export type TaskStates = Uint8Array | number[];

/** Tasks assigned to one worker at once: a task range of the store. */
export interface Claim {
  readonly rangeId: TaskRangeId;
  readonly job: JobState;
  readonly worker: WorkerState;
  readonly first: number;
  readonly last: number;
  readonly attempt: Attempt;
  readonly failures: number;
  readonly crashes: number;
  /** One of the three states above for each task, from `first` on. Changed by `setTaskState` only. */
  readonly tasks: TaskStates;
  /** Tasks not gone: placed + prefetched. */
  open: number;
  started: number;
  /** Tasks that occupy resources of the worker. */
  placed: number;
  /** Tasks that do not occupy any yet. */
  prefetched: number;
  /** RETRACT was sent and not yet answered. */
  retracting: boolean;
  /** When tasks were started, by index, as far as reported. Created with the first report. */
  startedAt: Map<number, number> | undefined;
  /** The reservation of the worker when the tasks were assigned. */
  passed: Reservation | undefined;
}

export type Standing = "good" | "suspended" | "banned";

/** A worker's results and its standing (standing.ts). */
export interface StandingRecord {
  readonly results: number;
  readonly succeeded: number;
  /** The last ten, latest last: `+` or `-`. */
  readonly recent: string;
  /** Successes in a row while suspended. */
  readonly probes: number;
  readonly standing: Standing;
}

export interface WorkerProfile {
  readonly id: WorkerId;
  readonly session: SessionId;
  readonly name: string;
  readonly protocol: string;
  readonly pool: string;
  readonly tags: readonly string[];
  readonly services: readonly string[];
  readonly total: Resources;
  readonly reserveRequests: number;
  /** Its protocol can resume tasks after a reconnect. */
  readonly resumable: boolean;
  /** It may hold tasks beyond its free slots. */
  readonly canPrefetch: boolean;
  /** When it will leave, by the broker's clock. */
  readonly leavesAt?: number;
  /** The kinds of task that it can run; all if absent. */
  readonly taskKinds?: readonly TaskKind[];
  /** How long it may be disconnected, if not the broker's usual time. */
  readonly graceMs?: number;
  readonly address?: string;
  /** Why it takes no tasks at the moment. */
  readonly paused?: string;
  /** Why it takes less than it could, for `explain`. */
  readonly remark?: string;
}

export interface WorkerState {
  profile: WorkerProfile;
  /** The record to store with its first task, and the stored one (workers.ts). */
  record: string | undefined;
  storedRecord: string | undefined;
  connected: boolean;
  /** Gets nothing new: requested by an operator, or by the worker before it leaves. */
  draining: boolean;
  /** It drains because it ends, which cannot be undone. */
  leaving: boolean;
  standing: Standing;
  /** The most slots offered since its profile came. What it can run does not depend on its current slots. */
  mostSlots: number;
  readonly free: Record<string, number>;
  /** Rises with each use. Workers that were never used have values below 0, in order of joining. */
  lastUse: number;
  /** The share of the job that it served last, by priority. */
  readonly shareLevels: Map<number, ShareLevel>;
  /** Sorted by job and first index, disjoint within a job. */
  readonly claims: Map<JobId, Claim[]>;
  /** Claims with prefetched tasks, in the order of their assignment. */
  readonly prefetchedClaims: Set<Claim>;
  prefetched: number;
  assigned: number;
  /** By job with `maxRunning`. */
  readonly runShares: Map<JobState, RunShare>;
  started: number;
  readonly requests: Set<RequestState>;
  readonly capableOf: Set<Signature>;
  /** Those of them that are not dormant: they are updated when it gets work or ends some. */
  readonly indexedIn: Set<Signature>;
  /** A wide task waits for free resources of this worker. */
  reservedFor?: Reservation;
  /** Tasks per millisecond while it was busy. */
  rate: number;
  rateWindowStart: number;
  rateWindowCount: number;
  /** From a claim to its first result, less the tasks' duration: commit, network both ways, the worker's delay. */
  roundTripMs: number;
  /** The claim that it got when it was idle, and when. Its result shows the round trip. */
  roundTripProbe?: { readonly claim: Claim; readonly at: number };
  grace?: Timer;
}

interface ShareLevel {
  readonly level: number;
  /** The value of `uses` when it was set. */
  readonly at: number;
}

/** All work with the same requirements, and the workers that meet them. */
export interface Signature {
  readonly key: string;
  readonly requirement: Requirement;
  readonly forRequests: boolean;
  /** The kind of its tasks; absent for requests. */
  readonly kind?: TaskKind;
  /** A worker that ends sooner than this takes none of it. */
  readonly timeNeededMs?: number;
  /** Limits that its tasks count against (limits.ts). */
  readonly limits?: readonly LimitState[];
  /** The limit that has no room: nothing of the signature is assigned. */
  full?: LimitState | undefined;
  /** In a group, the limit for which the store refused a lease: nothing of the signature is leased. */
  leaseRefusedBy?: LimitState | undefined;
  /** Needs more than one plain slot, so that a worker may have to be reserved for it. */
  readonly wide: boolean;
  /** Jobs with ready tasks, the next one on top. */
  readonly jobs: IndexedHeap<JobState>;
  /** Waiting requests, oldest on top. */
  readonly requests: IndexedHeap<RequestState>;
  /** Workers whose total resources suffice, with the most slots that they have offered. */
  readonly capable: Set<WorkerState>;
  /** Those with enough free for one now, least recently used on top. To be read with `availableOf`. */
  readonly available: IndexedHeap<WorkerState>;
  /** The capable workers, most free slots on top; kept for wide signatures only. */
  readonly byFreeSlots: IndexedHeap<WorkerState>;
  /** In a group: jobs that could be assigned if some of their tasks were leased, the next one on top (leasing.ts). */
  readonly needsLease: IndexedHeap<JobState>;
  /** The most tasks that the pending leases can bring. */
  leasingTasks: number;
  /** Mean duration of its tasks, once one has ended: the estimate for jobs without an ended task. */
  meanMs?: number;
  /** How many tasks all capable workers together can run at once; computed when first needed. */
  capacity?: number | undefined;
  reservation?: Reservation;
  /** By priority: the share at which a job starts when it begins to wait. */
  readonly shareLevels: Map<number, ShareLevel>;
  /** Changes to its workers since it was last used. */
  unusedFor: number;
  /** Unused for long: `available`, `byFreeSlots` and `shareLevels` are not kept up to date. */
  dormant: boolean;
}

/** A worker that keeps what the next task of a wide signature needs (reservation.ts). */
export interface Reservation {
  readonly signature: Signature;
  readonly worker: WorkerState;
  /** Resources of tasks and requests that the worker was given since. */
  readonly used: Record<string, number>;
}

export interface RequestState {
  readonly id: RequestId;
  readonly service: string;
  readonly signature: Signature;
  readonly deadline: number;
  /** Assign it to another worker once, if this one is lost. */
  retry: boolean;
  worker: WorkerState | undefined;
  /** The reservation of the worker when it got the request. */
  passed: Reservation | undefined;
  /** Its caller has an answer or no longer waits; the worker has not finished it. */
  ended: boolean;
}

export type Timer =
  | { readonly at: number; readonly kind: "retry"; readonly job: JobState; readonly waiting: WaitingRange }
  | { readonly at: number; readonly kind: "grace"; readonly worker: WorkerState }
  | { readonly at: number; readonly kind: "limit"; readonly limit: LimitState }
  /** Released tasks of the job can be leased. */
  | { readonly at: number; readonly kind: "lease"; readonly job: JobId };

export interface State {
  readonly settings: Settings;
  readonly epoch: Epoch;
  /** Other brokers use the same store: tasks that no worker here can run are left to them. */
  readonly shared: boolean;
  readonly jobs: Map<JobId, JobState>;
  readonly workers: Map<WorkerId, WorkerState>;
  readonly signatures: Map<string, Signature>;
  /** Signatures with waiting jobs or requests, and a worker that could take them. */
  readonly active: Set<Signature>;
  readonly needsLease: Set<Signature>;
  readonly workersWithPrefetched: Set<WorkerState>;
  readonly requests: Map<RequestId, RequestState>;
  /** No request has an earlier deadline. */
  requestsDueAt: number;
  readonly timers: IndexedHeap<Timer>;
  readonly limits: Map<string, LimitState>;
  /** Pools whose tasks are not started, with the reason if one was given. */
  readonly pausedPools: Map<string, string | undefined>;
  /** Until then nothing is leased beyond free slots, because other brokers have some (leasing.ts). */
  leaseAheadAt: number;
  readonly refusedJobs: Set<JobId>;
  /** Jobs that wait for a job, by the one they wait for. */
  readonly waitingFor: Map<JobId, Set<JobState>>;
  /** Jobs whose tasks wait for the tasks of a job, by that job. */
  readonly eachWaiting: Map<JobId, Set<JobState>>;
  /** How recent jobs ended. A job that is being stored may depend on one of them. */
  readonly recentEnds: Map<JobId, JobEnd>;
  /** Stored records of workers that have not come back since the start of the broker. */
  readonly workerRecords: Map<WorkerId, string>;
  /** Results of workers, by name. */
  readonly standings: Map<string, StandingRecord>;
  readonly priorities: Map<number, number>;
  uses: number;
  joins: number;
  /** The time of the latest event. */
  now: number;
  /** Since the last placement a job became ready or a reservation ended. Placement must run again. */
  needsPlacement: boolean;
  nextTaskRangeId: number;
  /** Why nothing is assigned. */
  halted: string | undefined;
}

/** The broker that creates a task range chooses its id. Each epoch has this many ids. */
const TASK_RANGES_PER_EPOCH = 2 ** 36;

export function createState(settings: Settings, epoch: Epoch, shared: boolean): State {
  return {
    settings,
    epoch,
    shared,
    jobs: new Map(),
    workers: new Map(),
    signatures: new Map(),
    active: new Set(),
    needsLease: new Set(),
    workersWithPrefetched: new Set(),
    requests: new Map(),
    requestsDueAt: Number.POSITIVE_INFINITY,
    timers: new IndexedHeap((a, b) => a.at < b.at),
    limits: new Map(),
    pausedPools: new Map(),
    leaseAheadAt: 0,
    refusedJobs: new Set(),
    waitingFor: new Map(),
    eachWaiting: new Map(),
    recentEnds: new Map(),
    workerRecords: new Map(),
    standings: new Map(),
    priorities: new Map(),
    uses: 0,
    joins: 0,
    now: 0,
    needsPlacement: false,
    nextTaskRangeId: epoch * TASK_RANGES_PER_EPOCH,
    halted: undefined,
  };
}

export function newTaskRangeId(state: State): TaskRangeId {
  return state.nextTaskRangeId++ as TaskRangeId;
}

/** The worker's claim with this task, if the worker still has the task. */
export function claimOf(worker: WorkerState, job: JobId, index: TaskIndex): Claim | undefined {
  const claims = worker.claims.get(job);
  if (claims === undefined) return undefined;
  const claim = claims[firstEndingAtOrAfter(claims, index)];
  if (claim === undefined || claim.first > index) return undefined;
  return claim.tasks[index - claim.first] === GONE ? undefined : claim;
}

/** A worker's claims that reach into these tasks, in task order. */
export function claimsWithin(worker: WorkerState, job: JobId, range: Range): Claim[] {
  const claims = worker.claims.get(job) ?? [];
  const found: Claim[] = [];
  for (let at = firstEndingAtOrAfter(claims, range.first); at < claims.length; at++) {
    const claim = claims[at] as Claim;
    if (claim.first > range.last) break;
    found.push(claim);
  }
  return found;
}

export const claimsOf = (worker: WorkerState): Claim[] => [...worker.claims.values()].flat();

/** The next job of the signature that may be handed out. */
export const nextJobOf = ({ full, jobs }: Signature): JobState | undefined =>
  full === undefined ? jobs.peek() : undefined;

/** A set that contains every signature with waiting work that the worker is capable of, and possibly others. */
export const signaturesFor = (state: State, worker: WorkerState): ReadonlySet<Signature> =>
  worker.capableOf.size < state.active.size ? worker.capableOf : state.active;

/** The tasks that a worker has, in ranges of one attempt. */
export const attemptRangesOf = (worker: WorkerState): AttemptRange[] =>
  claimsOf(worker).flatMap(({ job, attempt, first, tasks }) =>
    rangesOf(Array.from(tasks.keys(), (at) => first + at).filter((index) => tasks[index - first] !== GONE)).map(
      (range) => ({ job: job.id, attempt, ...range }),
    ),
  );
