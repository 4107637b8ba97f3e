/** The points in time of a schedule. Cron expressions are read by `croner`, which this module alone loads. */
import { Cron } from "croner";
import { badInput, type LaboroError } from "../base/errors.js";
import { shortDuration } from "../base/format.js";
import { MIN_EVERY_MS, type ScheduleTimes } from "./schedule.js";

/** The names of the fields in messages: those of the API, or options of the command line. */
interface FieldNames {
  readonly cron: string;
  readonly timeZone: string;
  readonly every: string;
  readonly start: string;
  readonly end: string;
  readonly jitter: string;
}

const API_NAMES: FieldNames = {
  cron: "cron",
  timeZone: "timeZone",
  every: "everyMs",
  start: "start",
  end: "end",
  jitter: "jitterMs",
};

const wrong = (what: string, value: string, expected: string): LaboroError =>
  badInput(`${what} ${JSON.stringify(value)}: expected ${expected}`);

/** Refuses times that are invalid, exclude each other, or never occur. */
export function checkTimes(times: ScheduleTimes, now: number, names: FieldNames = API_NAMES): void {
  const { cron, timeZone, everyMs, start, end, jitterMs } = times;
  if ((cron === undefined) === (everyMs === undefined))
    throw badInput(`give either ${names.cron}, such as "0 3 * * *", or ${names.every}, such as 10m`);
  if (cron === undefined && timeZone !== undefined) throw badInput(`${names.timeZone} goes with ${names.cron} only`);
  if (everyMs !== undefined && everyMs < MIN_EVERY_MS)
    throw wrong(names.every, shortDuration(everyMs), "one second or more, such as 10m");
  if (timeZone !== undefined) checkTimeZone(timeZone, names.timeZone);
  if (cron !== undefined) checkCron(cron, names.cron);
  if (end !== undefined && start !== undefined && end < start)
    throw wrong(names.end, isoTime(end), `a time after ${names.start} ${isoTime(start)}`);
  const first = nextPoint(times, now, now);
  if (first === undefined) {
    if (end !== undefined) throw wrong(names.end, isoTime(end), "a time after the first run, such as one in a year");
    throw wrong(names.cron, cron ?? "", "a time that comes, such as 0 3 * * *; this one never does");
  }
  const second = nextPoint({ ...times, end: Number.POSITIVE_INFINITY }, now, first);
  if (second !== undefined && jitterMs >= second - first && jitterMs > 0)
    throw wrong(
      names.jitter,
      shortDuration(jitterMs),
      `less than the ${shortDuration(second - first)} between two runs, such as 1s`,
    );
}

function checkTimeZone(timeZone: string, what: string): void {
  try {
    new Intl.DateTimeFormat("en", { timeZone });
  } catch {
    throw wrong(what, timeZone, "a time zone such as Europe/Prague or UTC");
  }
}

function checkCron(cron: string, what: string): void {
  const example = "such as 0 3 * * * (every day at 3:00) or */10 * * * * * (every ten seconds)";
  const fields = cron.trim().split(/\s+/).length;
  // The library also accepts a date, and a year as a seventh field.
  if (!/^@\w+$/.test(cron.trim()) && fields !== 5 && fields !== 6)
    throw wrong(what, cron, `five fields, or six with seconds first, ${example}`);
  try {
    cronOf(cron, "UTC");
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.replace(/^\w+: /, "") : String(cause);
    throw wrong(what, cron, `a cron expression ${example}: ${why}`);
  }
}

/** Parsing an expression takes longer than finding its next time, so parsed ones are cached. */
const CACHED = 1_000;
const cache = new Map<string, Cron>();

function cronOf(expression: string, timeZone: string): Cron {
  const key = `${timeZone} ${expression}`;
  const found = cache.get(key);
  if (found !== undefined) return found;
  const made = new Cron(expression, { timezone: timeZone, mode: "5-or-6-parts", paused: true });
  if (cache.size >= CACHED) cache.clear();
  cache.set(key, made);
  return made;
}

/** The first time after `after`; undefined if there is none. `every` counts from the start, or from `anchor`. */
export function nextPoint(times: ScheduleTimes, anchor: number, after: number): number | undefined {
  const { cron, timeZone = "UTC", everyMs, start, end = Number.POSITIVE_INFINITY } = times;
  const from = start === undefined ? after : Math.max(after, start - 1);
  const next =
    everyMs === undefined
      ? cronOf(cron ?? "", timeZone)
          .nextRun(new Date(from))
          ?.getTime()
      : everyPoint(everyMs, start ?? anchor, from);
  return next === undefined || next > end ? undefined : next;
}

const everyPoint = (everyMs: number, anchor: number, after: number): number =>
  anchor + Math.max(0, Math.floor((after - anchor) / everyMs) + 1) * everyMs;

/** The first `count` points after `after`. */
export function nextPoints(times: ScheduleTimes, anchor: number, after: number, count: number): number[] {
  const points: number[] = [];
  for (let last: number | undefined = after; points.length < count; ) {
    last = nextPoint(times, anchor, last);
    if (last === undefined) break;
    points.push(last);
  }
  return points;
}

const isoTime = (ms: number): string => new Date(ms).toISOString();
