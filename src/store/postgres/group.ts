/**
 * Brokers that share the database. Each has a row with a lease, which its heartbeat renews by the database's clock.
 * When a lease has ended, another broker marks the broker dead: that transaction releases its waiting tasks, and its
 * later writes are refused. The claims of its workers stay under its epoch until the workers join another broker, or a
 * broker takes the claims over.
 */
import { LaboroError } from "../../base/errors.js";
import type { JobId, TaskRangeId } from "../../model/ids.js";
import type { Counters } from "../../model/job.js";
import type { LimitUse } from "../../model/limit.js";
import type { ClaimedRange, Epoch, RecoveredState } from "../../model/store.js";
import type { Group, JobSummary, Member, Submissions } from "../../model/store-group.js";
import type { ChangeFeed } from "./change-feed.js";
import type { CommitQueue, TransactionWork } from "./commit-queue.js";
import { type Client, type Connections, inTransaction, type Session, send, storeFailure } from "./connections.js";
import {
  type ClaimedRow,
  claimedRangesFrom,
  type JobRow,
  jobFrom,
  OPEN_JOBS,
  SETTLED,
  TASK_RANGE_FIELDS,
} from "./job-rows.js";
import { NEXT_JOBS } from "./known-rows.js";
import { readLimitUse } from "./limit-rows.js";
import { migrate } from "./migrations/index.js";
import { totalsOf } from "./operations/cancel.js";
import { type ReleasedRange, releaseStatement } from "./operations/lease.js";
import { dueAt, numberArray, OWN_EPOCH, validText } from "./statements.js";

/** $1 epoch, $2 info, $3 milliseconds. */
export const HEARTBEAT = `
UPDATE laboro.broker
SET info = $2::text, heartbeat_at = clock_timestamp(),
  lease_ends_at = clock_timestamp() + $3::float8 * interval '1 millisecond'
WHERE epoch = $1::bigint AND NOT dead RETURNING epoch`;

const HAS_CLAIMS = "EXISTS (SELECT 1 FROM laboro.task_range p WHERE p.epoch = b.epoch AND p.worker IS NOT NULL)";
const MEMBERS = `
SELECT b.epoch, b.info, extract(epoch FROM b.started)::float8 * 1000 AS started,
  extract(epoch FROM b.heartbeat_at)::float8 * 1000 AS "lastHeartbeat",
  NOT b.dead AND b.lease_ends_at > clock_timestamp() AS alive
FROM laboro.broker b WHERE NOT b.dead OR ${HAS_CLAIMS} ORDER BY b.epoch`;

/** $1 this broker. What a lease would grant: tasks beyond the cursor, or released ones that are due. */
export const JOB_SUMMARIES = `
SELECT j.id AS job, s.changed_xid::text AS "changeMark", s.changed_by = $1::bigint AS "ownChanges",
  t.succeeded, t.failed, t.cancelled,
  j.cursor < j.count OR EXISTS (
    SELECT 1 FROM laboro.task_range p
    WHERE p.job = j.id AND p.epoch IS NULL AND ${dueAt("extract(epoch FROM clock_timestamp()) * 1000")}) AS "mayLease"
FROM laboro.job_state s JOIN laboro.job j ON j.id = s.job, LATERAL (
  SELECT coalesce(sum(succeeded), 0)::int AS succeeded, coalesce(sum(failed), 0)::int AS failed,
    coalesce(sum(cancelled), 0)::int AS cancelled
  FROM laboro.job_counters WHERE job = j.id) AS t
WHERE s.ended_at IS NULL AND s.not_before IS NULL ORDER BY s.job`;

const CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS now";
const LAST_JOB = "SELECT coalesce(pg_sequence_last_value('laboro.job_number'), 0) AS id";

/** A broker in the middle of a batch is skipped: it is alive, or the server will end its connection first. */
const FIND_DEAD = `
UPDATE laboro.broker SET dead = true
WHERE epoch IN (SELECT epoch FROM laboro.broker
  WHERE NOT dead AND lease_ends_at < clock_timestamp() AND epoch <> ${OWN_EPOCH}
                ORDER BY epoch FOR UPDATE SKIP LOCKED)
RETURNING epoch`;
const LOCK_JOBS_OF = `
SELECT id FROM laboro.job
WHERE id IN (SELECT job FROM laboro.task_range WHERE epoch = ANY($1::bigint[]) AND worker IS NULL)
ORDER BY id FOR NO KEY UPDATE`;
const RELEASE_OF = releaseStatement("p.epoch = ANY($1::bigint[])");
const DEAD_WITH_CLAIMS = `SELECT b.epoch FROM laboro.broker b WHERE b.dead AND ${HAS_CLAIMS} ORDER BY b.epoch`;
const DELETE_DEAD = `
WITH gone AS (
  DELETE FROM laboro.broker b
  WHERE b.dead AND b.heartbeat_at < clock_timestamp() - interval '1 hour' AND ${OWN_EPOCH} > 0
    AND NOT EXISTS (SELECT 1 FROM laboro.task_range p WHERE p.epoch = b.epoch)
  RETURNING b.epoch)
DELETE FROM laboro.last_batch WHERE epoch IN (SELECT epoch FROM gone)`;

