/** Quotes bytes as words of shell text. */
import { badInput } from "../base/errors.js";
import type { Bytes } from "./recipe.js";

/** Variables that some shell reserves (read-only, or changed by the shell itself). `env` sets them instead. */
export const SHELL_RESERVED =
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
  if (text.includes("\0")) throw badInput(`the ${what} contains a NUL byte`);
  return text;
}
