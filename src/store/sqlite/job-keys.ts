/** Which job has a key now. One that has ended keeps it until its time is over and another job asks for it. */
import type { JobId } from "../../model/ids.js";
import type { Database } from "./database.js";
import type { JobCounters } from "./job-counters.js";

const HOLDER = "SELECT id, ended_at AS endedAt, key_for_ms AS keyForMs FROM job WHERE key = ? AND has_key = 1";
const SET = "UPDATE job SET has_key = ? WHERE id = ?";
const NOTHING = { succeeded: 0, failed: 0, cancelled: 0 };

export interface JobKeys {
  holder(key: string, now: number): JobId | undefined;
  setHolder(job: JobId, has: boolean): void;
}

export function prepareJobKeys(db: Database, jobCounters: JobCounters): JobKeys {
  const find = db.prepare(HOLDER);
  const set = db.prepare(SET);
  const setHolder = (job: JobId, has: boolean): void => void set.run(has ? 1 : 0, job);
  return {
    setHolder,
    holder: (key, now) => {
      const row: { id: JobId; endedAt: number | null; keyForMs: number | null } | undefined = find.get(key);
      if (row === undefined) return undefined;
      // It may have ended within this batch.
      const ended = jobCounters.add(row.id, NOTHING)?.ended !== undefined;
      if (!ended || (row.endedAt ?? now) + (row.keyForMs ?? 0) > now) return row.id;
      setHolder(row.id, false);
      return undefined;
    },
  };
}
