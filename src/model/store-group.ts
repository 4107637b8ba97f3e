/** What a store that brokers share offers beside the rest of its contract. */
import type { JobId } from "./ids.js";
import type { Counters } from "./job.js";
import type { ClaimedRange, Epoch } from "./store.js";

/** A broker of the group, as the others see it. Times are the store's. */
export interface Member {
  readonly epoch: Epoch;
  /** Its description of itself: JSON. */
  readonly info: string;
  readonly started: number;
  readonly lastHeartbeat: number;
  /** Its lease lasts: no other broker takes its task ranges. */
  readonly alive: boolean;
}

/** The state of an open job in short, to find out whether it has changed. */
export interface JobSummary {
  readonly job: JobId;
  /** Differs whenever its hold, its cancels or its end have changed; may also differ where they have not. */
  readonly changeMark: string;
  readonly counters: Counters;
  /** A lease would grant something now. */
  readonly mayLease: boolean;
}

/**
 * The brokers that share a store. A broker's lease is renewed by its heartbeat; while it lasts, no other broker takes its task
 * ranges. Once it has ended and another broker has noticed (`reap`), every write of that epoch is refused with LABORO_LEASE_LOST, and
 * the broker has to open the store again. A store that cannot be reached rejects everything with LABORO_STORE_UNAVAILABLE.
 */
export interface Group {
  /**
   * Renews the lease for `leaseMs` from now, by the store's clock; also a lease that has ended, as long as no broker has noticed.
   * Rejects with LABORO_LEASE_LOST where one has. Does not wait behind commits: the lease of a busy broker must not end for that.
   */
  heartbeat(info: string, leaseMs: number): Promise<void>;
  /** Live brokers, and dead ones whose workers still hold claims. In order of the epochs. */
  members(): Promise<readonly Member[]>;
  /**
   * Marks brokers dead whose lease has run out: their waiting tasks can be leased by any broker from now on. Returns every dead epoch
   * of which workers still hold claims, also if another broker marked it and however often it is called: the caller may die too.
   */
  reap(now: number): Promise<readonly Epoch[]>;
  /** Takes over the claims of a dead broker's workers. Each task range is given to one broker only. */
  takeOverClaims(dead: Epoch): Promise<readonly ClaimedRange[]>;
  /** The highest number that was given to a job; 0 where there is none. */
  lastJob(): Promise<JobId>;
  /** Every open job, in order of their numbers. Cheap: asked every second or so. */
  jobSummaries(): Promise<readonly JobSummary[]>;
  /**
   * Calls back when other brokers change something: a job was added, held, cancelled, run again, released, ended, removed; or a text was
   * stored. Only a hint: some changes are missed, and a broker's own changes may be reported too.
   */
  listen(onHint: (hint: { readonly job?: JobId; readonly bucket?: string }) => void): void;
  /** This broker leaves: its lease ends now, and its waiting tasks are released. Nothing is written afterwards. */
  leave(): Promise<void>;
}
