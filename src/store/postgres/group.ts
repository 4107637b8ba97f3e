/**
 * Brokers that share the database. Each has a row with a lease that its heartbeat renews, by the database's clock. A broker whose lease has ended is
 * found dead by another: in that transaction what waited there becomes anybody's, and nothing that it writes afterwards is taken. What its
 * workers hold stays under its epoch until they join another broker, or until one takes it over.
 */
import { LaboroError } from "../../base/errors.js";
import type { JobId, ParcelId } from "../../model/ids.js";
import type { Counters } from "../../model/job.js";
import type { Epoch, Group, HeldParcel, JobMark, Member } from "../../model/store.js";
import { numbers, plain } from "./arrays.js";
import type { Commits, Work } from "./commits.js";
import type { Connections, Session } from "./connections.js";
import type { Hints } from "./hints.js";
import { totalsOf } from "./operations/end.js";
import { type Freed, giveBack } from "./operations/release.js";
import { type HeldRow, heldFrom, PARCEL_FIELDS, SETTLED } from "./parcels.js";
import { OWN } from "./statements.js";

/** $1 epoch, $2 about, $3 milliseconds. */
export const BEAT = `
UPDATE laboro.broker
SET about = $2::text, beat = clock_timestamp(), lease_ends = clock_timestamp() + $3::float8 * interval '1 millisecond'
WHERE epoch = $1::bigint AND NOT dead RETURNING epoch`;

const HAS_CLAIMS = "EXISTS (SELECT 1 FROM laboro.parcel p WHERE p.epoch = b.epoch AND p.worker IS NOT NULL)";
const MEMBERS = `
SELECT b.epoch, b.about, extract(epoch FROM b.started)::float8 * 1000 AS started, extract(epoch FROM b.beat)::float8 * 1000 AS "lastBeat",
  NOT b.dead AND b.lease_ends > clock_timestamp() AS alive
FROM laboro.broker b WHERE NOT b.dead OR ${HAS_CLAIMS} ORDER BY b.epoch`;

/** What a lease would be granted: tasks beyond the cursor, or some that were given back and are due. */
export const MARKS = `
SELECT j.id AS job, j.changed::text AS mark, t.succeeded, t.failed, t.cancelled,
  j.cursor < j.count OR EXISTS (
    SELECT 1 FROM laboro.parcel p
    WHERE p.job = j.id AND p.epoch IS NULL AND p.not_before <= extract(epoch FROM clock_timestamp()) * 1000) AS more
FROM laboro.job j, LATERAL (
  SELECT coalesce(sum(succeeded), 0)::int AS succeeded, coalesce(sum(failed), 0)::int AS failed, coalesce(sum(cancelled), 0)::int AS cancelled
  FROM laboro.tally WHERE job = j.id) AS t
WHERE j.ended_at IS NULL ORDER BY j.id`;

/** A broker in the middle of a batch is passed over: it lives, or its connection will be found dead first. */
const FIND_DEAD = `
UPDATE laboro.broker SET dead = true
WHERE epoch IN (SELECT epoch FROM laboro.broker WHERE NOT dead AND lease_ends < clock_timestamp() AND epoch <> ${OWN}
                ORDER BY epoch FOR UPDATE SKIP LOCKED)
RETURNING epoch`;
const LOCK_JOBS_OF = `
SELECT id FROM laboro.job WHERE id IN (SELECT job FROM laboro.parcel WHERE epoch = ANY($1::bigint[]) AND worker IS NULL)
ORDER BY id FOR NO KEY UPDATE`;
const GIVE_BACK_OF = giveBack("p.epoch = ANY($1::bigint[])");
const BEREFT = `SELECT b.epoch FROM laboro.broker b WHERE b.dead AND ${HAS_CLAIMS} ORDER BY b.epoch`;
const FORGET = `
WITH gone AS (
  DELETE FROM laboro.broker b
  WHERE b.dead AND b.beat < clock_timestamp() - interval '1 hour' AND ${OWN} > 0
    AND NOT EXISTS (SELECT 1 FROM laboro.parcel p WHERE p.epoch = b.epoch)
  RETURNING b.epoch)
DELETE FROM laboro.batch WHERE epoch IN (SELECT epoch FROM gone)`;

