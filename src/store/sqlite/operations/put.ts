import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";

const FIND = "SELECT version FROM key_value WHERE bucket = ? AND key = ?";
const UPSERT = `INSERT INTO key_value (bucket, key, version, value, updated_at) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (bucket, key) DO UPDATE SET version = excluded.version, value = excluded.value, updated_at = excluded.updated_at`;
const DELETE = "DELETE FROM key_value WHERE bucket = ? AND key = ?";

export function preparePut(db: Database): Operation<"put"> {
  const find = db.prepare(FIND);
  const upsert = db.prepare(UPSERT);
  const remove = db.prepare(DELETE);
  return ({ op, bucket, key, value, version: expected }, { now }) => {
    const found: { version: number } | undefined = find.get(bucket, key);
    const version = found?.version ?? 0;
    if (expected !== undefined && expected !== version) return { op, stored: false, version };
    if (value === null) {
      remove.run(bucket, key);
      return { op, stored: true, version: 0 };
    }
    upsert.run(bucket, key, version + 1, value, now);
    return { op, stored: true, version: version + 1 };
  };
}
