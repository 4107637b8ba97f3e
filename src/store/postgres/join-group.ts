/** A broker joins the group: it migrates the schema, gets its epoch and reads the open state. */
import type { Epoch, RecoveredState } from "../../model/store.js";
import type { Client, Connections } from "./connections.js";
import { send } from "./connections.js";
import { storeFailure } from "./failures.js";
import { type JobRow, jobFrom, OPEN_JOBS } from "./job-rows.js";
import { migrate } from "./migrations/index.js";
import { type ClaimedRow, claimedRangesFrom, SETTLED, TASK_RANGE_FIELDS } from "./task-range-rows.js";

/** $1 milliseconds. Changes by transactions from `seen` on may be missing in what is read next. */
const INSERT_BROKER = `
INSERT INTO laboro.broker (info, lease_ends_at) VALUES ('{}', clock_timestamp() + $1::float8 * interval '1 millisecond')
RETURNING epoch, pg_snapshot_xmin(pg_current_snapshot())::text AS seen, (SELECT s.identity FROM laboro.store s) AS store`;

/** $1 the former epoch. Waits for a batch that is under way there; no batch follows it. */
const MARK_DEAD =
  "UPDATE laboro.broker SET dead = true WHERE epoch = (SELECT epoch FROM laboro.broker WHERE epoch = $1::bigint FOR UPDATE)";
/** $1 an epoch, $2 the identity of the broker. */
const IS_SAME_BROKER = "SELECT 1 FROM laboro.broker WHERE epoch = $1::bigint AND info::jsonb ->> 'identity' = $2::text";
const TAKE_OVER_RANGES = "UPDATE laboro.task_range SET epoch = $2::bigint WHERE epoch = $1::bigint";
const HELD = `SELECT ${TASK_RANGE_FIELDS}, ${SETTLED} FROM laboro.task_range p WHERE p.epoch = $1::bigint`;

export interface JoinedGroup {
  readonly recovered: RecoveredState;
  readonly seen: string;
}

export async function joinGroup(
  connections: Connections,
  firstLeaseMs: number,
  formerEpoch: Epoch | undefined,
  identity: string | undefined,
): Promise<JoinedGroup> {
  // Without time limits: a migration takes as long as it takes, and so does a long list of jobs.
  const client = connections.client(1, {});
  try {
    await migrate(client, connections.displayUrl);
    const [row] = await send<{ epoch: Epoch; seen: string; store: string }>(client, INSERT_BROKER, [firstLeaseMs]);
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

async function takeOver(client: Client, formerEpoch: Epoch, epoch: Epoch, identity: string | undefined): Promise<void> {
  await client.begin(async (sql) => {
    if (identity !== undefined && (await sql.unsafe(IS_SAME_BROKER, [formerEpoch, identity])).length === 0) return;
    await sql.unsafe(MARK_DEAD, [formerEpoch]);
    await sql.unsafe(TAKE_OVER_RANGES, [formerEpoch, epoch]);
  });
}
