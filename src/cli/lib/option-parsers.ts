/**
 * Parsers of option values, for commander.
 *
 * Accepts unambiguous prefixes of long options, as the original programs do.
 */
import { Command, InvalidArgumentError } from "commander";
import { badInput } from "../../base/errors.js";
import { MAX_MS, NO_OUTPUT_CAP } from "../../model/job.js";

const MOST = 1_000_000_000;

/** Parses a whole number in a range. Digits may be grouped by `_`. */
export const wholeNumber =
  (example: number, min = 0, max = MOST) =>
  (text: string): number => {
    const value = Number(text.replaceAll("_", ""));
    if (/^-?\d(?:_?\d)*$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`expected a whole number from ${min} to ${max}, such as ${example}`);
  };

/** Parses a number in a range. */
export const decimal =
  (example: number, min: number, max: number) =>
  (text: string): number => {
    if (/^\d+(\.\d+)?$/.test(text) && Number(text) >= min && Number(text) <= max) return Number(text);
    throw new InvalidArgumentError(`expected a number from ${min} to ${max}, such as ${example}`);
  };

/** Parses a name: any text that is not empty, or one that matches the pattern. */
export const textLike =
  (example: string, expected = "1 to 1024 characters", pattern = /^.{1,1024}$/s) =>
  (text: string): string => {
    if (pattern.test(text)) return text;
    throw new InvalidArgumentError(`expected ${expected}, such as ${example}`);
  };

/** An amount that may depend on the number of cores or slots. */
export type PerCores = (cores: number) => number;

/** `8`, `+1` and `-1` for more or fewer than there are cores, `50%` of them. */
export function parsePerCores(text: string): PerCores {
  const [, sign, digits, percent] = /^([+-]?)(\d{1,6})(%?)$/.exec(text) ?? [];
  if (digits === undefined || (percent === "%" && sign !== ""))
    throw new InvalidArgumentError("expected a number such as 8, +1 or -1 to the cores, or 50% of them");
  const amount = Number(digits);
  if (percent === "%") return (cores) => (cores * amount) / 100;
  return sign === "" ? () => amount : (cores) => (sign === "+" ? cores + amount : cores - amount);
}

/** A size, or `none` for no limit. */
export const parseOutputCap = (text: string): number => (text === "none" ? NO_OUTPUT_CAP : parseSize(text));

/** For options that may be repeated. */
export const collect = (text: string, before: readonly string[]): readonly string[] => [...before, text];
export const collectTexts =
  (...given: Parameters<typeof textLike>) =>
  (text: string, before: readonly string[]): readonly string[] => [...before, textLike(...given)(text)];

/** The amounts of `--resource`. `all` is for tasks. */
export function parseResources<All extends "all" = never>(
  given: readonly string[],
  all?: All,
): Record<string, number | All> {
  const resources: Record<string, number | All> = {};
  for (const text of given) {
    const [, name, amount = ""] = /^([\w-]+)=(\d+(?:\.\d+)?|all)$/.exec(text) ?? [];
    const value = amount === "all" ? all : Number(amount);
    if (name === undefined || name === "slots" || value === undefined || value === 0)
      throw badInput(
        `--resource ${text}: expected NAME=AMOUNT, such as gpu=1${all === undefined ? "" : ", gpu=all"} or mem=8192 (MiB); for slots: --slots`,
      );
    resources[name] = value;
  }
  return resources;
}

/** Durations: `90s`, `5m`, `1h30m`, `1h 30m`, `90` for seconds, and `[D-]HH:MM:SS` as in batch systems. */
const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

const isUnit = (text: string): text is keyof typeof UNIT_MS => Object.hasOwn(UNIT_MS, text);

/** In milliseconds. */
export function parseDuration(text: string): number {
  const trimmed = text.trim();
  const ms = clockMs(trimmed) ?? unitsMs(/^\d+(\.\d+)?$/.test(trimmed) ? `${trimmed}s` : trimmed);
  if (ms !== undefined && ms <= MAX_MS) return ms;
  const most = ms === undefined ? "" : ` of at most ${formatDuration(MAX_MS)},`;
  throw new InvalidArgumentError(
    `expected a duration${most} such as 90 or 90s (seconds), 5m, 1h30m or 01:30:00, got ${text}`,
  );
}

/** A limit of time: not 0. */
export function parseTimeLimit(text: string): number {
  const ms = parseDuration(text);
  if (ms > 0) return ms;
  throw new InvalidArgumentError("expected a duration above 0, such as 90 or 90s (seconds), 5m or 1h30m");
}

/** How long a job is kept; `none` is the longest time. */
export const parseKeep = (text: string): number => (text === "none" ? MAX_MS : parseDuration(text));

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

const TIME = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?(Z|[+-]\d\d:?\d\d)?$/;

/** A date with or without a time, in milliseconds since 1970. Without a zone it is local time. */
export function parseTime(text: string): number {
  const [, date, clock = "00:00", zone = ""] = TIME.exec(text.trim()) ?? [];
  const ms = date === undefined ? Number.NaN : Date.parse(`${date}T${clock}${zone.replace(/^(...)(\d\d)$/, "$1:$2")}`);
  if (Number.isFinite(ms)) return ms;
  throw new InvalidArgumentError(`expected a time such as 2026-12-24T18:00 or 2026-12-24T18:00+01:00, got ${text}`);
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

/** Sizes: `2G`, `512M`, `1.5GiB`, `4096`. A letter is a power of 1024. */
const POWERS = ["", "K", "M", "G", "T"];

/** In bytes. */
export function parseSize(text: string): number {
  const [, amount, letter = ""] = /^(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?$/i.exec(text.trim()) ?? [];
  if (amount === undefined) throw new InvalidArgumentError(`expected a size such as 2G or 512M, got ${text}`);
  return Math.round(Number(amount) * 1024 ** POWERS.indexOf(letter.toUpperCase()));
}

export class AbbreviatingCommand extends Command {
  readonly #synonyms = new Map<string, string>();

  /** Another word for a long option, which the help does not show. */
  synonym(word: string, option: string): this {
    this.#synonyms.set(word, option);
    return this;
  }

  override parseOptions(args: string[]): ReturnType<Command["parseOptions"]> {
    const end = args.indexOf("--");
    const written = end < 0 ? args : args.slice(0, end);
    return super.parseOptions([...written.map((word) => this.#complete(word)), ...args.slice(written.length)]);
  }

  /** The full option; the word itself if it is complete, unknown or ambiguous. */
  #complete(word: string): string {
    const [, name, value = ""] = /^(--[^=]+)(=.*)?$/s.exec(word) ?? [];
    if (name === undefined) return word;
    const words = new Map<string, string>(this.#synonyms);
    for (const { long } of this.options) if (long != null) words.set(long, long);
    const fits = words.has(name) ? [name] : [...words.keys()].filter((long) => long.startsWith(name));
    const meant = new Set(fits.map((long) => words.get(long)));
    const [only] = meant;
    return meant.size === 1 && only !== undefined ? `${only}${value}` : word;
  }
}
