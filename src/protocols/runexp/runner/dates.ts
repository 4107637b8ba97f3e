/** Dates as date(1) writes them in the C locale: `Sun Nov 15 19:30:13 UTC 2026`. */
import { execFileSync } from "node:child_process";

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/** The name of a time zone is known to date(1) alone; it changes with the offset. */
const zones = new Map<number, string>();

const twoDigits = (number: number): string => String(number).padStart(2, "0");

const clock = (at: Date): string =>
  `${twoDigits(at.getHours())}:${twoDigits(at.getMinutes())}:${twoDigits(at.getSeconds())}`;

export function longDate(ms: number): string {
  const at = new Date(ms);
  const day = String(at.getDate()).padStart(2, " ");
  return `${DAYS[at.getDay()]} ${MONTHS[at.getMonth()]} ${day} ${clock(at)} ${zoneOf(at)} ${at.getFullYear()}`;
}

/** `Nov 15 19:30:13`, as the programs begin their lines. */
export function shortDate(ms: number): string {
  const at = new Date(ms);
  return `${MONTHS[at.getMonth()]} ${twoDigits(at.getDate())} ${clock(at)}`;
}

function zoneOf(at: Date): string {
  const offset = at.getTimezoneOffset();
  let zone = zones.get(offset);
  if (zone === undefined) {
    zone = zoneFromDateCommand(at) ?? "UTC";
    zones.set(offset, zone);
  }
  return zone;
}

function zoneFromDateCommand(at: Date): string | undefined {
  if (at.getTimezoneOffset() === 0 && (process.env.TZ ?? "UTC") === "UTC") return undefined;
  try {
    return execFileSync("date", ["-d", `@${Math.floor(at.getTime() / 1000)}`, "+%Z"], { encoding: "latin1" }).trim();
  } catch {
    // Another date(1) than GNU's: the name of now is better than none.
    return undefined;
  }
}
