/** Parsers of option values, for commander. */
import { InvalidArgumentError } from "commander";
import { NO_OUTPUT_CAP } from "../../model/job.js";
import { parseSize } from "./size.js";

export function parseWholeNumber(text: string): number {
  const value = Number(text.replaceAll("_", ""));
  if (/^\d(?:_?\d)*$/.test(text) && Number.isSafeInteger(value)) return value;
  throw new InvalidArgumentError("expected a whole number");
}

export function parsePositive(text: string): number {
  const value = parseWholeNumber(text);
  if (value > 0) return value;
  throw new InvalidArgumentError("expected 1 or more");
}

/** A size, or `none` for no limit. */
export const parseOutputCap = (text: string): number => (text === "none" ? NO_OUTPUT_CAP : parseSize(text));

/** For options that may be repeated. */
export const collect = (text: string, before: readonly string[]): readonly string[] => [...before, text];
