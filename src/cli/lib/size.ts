/** Sizes: `2G`, `512M`, `1.5GiB`, `4096`. A letter stands for a power of 1024. */
import { InvalidArgumentError } from "commander";

const POWERS = ["", "K", "M", "G", "T"];

/** In bytes. A parser for commander. */
export function parseSize(text: string): number {
  const [, amount, letter = ""] = /^(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?$/i.exec(text.trim()) ?? [];
  if (amount === undefined) throw new InvalidArgumentError(`expected a size such as 2G or 512M, got ${text}`);
  return Math.round(Number(amount) * 1024 ** POWERS.indexOf(letter.toUpperCase()));
}