/** $1 the dead broker. */
const TAKE_CLAIMS = `
WITH theirs AS MATERIALIZED (
  SELECT p.id FROM laboro.parcel p
  WHERE p.epoch = $1::bigint AND p.worker IS NOT NULL AND EXISTS (SELECT 1 FROM laboro.broker b WHERE b.epoch = $1::bigint AND b.dead)
  ORDER BY p.id FOR UPDATE)
UPDATE laboro.parcel p SET epoch = ${OWN} FROM theirs WHERE p.id = theirs.id RETURNING p.id`;
const HELD_OF = `SELECT ${PARCEL_FIELDS}, ${SETTLED} FROM laboro.parcel p WHERE p.id = ANY($1::bigint[])`;

const LEAVE = `UPDATE laboro.broker SET dead = true, lease_ends = clock_timestamp() WHERE epoch = ${OWN}`;

export class PostgresGroup implements Group {
  readonly #connections: Connections;
  readonly #commits: Commits;
  readonly #hints: Hints;
  readonly #epoch: Epoch;

  constructor(connections: Connections, commits: Commits, hints: Hints, epoch: Epoch) {
    this.#connections = connections;
    this.#commits = commits;
    this.#hints = hints;
    this.#epoch = epoch;
  }

  async beat(about: string, leaseMs: number): Promise<void> {
    const rows = await this.#connections.beat(BEAT, [this.#epoch, plain(about), leaseMs]);
    if (rows.length > 0) return;
    throw new LaboroError("LABORO_LEASE_LOST", `the lease of this broker at ${this.#connections.place} has ended`);
  }

  members(): Promise<readonly Member[]> {
    return this.#connections.read<Member>(MEMBERS);
  }

  async reap(now: number): Promise<readonly Epoch[]> {
    const { epochs, changed } = await this.#commits.commit(
      alone(async (session) => {
        const dead = await session.send<{ epoch: Epoch }>(FIND_DEAD);
        if (dead.length > 0) await freeWaiting(session, numbers(dead.map(({ epoch }) => epoch)), now);
        const [bereft] = await Promise.all([session.send<{ epoch: Epoch }>(BEREFT), session.send(FORGET)]);
        return { epochs: bereft.map(({ epoch }) => epoch), changed: dead.length > 0 };
      }),
    );
    if (changed) this.#hints.tell();
    return epochs;
  }

  orphans(dead: Epoch): Promise<readonly HeldParcel[]> {
    return this.#commits.commit(
      alone(async (session) => {
        const taken = await session.send<{ id: ParcelId }>(TAKE_CLAIMS, [dead]);
        return heldFrom(await session.send<HeldRow>(HELD_OF, [numbers(taken.map(({ id }) => id))]));
      }),
    );
  }

  async marks(): Promise<readonly JobMark[]> {
    const rows = await this.#connections.read<Omit<JobMark, "counters"> & Counters>(MARKS);
    return rows.map(({ job, mark, more, ...counters }) => ({ job, mark, counters, more }));
  }

  listen(heard: Parameters<Group["listen"]>[0]): void {
    this.#hints.listen(heard);
  }

  async leave(): Promise<void> {
    await this.#commits.commit(
      alone(async (session) => {
        await freeWaiting(session, numbers([this.#epoch]), performance.timeOrigin + performance.now());
        await session.send(LEAVE);
      }),
    );
    this.#hints.tell();
  }
}

const alone = <T>(run: (session: Session) => Promise<T>): Work<T> => ({ patient: false, prepare: async () => {}, run });

/** What waits at these brokers can be leased by anyone. Jobs of which the last tasks were cancelled end with it. */
async function freeWaiting(session: Session, epochs: string, now: number): Promise<void> {
  const [, freed] = await Promise.all([
    session.send(LOCK_JOBS_OF, [epochs]),
    session.send<Freed>(GIVE_BACK_OF, [epochs]),
  ]);
  const counted = new Set<JobId>(freed.filter(({ cancelled }) => cancelled > 0).map(({ job }) => job));
  await totalsOf({ session, now }, counted);
}