/** $1 the dead broker. */
const TAKE_CLAIMS = `
WITH theirs AS MATERIALIZED (
  SELECT p.id FROM laboro.task_range p
  WHERE p.epoch = $1::bigint AND p.worker IS NOT NULL
    AND EXISTS (SELECT 1 FROM laboro.broker b WHERE b.epoch = $1::bigint AND b.dead)
  ORDER BY p.id FOR UPDATE)
UPDATE laboro.task_range p SET epoch = ${OWN_EPOCH} FROM theirs WHERE p.id = theirs.id RETURNING p.id`;
const HELD_OF = `SELECT ${TASK_RANGE_FIELDS}, ${SETTLED} FROM laboro.task_range p WHERE p.id = ANY($1::bigint[])`;

const LEAVE = `UPDATE laboro.broker SET dead = true, lease_ends_at = clock_timestamp() WHERE epoch = ${OWN_EPOCH}`;

export class PostgresGroup implements Group {
  readonly submissions: Submissions;
  readonly #connections: Connections;
  readonly #commits: CommitQueue;
  readonly #changes: ChangeFeed;
  readonly #epoch: Epoch;

  constructor(
    connections: Connections,
    commits: CommitQueue,
    changes: ChangeFeed,
    submissions: Submissions,
    epoch: Epoch,
  ) {
    this.submissions = submissions;
    this.#connections = connections;
    this.#commits = commits;
    this.#changes = changes;
    this.#epoch = epoch;
  }

  async heartbeat(info: string, leaseMs: number): Promise<void> {
    const rows = await this.#connections.heartbeat(HEARTBEAT, [this.#epoch, validText(info), leaseMs]);
    if (rows.length > 0) return;
    throw new LaboroError("LABORO_LEASE_LOST", `the lease of this broker at ${this.#connections.displayUrl} has ended`);
  }

  members(): Promise<readonly Member[]> {
    return this.#connections.read<Member>(MEMBERS);
  }

