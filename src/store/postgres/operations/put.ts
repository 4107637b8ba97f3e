/** A small text under its key. */

import type { BatchContext, IndexedWrite } from "../stages.js";
import { OWN_EPOCH, validText } from "../statements.js";

/** Brokers that change the same key wait for each other, even if there is no row to lock yet. */
const LOCK_KEY = `SELECT pg_advisory_xact_lock(hashtextextended($1::text || chr(10) || $2::text, 5429))`;

/** $1 bucket, $2 key, $3 value or null, $4 the version that is expected or null, $5 now. */
export const PUT = `
WITH there AS MATERIALIZED (SELECT coalesce(max(version), 0) AS version FROM laboro.key_value WHERE bucket = $1::text AND key = $2::text),
right_one AS MATERIALIZED (SELECT version FROM there WHERE ($4::int IS NULL OR version = $4::int) AND ${OWN_EPOCH} > 0),
gone AS (DELETE FROM laboro.key_value WHERE bucket = $1::text AND key = $2::text AND $3::text IS NULL AND EXISTS (SELECT 1 FROM right_one)),
made AS (
  INSERT INTO laboro.key_value AS k (bucket, key, version, value, updated_at, changed_by)
  SELECT $1::text, $2::text, version + 1, $3::text, $5::float8, ${OWN_EPOCH} FROM right_one WHERE $3::text IS NOT NULL
  ON CONFLICT (bucket, key) DO UPDATE SET version = excluded.version, value = excluded.value, updated_at = excluded.updated_at,
    changed_xid = excluded.changed_xid, changed_by = CASE k.changed_by WHEN excluded.changed_by THEN k.changed_by ELSE 0 END)
SELECT version, EXISTS (SELECT 1 FROM right_one) AS stored FROM there`;

export async function put(batch: BatchContext, { at, write }: IndexedWrite<"put">): Promise<void> {
  const { op, value } = write;
  const [bucket, key] = [validText(write.bucket), validText(write.key)];
  const text = value === null ? null : validText(value);
  const [, rows] = await Promise.all([
    batch.session.send(LOCK_KEY, [bucket, key]),
    batch.session.send<{ version: number; stored: boolean }>(PUT, [
      bucket,
      key,
      text,
      write.version ?? null,
      batch.now,
    ]),
  ]);
  const { version = 0, stored = false } = rows[0] ?? {};
  batch.writeResults[at] = { op, stored, version: stored ? (value === null ? 0 : version + 1) : version };
}
