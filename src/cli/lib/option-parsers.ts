/** Numbers in options, for commander. */
import { InvalidArgumentError } from "commander";

export function parseWholeNumber(text: string): number {
  const value = Number(text.replaceAll("_", ""));
  if (/^\d(?:_?\d)*$/.test(text) && Number.isSafeInteger(value)) return value;
  throw new InvalidArgumentError("expected a whole number");
}
