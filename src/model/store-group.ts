/** The additional operations of a store that several brokers share. */
import type { JobId } from "./ids.js";
import type { Counters } from "./job.js";
import type { LimitUse } from "./limit.js";
import type { ClaimedRange, Epoch } from "./store.js";

/** A broker of the group, as the others see it. Times are the store's. */
export interface Member {
  readonly epoch: Epoch;
  /** The description that the broker wrote about itself, as JSON. */
  readonly info: string;
  readonly started: number;
  readonly lastHeartbeat: number;
  /** Its lease is valid: no other broker takes its task ranges. */
  readonly alive: boolean;
}

/** A summary of an open job, to detect changes. */
export interface JobSummary {
  readonly job: JobId;
  /** Changes whenever the hold, the cancels or the end of the job change, and sometimes without a reason. */
  readonly changeMark: string;
  readonly counters: Counters;
  /** A lease would grant something now. */
  readonly mayLease: boolean;
  /** Only this broker has changed it. */
  readonly ownChanges: boolean;
}

/** A job that a transaction of an application has submitted. */
export interface TransactionSubmission {
  readonly id: JobId;
  readonly task: string;
  /** JSON texts, one per task. */
  readonly inputs: readonly string[];
  readonly options: Readonly<Record<string, unknown>>;
}

export interface GroupHint {
  readonly job?: JobId;
  readonly bucket?: string;
  readonly submitted?: true;
  readonly limits?: true;
}

/** The bucket of hints about schedules, which have a table of their own. */
export const SCHEDULE_BUCKET = "schedule";

export interface Submissions {
  /** Whether this submission waits, or without `id` any. */
  waits(id?: JobId): Promise<boolean>;
  /**
   * Passes each waiting submission to `submit`, oldest first, and removes it afterwards. A submission stays if `submit`
   * rejects. If the connection is lost before the removal, it is passed again. Resolves with true if more may wait.
   */
  take(submit: (one: TransactionSubmission) => Promise<void>): Promise<boolean>;
}

/**
 * The brokers that share a store. A broker's lease is renewed by its heartbeat; while it lasts, no other broker takes
 * its task ranges. Once it has ended and another broker has noticed (`reap`), every write of that epoch is refused with
 * LABORO_LEASE_LOST, and the broker has to open the store again. A store that cannot be reached rejects everything with
 * LABORO_STORE_UNAVAILABLE.
 */
export interface Group {
  /** Present if applications can submit in their own transactions. */
  readonly submissions?: Submissions;
  /**
   * Renews the lease for `leaseMs` from now, by the store's clock. An expired lease can be renewed as long as no broker
   * has noticed; otherwise rejects with LABORO_LEASE_LOST. Does not wait behind commits, so that the lease of a busy
   * broker does not expire.
   */
  heartbeat(info: string, leaseMs: number): Promise<void>;
  /** Live brokers, and dead ones whose workers still hold claims. In order of the epochs. */
  members(): Promise<readonly Member[]>;
  /**
   * Marks brokers dead whose lease has run out: any broker may lease their waiting tasks from now on. Returns every
   * dead epoch whose workers still have claims, even if another broker marked it, at every call: the caller may die
   * too.
   */
  reap(now: number): Promise<readonly Epoch[]>;
  /** Takes over the claims of a dead broker's workers. Each task range is given to one broker only. */
  takeOverClaims(dead: Epoch): Promise<readonly ClaimedRange[]>;
  /** Numbers for new jobs, higher than all before. Unused numbers are not returned again. */
  jobNumbers(count: number): Promise<readonly JobId[]>;
  /** The time by the store's clock, in milliseconds since 1970. */
  clock(): Promise<number>;
  /** The highest number of a job; 0 if there is none. */
  lastJob(): Promise<JobId>;
  /** What is used of these limits, by all brokers. */
  limitUse(names: readonly string[]): Promise<readonly LimitUse[]>;
  /** Every open job, in order of number. Cheap, because it is called about every second. */
  jobSummaries(): Promise<readonly JobSummary[]>;
  /**
   * Calls back when other brokers change something: a job was added, held, cancelled, run again, released, ended or
   * removed; a text was stored; a transaction has submitted a job; or limits may have room. Only a hint: some changes
   * are missed, and a broker's own changes may be reported too.
   */
  listen(onHint: (hint: GroupHint) => void): void;
  /** This broker leaves: its lease ends now, and its waiting tasks are released. Nothing is written afterwards. */
  leave(): Promise<void>;
}
