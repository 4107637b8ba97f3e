/**
 * A batch on its way to the thread. Tens of thousands of claims and results come per second, and cloning an object for
 * each would cost the event loop more than assigning them. So their fields are numbers in one transferred array, their
 * texts positions in a list without duplicates. Bytes are joined into one buffer, in the order of the writes.
 * Other writes are few and are cloned.
 *
 * The numbers begin with one code per write; the code of a claim, settle, output or submit is followed by its fields.
 */
import { JobId, TaskRangeId, WorkerId } from "../../model/ids.js";
import { END_STATES } from "../../model/job.js";
import { OUTPUT_STREAMS, type OutputStream, type TaskResult } from "../../model/outcome.js";
import type { OutputChunk, Write } from "../../model/store.js";
import { withOwnBytes } from "../rows.js";
import type { EditRow, SubmitRow, WriteRow } from "./thread-calls.js";

type Output = Extract<Write, { op: "output" }>;
/** A claim with limits is rare enough to be cloned. */
type Plain = Exclude<WriteRow, Extract<Write, { op: "settle" }> | Output>;

export interface PackedWrites {
  readonly numbers: Float64Array;
  readonly texts: readonly string[];
  readonly plain: readonly Plain[];
  readonly bytes: Uint8Array;
}

const PLAIN = 0;
const CLAIM = 1;
const SETTLE = 2;
const OUTPUT = 3;
const SUBMIT = 4;
const CLAIM_FIELDS = 7;
const SETTLE_FIELDS = 5;
const RESULT_FIELDS = 14;
const CHUNK_FIELDS = 6;
const SUBMIT_FIELDS = 13;
const OPEN = 1;
const HELD = 2;
const NONE = -1;

type Submit = Extract<Write, { op: "submit" }>;

type Schedules = Extract<Write, { op: "schedule" }>;

/** What packs a job. An argument, so that the thread, which only unpacks, does not load it. */
interface RowPackers {
  readonly submitRow: (write: Submit) => SubmitRow;
  readonly editRow: (write: Extract<Write, { op: "edit" }>) => EditRow;
  readonly scheduleRow: (write: Schedules) => Extract<WriteRow, { op: "schedule" }>;
}

