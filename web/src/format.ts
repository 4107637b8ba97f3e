/** Numbers and times as text; durations and sizes as on the command line. */
import { formatSize, shortDuration } from "../../src/base/format.js";

export { formatSize as size, shortDuration as duration } from "../../src/base/format.js";

/** Tenths of a second would only flicker. */
export function ago(then: number): string {
  const ms = Math.max(0, Date.now() - then);
  if (ms < 1_000) return "now";
  return ms < 60_000 ? `${Math.floor(ms / 1_000)}s ago` : `${shortDuration(ms)} ago`;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const count = (value: number): string => whole.format(value);
/** For narrow places: 1.2M. */
export const brief = (value: number): string => (value < 10_000 ? whole.format(value) : short.format(value));

export const sentence = (text: string): string =>
  `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** Of a resource; memory is counted in MiB. */
export const amountOf = (name: string, amount: number | "all"): string =>
  amount === "all" ? amount : name === "mem" ? formatSize(amount * 2 ** 20) : brief(amount);

export const plural = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : many}`;

export function rate(perSecond: number): string {
  if (perSecond === 0) return "0/s";
  if (perSecond < 0.1) return `${(perSecond * 60).toFixed(perSecond * 60 < 1 ? 2 : 1)}/min`;
  return `${perSecond < 10 ? perSecond.toFixed(1) : brief(Math.round(perSecond))}/s`;
}

export function percent(part: number, of: number): string {
  if (of === 0) return "–";
  const value = (100 * part) / of;
  // 100% and 0% only if it is exact.
  if (value > 99 && part < of) return `${(Math.floor(value * 10) / 10).toFixed(1)}%`;
  if (value > 0 && value < 1) return "<1%";
  return `${Math.floor(value)}%`;
}

/** With tenths of a millisecond. */
export function latency(ms: number): string {
  if (ms === 0) return "0ms";
  if (ms < 10) return `${ms < 0.1 ? "<0.1" : ms.toFixed(1)}ms`;
  return ms < 1_000 ? `${Math.round(ms)}ms` : `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)}s`;
}

const pad = (value: number): string => String(value).padStart(2, "0");

function clock(at: number): string {
  const date = new Date(at);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

export const clockMs = (at: number): string => `${clock(at)}.${String(Math.floor(at) % 1000).padStart(3, "0")}`;

export function moment(at: number): string {
  const date = new Date(at);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(at)}`;
}

const MINUTE_S = 60;

/** With seconds if two labels are within a minute, so that no label repeats. */
export function timesOfDay(seconds: readonly number[]): string[] {
  const [first = 0, second = first + MINUTE_S] = seconds;
  const parts = second - first < MINUTE_S ? 3 : 2;
  return seconds.map((at) => {
    const date = new Date(at * 1000);
    return [date.getHours(), date.getMinutes(), date.getSeconds()]
      .slice(0, parts)
      .map((part) => String(part).padStart(2, "0"))
      .join(":");
  });
}
