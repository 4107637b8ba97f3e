/**
 * A batch on its way to the thread. Claims and results come in tens of thousands a second, and cloning an object for
 * each would cost the event loop more than handing them out does: their fields go as numbers in one transferred array,
 * their texts as positions in a list without repetition. Bytes of output are joined into one buffer. Other writes are
 * few and are cloned as they are.
 *
 * The numbers begin with one code a write; behind the code of a claim or settle stand its fields.
 */
import { JobId, TaskRangeId, WorkerId } from "../../model/ids.js";
import type { TaskEnd, TaskResult } from "../../model/outcome.js";
import type { OutputChunk, Write } from "../../model/store.js";
import type { SubmitRow, WriteRow } from "./messages.js";

type ClaimOrSettle = Extract<Write, { op: "claim" | "settle" }>;
type Output = Extract<Write, { op: "output" }>;
type Plain = Exclude<WriteRow, ClaimOrSettle | Output>;
type ChunkHead = Omit<OutputChunk, "bytes"> & { readonly length: number };

export interface PackedWrites {
  readonly numbers: Float64Array;
  readonly texts: readonly string[];
  readonly plain: readonly Plain[];
  readonly chunks: readonly ChunkHead[];
  readonly bytes: Uint8Array;
}

const PLAIN = 0;
const CLAIM = 1;
const SETTLE = 2;
const OUTPUT = 3;
const CLAIM_FIELDS = 7;
const SETTLE_FIELDS = 5;
const RESULT_FIELDS = 10;
const NONE = -1;
const STATES: readonly TaskEnd[] = ["succeeded", "failed", "cancelled"];

type Submit = Extract<Write, { op: "submit" }>;

/** `submitRow` is an argument so that the thread, which only unpacks, does not load what packs a job. */
export function packWrites(writes: readonly Write[], submitRow: (write: Submit) => SubmitRow): PackedWrites {
  const numbers = new Float64Array(numbersNeeded(writes));
  const texts = new Texts();
  const plain: Plain[] = [];
  const output: OutputChunk[] = [];
  let at = 0;
  for (const write of writes) {
    if (write.op === "settle") {
      at = packSettle(numbers, at, write, texts);
    } else if (write.op === "claim") {
      numbers[at] = CLAIM;
      numbers[at + 1] = write.from;
      numbers[at + 2] = write.rangeId;
      numbers[at + 3] = write.first;
      numbers[at + 4] = write.last;
      numbers[at + 5] = write.attempt;
      numbers[at + 6] = texts.position(write.worker);
      at += CLAIM_FIELDS;
    } else if (write.op === "output") {
      numbers[at++] = OUTPUT;
      numbers[at++] = write.chunks.length;
      output.push(...write.chunks);
    } else {
      numbers[at++] = PLAIN;
      plain.push(write.op === "submit" ? submitRow(write) : write);
    }
  }
  return { numbers, texts: texts.list, plain, ...packOutput(output) };
}

/** The buffers that can change hands instead of being copied. */
export function transferable(packed: PackedWrites): ArrayBuffer[] {
  const buffers = [packed.numbers.buffer as ArrayBuffer, packed.bytes.buffer as ArrayBuffer];
  for (const write of packed.plain) {
    if (write.op !== "submit") continue;
    for (const chunk of write.chunks ?? []) buffers.push(chunk.bytes.buffer as ArrayBuffer);
  }
  return buffers;
}

export function unpackWrites(packed: PackedWrites): WriteRow[] {
  const { numbers, texts } = packed;
  const writes: WriteRow[] = [];
  const plain = packed.plain.values();
  const chunks = unpackOutput(packed);
  let taken = 0;
  let at = 0;
  const next = (): number => numbers[at++] ?? Number.NaN;
  while (at < numbers.length) {
    const code = next();
    if (code === SETTLE) {
      const job = JobId(next());
      const rangeId = TaskRangeId(next());
      const empty = next() === 1;
      const results = new Array<TaskResult>(next());
      for (let i = 0; i < results.length; i++) {
        results[i] = unpackResult(numbers, at, texts);
        at += RESULT_FIELDS;
      }
      writes.push({ op: "settle", job, rangeId, results, empty });
    } else if (code === CLAIM) {
      const from = TaskRangeId(next());
      const rangeId = TaskRangeId(next());
      const first = next();
      const last = next();
      const attempt = next();
      writes.push({ op: "claim", from, rangeId, first, last, attempt, worker: WorkerId(texts[next()] ?? "") });
    } else if (code === OUTPUT) {
      const from = taken;
      taken += next();
      writes.push({ op: "output", chunks: chunks.slice(from, taken) });
    } else {
      const write = plain.next();
      if (!write.done) writes.push(write.value);
    }
  }
  return writes;
}

