/** A broker comes: the schema is brought up to date, it gets its epoch, and finds what there is. */
import type { Epoch, Held } from "../../model/store.js";
import type { Client, Connections } from "./connections.js";
import { send } from "./connections.js";
import { storeFailure } from "./failures.js";
import { type JobRow, jobFrom, OPEN_JOBS } from "./job-rows.js";
import { migrate } from "./migrations/index.js";
import { type HeldRow, heldFrom, PARCEL_FIELDS, SETTLED } from "./parcels.js";

/** $1 milliseconds. Whatever is changed by transactions from `seen` on may not be in what is read next. */
const ENTER = `
INSERT INTO laboro.broker (about, lease_ends) VALUES ('{}', clock_timestamp() + $1::float8 * interval '1 millisecond')
RETURNING epoch, pg_snapshot_xmin(pg_current_snapshot())::text AS seen`;

/** $1 the former epoch, $2 the new one. What is under way there comes to its end first, and nothing follows it. */
const BURY =
  "UPDATE laboro.broker SET dead = true WHERE epoch = (SELECT epoch FROM laboro.broker WHERE epoch = $1::bigint FOR UPDATE)";
/** $1 an epoch, $2 what the broker calls itself. */
const IS_IT = "SELECT 1 FROM laboro.broker WHERE epoch = $1::bigint AND about::jsonb ->> 'identity' = $2::text";
const SUCCEED = "UPDATE laboro.parcel SET epoch = $2::bigint WHERE epoch = $1::bigint";
const HELD = `SELECT ${PARCEL_FIELDS}, ${SETTLED} FROM laboro.parcel p WHERE p.epoch = $1::bigint`;

export interface Opened {
  readonly held: Held;
  readonly seen: string;
}

export async function enterGroup(
  connections: Connections,
  firstLeaseMs: number,
  former: Epoch | undefined,
  identity: string | undefined,
): Promise<Opened> {
  // Without time limits: a migration takes as long as it takes, and so does a long list of jobs.
  const client = connections.client(1, {});
  try {
    await migrate(client, connections.place);
    const [row] = await send<{ epoch: Epoch; seen: string }>(client, ENTER, [firstLeaseMs]);
    const { epoch, seen } = row ?? { epoch: 0, seen: "0" };
    if (former !== undefined) await succeed(client, former, epoch, identity);
    const jobs = await send<JobRow>(client, OPEN_JOBS);
    const parcels = former === undefined ? [] : await send<HeldRow>(client, HELD, [epoch]);
    return { held: { epoch, jobs: jobs.map(jobFrom), parcels: heldFrom(parcels) }, seen };
  } catch (cause) {
    throw storeFailure(cause, connections.place, true);
  } finally {
    await client.end({ timeout: 1 });
  }
}

async function succeed(client: Client, former: Epoch, epoch: Epoch, identity: string | undefined): Promise<void> {
  await client.begin(async (sql) => {
    if (identity !== undefined && (await sql.unsafe(IS_IT, [former, identity])).length === 0) return;
    await sql.unsafe(BURY, [former]);
    await sql.unsafe(SUCCEED, [former, epoch]);
  });
}
