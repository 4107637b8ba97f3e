import type { Operation } from "../batch.js";
import type { Database } from "../database.js";

const FIND = "SELECT version FROM kept WHERE area = ? AND key = ?";
const KEEP = `INSERT INTO kept (area, key, version, value, changed) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (area, key) DO UPDATE SET version = excluded.version, value = excluded.value, changed = excluded.changed`;
const FORGET = "DELETE FROM kept WHERE area = ? AND key = ?";

export function prepareKeep(db: Database): Operation<"keep"> {
  const find = db.prepare(FIND);
  const keep = db.prepare(KEEP);
  const forget = db.prepare(FORGET);
  return ({ op, area, key, value, version: expected }, { now }) => {
    const found: { version: number } | undefined = find.get(area, key);
    const version = found?.version ?? 0;
    if (expected !== undefined && expected !== version) return { op, kept: false, version };
    if (value === null) {
      forget.run(area, key);
      return { op, kept: true, version: 0 };
    }
    keep.run(area, key, version + 1, value, now);
    return { op, kept: true, version: version + 1 };
  };
}