function numbersNeeded(writes: readonly Write[]): number {
  let needed = 0;
  for (const write of writes) {
    if (write.op === "settle") needed += SETTLE_FIELDS + write.results.length * RESULT_FIELDS;
    else if (write.op === "claim") needed += CLAIM_FIELDS;
    else needed += write.op === "output" ? 2 : 1;
  }
  return needed;
}

function packSettle(
  numbers: Float64Array,
  start: number,
  write: Extract<Write, { op: "settle" }>,
  texts: Texts,
): number {
  numbers[start] = SETTLE;
  numbers[start + 1] = write.job;
  numbers[start + 2] = write.rangeId;
  numbers[start + 3] = write.empty ? 1 : 0;
  numbers[start + 4] = write.results.length;
  let at = start + SETTLE_FIELDS;
  for (const result of write.results) {
    numbers[at] = result.index;
    numbers[at + 1] = result.attempt;
    numbers[at + 2] = STATES.indexOf(result.state);
    numbers[at + 3] = result.started;
    numbers[at + 4] = result.ended;
    numbers[at + 5] = result.outputBytes;
    numbers[at + 6] = texts.position(result.worker);
    numbers[at + 7] = result.code ?? Number.NaN;
    numbers[at + 8] = result.signal === undefined ? NONE : texts.position(result.signal);
    numbers[at + 9] = rare(result, texts);
    at += RESULT_FIELDS;
  }
  return at;
}

/** `timedOut` (absent, false, true: 0, 1, 2) and the error's position + 1, as one number. */
function rare(result: TaskResult, texts: Texts): number {
  const timedOut = result.timedOut === undefined ? 0 : result.timedOut ? 2 : 1;
  return timedOut + 3 * (result.error === undefined ? 0 : texts.position(result.error) + 1);
}

function unpackResult(numbers: Float64Array, at: number, texts: readonly string[]): TaskResult {
  const field = (offset: number): number => numbers[at + offset] ?? Number.NaN;
  const result: { -readonly [Key in keyof TaskResult]: TaskResult[Key] } = {
    index: field(0),
    attempt: field(1),
    state: STATES[field(2)] ?? "failed",
    started: field(3),
    ended: field(4),
    outputBytes: field(5),
    worker: texts[field(6)] ?? "",
  };
  const code = field(7);
  const signal = field(8);
  const seldom = field(9);
  if (!Number.isNaN(code)) result.code = code;
  if (signal !== NONE) result.signal = texts[signal] ?? "";
  if (seldom !== 0) {
    const error = Math.floor(seldom / 3);
    if (seldom % 3 !== 0) result.timedOut = seldom % 3 === 2;
    if (error !== 0) result.error = texts[error - 1] ?? "";
  }
  return result;
}

/** Chunks are often views of large receive buffers, which cloning would copy whole. */
function packOutput(output: readonly OutputChunk[]): { chunks: ChunkHead[]; bytes: Uint8Array } {
  let size = 0;
  for (const chunk of output) size += chunk.bytes.length;
  const bytes = new Uint8Array(size);
  const chunks: ChunkHead[] = [];
  let at = 0;
  for (const { bytes: part, ...head } of output) {
    bytes.set(part, at);
    at += part.length;
    chunks.push({ ...head, length: part.length });
  }
  return { chunks, bytes };
}

function unpackOutput(packed: PackedWrites): OutputChunk[] {
  let at = 0;
  return packed.chunks.map(({ length, ...head }) => {
    const bytes = packed.bytes.subarray(at, at + length);
    at += length;
    return { ...head, bytes };
  });
}

/** Texts by position; the same one twice in a row, as a worker's name is, costs no look-up. */
class Texts {
  readonly list: string[] = [];
  readonly #positions = new Map<string, number>();
  #last = "";
  #lastPosition = NONE;

  position(text: string): number {
    if (text === this.#last && this.#lastPosition !== NONE) return this.#lastPosition;
    let position = this.#positions.get(text);
    if (position === undefined) {
      position = this.list.push(text) - 1;
      this.#positions.set(text, position);
    }
    this.#last = text;
    this.#lastPosition = position;
    return position;
  }
}