  async reap(now: number): Promise<readonly Epoch[]> {
    const { epochs, changed } = await this.#commits.commit(
      ownTransaction(async (session) => {
        const dead = await session.send<{ epoch: Epoch }>(FIND_DEAD);
        if (dead.length > 0) await releaseWaiting(session, numberArray(dead.map(({ epoch }) => epoch)), now);
        const [deadWithClaims] = await Promise.all([
          session.send<{ epoch: Epoch }>(DEAD_WITH_CLAIMS),
          session.send(DELETE_DEAD),
        ]);
        return { epochs: deadWithClaims.map(({ epoch }) => epoch), changed: dead.length > 0 };
      }),
    );
    if (changed) this.#changes.notify([], true);
    return epochs;
  }

  takeOverClaims(dead: Epoch): Promise<readonly ClaimedRange[]> {
    return this.#commits.commit(
      ownTransaction(async (session) => {
        const taken = await session.send<{ id: TaskRangeId }>(TAKE_CLAIMS, [dead]);
        return claimedRangesFrom(await session.send<ClaimedRow>(HELD_OF, [numberArray(taken.map(({ id }) => id))]));
      }),
    );
  }

  limitUse(names: readonly string[]): Promise<readonly LimitUse[]> {
    return readLimitUse({ send: (statement, values) => this.#connections.read(statement, values) }, names);
  }

  async jobNumbers(count: number): Promise<readonly JobId[]> {
    const rows = await this.#connections.read<{ id: JobId }>(NEXT_JOBS, [count]);
    return rows.map(({ id }) => id);
  }

  async clock(): Promise<number> {
    const [row] = await this.#connections.read<{ now: number }>(CLOCK);
    return row?.now ?? Number.NaN;
  }

  async lastJob(): Promise<JobId> {
    const [row] = await this.#connections.read<{ id: JobId }>(LAST_JOB);
    return row?.id ?? (0 as JobId);
  }

  async jobSummaries(): Promise<readonly JobSummary[]> {
    const rows = await this.#connections.read<Omit<JobSummary, "counters"> & Counters>(JOB_SUMMARIES, [this.#epoch]);
    return rows.map(({ job, changeMark, mayLease, ownChanges, ...counters }) => ({
      ...{ job, changeMark, counters, mayLease, ownChanges },
    }));
  }

  listen(onHint: Parameters<Group["listen"]>[0]): void {
    this.#changes.listen(onHint);
  }

  async leave(): Promise<void> {
    await this.#commits.commit(
      ownTransaction(async (session) => {
        await releaseWaiting(session, numberArray([this.#epoch]), performance.timeOrigin + performance.now());
        await session.send(LEAVE);
      }),
    );
    this.#changes.notify([], true);
  }
}

const ownTransaction = <T>(run: (session: Session) => Promise<T>): TransactionWork<T> => ({
  noTimeout: false,
  prepare: async () => {},
  run,
});

/** Releases the waiting tasks of these brokers. Jobs whose last tasks were cancelled end. */
async function releaseWaiting(session: Session, epochs: string, now: number): Promise<void> {
  const [, freed] = await Promise.all([
    session.send(LOCK_JOBS_OF, [epochs]),
    session.send<ReleasedRange>(RELEASE_OF, [epochs]),
  ]);
  const counted = new Set<JobId>(freed.filter(({ cancelled }) => cancelled > 0).map(({ job }) => job));
  await totalsOf({ session, now }, counted);
}

// A broker joins the group: it migrates the schema, gets its epoch and reads the open state.

/** $1 milliseconds. Reads may miss changes by transactions from `seen` on. */
const INSERT_BROKER = `
INSERT INTO laboro.broker (info, lease_ends_at) VALUES ('{}', clock_timestamp() + $1::float8 * interval '1 millisecond')
RETURNING epoch, pg_snapshot_xmin(pg_current_snapshot())::text AS seen,
  (SELECT s.identity FROM laboro.store s) AS store`;

/** $1 the former epoch. Waits for a batch that is under way there; no batch follows it. */
const MARK_DEAD = `
UPDATE laboro.broker SET dead = true
WHERE epoch = (SELECT epoch FROM laboro.broker WHERE epoch = $1::bigint FOR UPDATE)`;
/** $1 an epoch, $2 the identity of the broker. */
const IS_SAME_BROKER = "SELECT 1 FROM laboro.broker WHERE epoch = $1::bigint AND info::jsonb ->> 'identity' = $2::text";
const TAKE_OVER_RANGES = "UPDATE laboro.task_range SET epoch = $2::bigint WHERE epoch = $1::bigint";
const HELD = `SELECT ${TASK_RANGE_FIELDS}, ${SETTLED} FROM laboro.task_range p WHERE p.epoch = $1::bigint`;

/** A broker's lease before its first heartbeat. */
const FIRST_LEASE_MS = 30_000;

interface JoinedGroup {
  readonly recovered: RecoveredState;
  readonly seen: string;
}

export async function joinGroup(
  connections: Connections,
  formerEpoch: Epoch | undefined,
  identity: string | undefined,
): Promise<JoinedGroup> {
  // Without time limits: a migration takes as long as it takes, and so does a long list of jobs.
  const client = connections.client(1, {});
  try {
    await migrate(client, connections.displayUrl);
    const [row] = await send<{ epoch: Epoch; seen: string; store: string }>(client, INSERT_BROKER, [FIRST_LEASE_MS]);
    const { epoch, seen, store } = row ?? { epoch: 0, seen: "0", store: "" };
    if (formerEpoch !== undefined) await takeOver(client, formerEpoch, epoch, identity);
    const jobs = await send<JobRow>(client, OPEN_JOBS);
    const taskRanges = formerEpoch === undefined ? [] : await send<ClaimedRow>(client, HELD, [epoch]);
    const open = { jobs: jobs.map(jobFrom), taskRanges: claimedRangesFrom(taskRanges) };
    return { recovered: { identity: store, epoch, ...open }, seen };
  } catch (cause) {
    throw storeFailure(cause, connections.displayUrl, true);
  } finally {
    await client.end({ timeout: 1 });
  }
}

function takeOver(client: Client, formerEpoch: Epoch, epoch: Epoch, identity: string | undefined): Promise<void> {
  return inTransaction(client, async () => {
    if (identity !== undefined && (await send(client, IS_SAME_BROKER, [formerEpoch, identity])).length === 0) return;
    await send(client, MARK_DEAD, [formerEpoch]);
    await send(client, TAKE_OVER_RANGES, [formerEpoch, epoch]);
  });
}