export function packWrites(writes: readonly Write[], { submitRow, scheduleRow, editRow }: RowPackers): PackedWrites {
  const numbers = new Float64Array(numbersNeeded(writes));
  const texts = new Texts();
  const plain: Plain[] = [];
  const output: Uint8Array[] = [];
  let at = 0;
  for (const write of writes) {
    if (write.op === "settle") {
      at = packSettle(numbers, at, write, texts, output);
    } else if (write.op === "claim" && write.limits === undefined) {
      numbers[at] = CLAIM;
      numbers[at + 1] = write.from;
      numbers[at + 2] = write.rangeId;
      numbers[at + 3] = write.first;
      numbers[at + 4] = write.last;
      numbers[at + 5] = write.attempt;
      numbers[at + 6] = texts.position(write.worker);
      at += CLAIM_FIELDS;
    } else if (write.op === "submit" && isSimple(write)) {
      at = packSubmit(numbers, at, submitRow(write), texts, output);
    } else if (write.op === "output") {
      numbers[at++] = OUTPUT;
      numbers[at++] = write.chunks.length;
      for (const chunk of write.chunks) at = packChunk(numbers, at, chunk, output);
    } else {
      numbers[at++] = PLAIN;
      if (write.op === "submit") plain.push(submitRow(write));
      else if (write.op === "schedule") plain.push(scheduleRow(write));
      else if (write.op === "edit") plain.push(editRow(write));
      else if (write.op === "replace") plain.push({ ...write, earlierAttempts: withOwnBytes(write.earlierAttempts) });
      else plain.push(write);
    }
  }
  return { numbers, texts: texts.list, plain, bytes: joined(output) };
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
  const { numbers, texts, bytes } = packed;
  const writes: WriteRow[] = [];
  const plain = packed.plain.values();
  let taken = 0;
  let at = 0;
  const next = (): number => numbers[at++] ?? Number.NaN;
  const take = (length: number): Uint8Array => {
    taken += length;
    return bytes.subarray(taken - length, taken);
  };
  const stream = (): OutputStream => OUTPUT_STREAMS[next()] ?? "stdout";
  while (at < numbers.length) {
    const code = next();
    if (code === SETTLE) {
      const job = JobId(next());
      const rangeId = TaskRangeId(next());
      const empty = next() === 1;
      const results = new Array<TaskResult>(next());
      for (let i = 0; i < results.length; i++) {
        const result = unpackResult(numbers, at, texts);
        at += RESULT_FIELDS - 2;
        const valueLength = next();
        const parts = next();
        results[i] = result;
        if (valueLength !== NONE) result.value = take(valueLength);
        if (parts === NONE) continue;
        result.output = Array.from({ length: parts }, () => ({ stream: stream(), bytes: take(next()) }));
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
      const chunks = Array.from({ length: next() }, () => ({
        job: JobId(next()),
        index: next(),
        attempt: next(),
        stream: stream(),
        offset: next(),
        bytes: take(next()),
      }));
      writes.push({ op: "output", chunks });
    } else if (code === SUBMIT) {
      const start = at - 1;
      at += SUBMIT_FIELDS - 2;
      writes.push(unpackSubmit(numbers, start, texts, take(next())));
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
    if (write.op === "settle") {
      needed += SETTLE_FIELDS + write.results.length * RESULT_FIELDS;
      for (const { output } of write.results) needed += 2 * (output?.length ?? 0);
    } else if (write.op === "claim" && write.limits === undefined) needed += CLAIM_FIELDS;
    else if (write.op === "submit" && isSimple(write)) needed += SUBMIT_FIELDS;
    else needed += write.op === "output" ? 2 + write.chunks.length * CHUNK_FIELDS : 1;
  }
  return needed;
}

function packSettle(
  numbers: Float64Array,
  start: number,
  write: Extract<Write, { op: "settle" }>,
  texts: Texts,
  bytes: Uint8Array[],
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
    numbers[at + 2] = END_STATES.indexOf(result.state);
    numbers[at + 3] = result.started;
    numbers[at + 4] = result.ended;
    numbers[at + 5] = result.outputBytes;
    numbers[at + 6] = texts.position(result.worker);
    numbers[at + 7] = result.code ?? Number.NaN;
    numbers[at + 8] = result.signal === undefined ? NONE : texts.position(result.signal);
    numbers[at + 9] = rare(result, texts);
    numbers[at + 10] = result.cpuMs ?? NONE;
    numbers[at + 11] = result.peakMemory ?? NONE;
    numbers[at + 12] = result.value?.length ?? NONE;
    numbers[at + 13] = result.output?.length ?? NONE;
    at += RESULT_FIELDS;
    if (result.value !== undefined) bytes.push(result.value);
    for (const part of result.output ?? []) {
      numbers[at++] = OUTPUT_STREAMS.indexOf(part.stream);
      numbers[at++] = part.bytes.length;
      bytes.push(part.bytes);
    }
  }
  return at;
}

/** Others are rare, or most of their size is the entries. */
const isSimple = ({ entries, job: { key, notBefore } }: Submit): boolean =>
  entries === undefined && key === undefined && notBefore === undefined;

function packSubmit(numbers: Float64Array, start: number, row: SubmitRow, texts: Texts, bytes: Uint8Array[]): number {
  numbers[start] = SUBMIT;
  numbers[start + 1] = row.id ?? Number.NaN;
  numbers[start + 2] = texts.position(row.name);
  numbers[start + 3] = texts.position(row.pool);
  numbers[start + 4] = row.batchKey === null ? NONE : texts.position(row.batchKey);
  numbers[start + 5] = row.idempotencyKey === null ? NONE : texts.position(row.idempotencyKey);
  numbers[start + 6] = row.keepMs ?? Number.NaN;
  numbers[start + 7] = row.keepFailedMs ?? Number.NaN;
  numbers[start + 8] = row.count;
  numbers[start + 9] = (row.open ? OPEN : 0) + (row.held ? HELD : 0);
  numbers[start + 10] = row.lease;
  numbers[start + 11] = row.rangeId;
  numbers[start + 12] = row.spec.length;
  bytes.push(row.spec);
  return start + SUBMIT_FIELDS;
}

function unpackSubmit(numbers: Float64Array, at: number, texts: readonly string[], spec: Uint8Array): SubmitRow {
  const field = (offset: number): number => numbers[at + offset] ?? Number.NaN;
  const amount = (offset: number): number | null => (Number.isNaN(field(offset)) ? null : field(offset));
  return {
    op: "submit",
    id: amount(1) === null ? undefined : JobId(field(1)),
    spec,
    name: texts[field(2)] ?? "",
    pool: texts[field(3)] ?? "",
    batchKey: texts[field(4)] ?? null,
    idempotencyKey: texts[field(5)] ?? null,
    key: null,
    keyForMs: null,
    ifExists: "return",
    notBefore: null,
    relative: false,
    keepMs: amount(6),
    keepFailedMs: amount(7),
    count: field(8),
    open: (field(9) & OPEN) !== 0,
    held: (field(9) & HELD) !== 0,
    lease: field(10),
    rangeId: TaskRangeId(field(11)),
  };
}

function packChunk(numbers: Float64Array, at: number, chunk: OutputChunk, bytes: Uint8Array[]): number {
  numbers[at] = chunk.job;
  numbers[at + 1] = chunk.index;
  numbers[at + 2] = chunk.attempt;
  numbers[at + 3] = OUTPUT_STREAMS.indexOf(chunk.stream);
  numbers[at + 4] = chunk.offset;
  numbers[at + 5] = chunk.bytes.length;
  bytes.push(chunk.bytes);
  return at + CHUNK_FIELDS;
}

/** Bytes are often views of large receive buffers, which cloning would copy whole. */
function joined(parts: readonly Uint8Array[]): Uint8Array {
  let size = 0;
  for (const part of parts) size += part.length;
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** `timedOut` (absent, false, true: 0, 1, 2) and the error's position + 1, as one number. */
function rare(result: TaskResult, texts: Texts): number {
  const timedOut = result.timedOut === undefined ? 0 : result.timedOut ? 2 : 1;
  return timedOut + 3 * (result.error === undefined ? 0 : texts.position(result.error) + 1);
}

type MutableResult = { -readonly [Key in keyof TaskResult]: TaskResult[Key] };

function unpackResult(numbers: Float64Array, at: number, texts: readonly string[]): MutableResult {
  const field = (offset: number): number => numbers[at + offset] ?? Number.NaN;
  const result: MutableResult = {
    index: field(0),
    attempt: field(1),
    state: END_STATES[field(2)] ?? "failed",
    started: field(3),
    ended: field(4),
    outputBytes: field(5),
    worker: texts[field(6)] ?? "",
  };
  const code = field(7);
  const signal = field(8);
  const seldom = field(9);
  const cpuMs = field(10);
  const peakMemory = field(11);
  if (cpuMs !== NONE) result.cpuMs = cpuMs;
  if (peakMemory !== NONE) result.peakMemory = peakMemory;
  if (!Number.isNaN(code)) result.code = code;
  if (signal !== NONE) result.signal = texts[signal] ?? "";
  if (seldom !== 0) {
    const error = Math.floor(seldom / 3);
    if (seldom % 3 !== 0) result.timedOut = seldom % 3 === 2;
    if (error !== 0) result.error = texts[error - 1] ?? "";
  }
  return result;
}

/** A list of distinct texts. A text that is added twice in a row, such as a worker's name, costs no look-up. */
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
