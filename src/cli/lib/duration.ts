/** Durations: `90s`, `5m`, `1h30m`, `1h 30m`, `90` for seconds, and `[D-]HH:MM:SS` as in batch systems. */
import { InvalidArgumentError } from "commander";

const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

const isUnit = (text: string): text is keyof typeof UNIT_MS => Object.hasOwn(UNIT_MS, text);

/** In milliseconds. A parser for commander. */
export function parseDuration(text: string): number {
  const trimmed = text.trim();
  const ms = clockMs(trimmed) ?? unitsMs(/^\d+(\.\d+)?$/.test(trimmed) ? `${trimmed}s` : trimmed);
  if (ms !== undefined) return ms;
  throw new InvalidArgumentError(`expected a duration such as 90 or 90s (seconds), 5m, 1h30m or 01:30:00, got ${text}`);
}

function clockMs(text: string): number | undefined {
  const [, days = "0", hours, minutes, seconds] = /^(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)$/.exec(text) ?? [];
  if (hours === undefined) return undefined;
  return (((Number(days) * 24 + Number(hours)) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1_000;
}

/** Each unit once, the larger before the smaller. */
function unitsMs(text: string): number | undefined {
  if (!/^(?:\d+(?:\.\d+)?(?:ms|[smhd])\s*)+$/.test(text)) return undefined;
  let total = 0;
  let last = Number.POSITIVE_INFINITY;
  for (const [, amount, unit = ""] of text.matchAll(/(\d+(?:\.\d+)?)(ms|[smhd])/g)) {
    if (!isUnit(unit) || UNIT_MS[unit] >= last) return undefined;
    last = UNIT_MS[unit];
    total += Number(amount) * last;
  }
  return Math.round(total);
}

/** Exact, in the form that `parseDuration` reads: `1h30m`. */
export function formatDuration(ms: number): string {
  let left = Math.round(ms);
  let text = "";
  for (const unit of ["d", "h", "m", "s", "ms"] as const) {
    const amount = Math.floor(left / UNIT_MS[unit]);
    left -= amount * UNIT_MS[unit];
    if (amount > 0) text += `${amount}${unit}`;
  }
  return text === "" ? "0s" : text;
}
