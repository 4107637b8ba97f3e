/** Bytes as words of shell text. */
import { LaboroError } from "../base/errors.js";
import type { Bytes } from "./recipe.js";

/** Names that some shell keeps for itself (read-only, or with a life of their own): `env` sets these. */
export const SHELL_OWNS =
  /^(_|UID|EUID|PPID|GROUPS|IFS|LINENO|OPTIND|RANDOM|SRANDOM|SECONDS|SHLVL|SHELLOPTS|BASH.*|DIRSTACK|EPOCH.*|FUNCNAME|HISTCMD)$/;

const PLAIN = /^[ -~\n\t]*$/;

/** One word of shell text that stands for exactly these bytes. */
export function quote(bytes: Bytes, what = "argument"): string {
  return `'${latin1(bytes, what).replaceAll("'", "'\\''")}'`;
}

export function latin1(bytes: Bytes, what: string): string {
  if (typeof bytes === "string" && PLAIN.test(bytes)) return bytes;
  const text = (
    typeof bytes === "string" ? Buffer.from(bytes) : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  ).toString("latin1");
  if (text.includes("\0")) throw new LaboroError("LABORO_BAD_INPUT", `the ${what} contains a NUL byte`);
  return text;
}
