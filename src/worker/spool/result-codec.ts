/** One spooled result as bytes: the end of the attempt, and its output where that is small. */
import { Packr } from "msgpackr";
import type { DoneTask } from "../../protocols/laboro/messages.js";

const packr = new Packr({ useRecords: false, variableMapSize: true });

export function encodeResult(done: DoneTask, packed: Uint8Array | undefined): Uint8Array {
  return packr.pack(packed === undefined ? { done } : { done, packed });
}

/** Undefined if the bytes are not such a result. Their checksum was right, so another version wrote them. */
export function decodeResult(bytes: Uint8Array): { done: DoneTask; packed?: Uint8Array } | undefined {
  const entry = packr.unpack(bytes) as { done?: Partial<DoneTask>; packed?: Uint8Array } | null;
  const { job, index, attempt, started, ended, outputBytes } = entry?.done ?? {};
  const whole = [job, index, attempt, started, ended, outputBytes].every((value) => typeof value === "number");
  if (!whole || entry?.done === undefined) return undefined;
  return entry.packed === undefined
    ? { done: entry.done as DoneTask }
    : { done: entry.done as DoneTask, packed: entry.packed };
}
