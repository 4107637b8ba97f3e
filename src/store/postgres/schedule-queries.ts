/** Reading schedules. The clock is the database's. */
import type { SchedulePage, ScheduleQuery } from "../../model/schedule.js";
import { type ScheduleRow, scheduleFrom } from "../schedule-rows.js";
import { validText } from "./arrays.js";
import type { Session } from "./connections.js";

const CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000)::float8";
const SELECT = `SELECT name, revision, next_at AS "nextAt", spec, state, last_job AS "lastJob", former_job AS "formerJob" FROM laboro.schedule`;
const ONE = `${SELECT} WHERE name = $1::text`;
/** $1 at most so many. The clock is read once: compared with a function, the index would not be used. */
export const DUE_SCHEDULES = `${SELECT} WHERE next_at <= (SELECT ${CLOCK}) ORDER BY next_at, name LIMIT $1::int`;
/** $1 after this name, $2 at most so many. */
const PAGE = `${SELECT} WHERE name > $1::text ORDER BY name LIMIT $2::int`;
export const EARLIEST_SCHEDULE = `
SELECT ${CLOCK} AS now, (SELECT min(next_at) FROM laboro.schedule WHERE next_at IS NOT NULL) AS earliest`;

export async function readSchedules(reader: Session, query: ScheduleQuery): Promise<SchedulePage> {
  // First the rows: what is due by the clock that is returned may be more than was read, never less.
  const rows = await rowsOf(reader, query);
  const [clock] = await reader.send<{ now: number; earliest: number | null }>(EARLIEST_SCHEDULE);
  const { now = Date.now(), earliest = null } = clock ?? {};
  return { schedules: rows.map(scheduleFrom), now, ...(earliest === null ? {} : { earliest }) };
}

function rowsOf(reader: Session, { name, due, after = "", limit }: ScheduleQuery): Promise<readonly ScheduleRow[]> {
  if (name !== undefined) return reader.send<ScheduleRow>(ONE, [validText(name)]);
  return due === true
    ? reader.send<ScheduleRow>(DUE_SCHEDULES, [limit])
    : reader.send<ScheduleRow>(PAGE, [validText(after), limit]);
}
