/**
 * Results as rows, in both engines. The small output of an attempt is one value: varints (the number of parts, then
 * each part's length * 2 + stream), then the bytes.
 *
 * Task ranges as rows, and how tasks that run again are divided into them; the same for both engines.
 *
 * Schedules as rows, in both engines: the spec as MessagePack, because its job may hold bytes; the state as JSON.
 *
 * Entries are stored many to a row. A chunk is a run of entries, each a u32 (little-endian: length in the low 31 bits,
 * top bit set for bytes that are not text) and its bytes.
 */
import { pack, unpack } from "msgpackr";
import { VarintReader, varintSize, writeVarint } from "../base/files/records.js";
import { type Attempt, type JobId, TaskRangeId, type WorkerId } from "../model/ids.js";
import { END_STATES, type Entries } from "../model/job.js";
import type { OutputStream, SmallOutput, TaskEnd, TaskResult } from "../model/outcome.js";
import { contains, difference, intersection, normalize, type Range, type Ranges, union } from "../model/ranges.js";
import type { Bytes } from "../model/recipe.js";
import type { Schedule, ScheduleSpec } from "../model/schedule.js";
import type { EntryChunk, PackedEntries, TaskRange, WriteResult } from "../model/store.js";
import type { OutputOptions, OutputPage, OutputPiece } from "../model/store-reads.js";

/** Roughly this many rows of removed jobs are deleted in one batch, so that other writes do not wait for long. */
export const REMOVED_IN_BATCH = 10_000;

/** How a task ended, by the number that the tables have for it. */

export const stateNumber = (state: TaskEnd): number => END_STATES.indexOf(state);

export interface ResultRow {
  readonly index: number;
  readonly attempt: number;
  readonly state: number;
  readonly worker: string;
  readonly started: number;
  readonly ended: number;
  readonly outputBytes: number;
  readonly code: number | null;
  readonly signal: string | null;
  readonly timedOut: number | boolean | null;
  readonly error: string | null;
  readonly cpuMs: number | null;
  readonly peakMemory: number | null;
  /** Only if requested. */
  readonly output?: Uint8Array | null;
  readonly valueBytes: number | null;
  readonly value?: Uint8Array | null;
}

export function resultFrom(row: ResultRow): TaskResult {
  const { code, signal, timedOut, error, cpuMs, peakMemory, output, valueBytes, value, state, ...rest } = row;
  return {
    ...rest,
    state: END_STATES[state] ?? "failed",
    ...(code === null ? {} : { code }),
    ...(signal === null ? {} : { signal }),
    ...(timedOut === null ? {} : { timedOut: Boolean(timedOut) }),
    ...(error === null ? {} : { error }),
    ...(output == null ? {} : { output: decodeSmallOutput(withoutBuffer(output)) }),
    ...(valueBytes === null ? {} : { valueBytes }),
    ...(value == null ? {} : { value: withoutBuffer(value) }),
    ...(cpuMs === null ? {} : { cpuMs }),
    ...(peakMemory === null ? {} : { peakMemory }),
  };
}

/** A driver may return a Buffer, which is a view of everything that it received. */
const withoutBuffer = (bytes: Uint8Array): Uint8Array => (Buffer.isBuffer(bytes) ? new Uint8Array(bytes) : bytes);

/** A page of output as it is read: pieces in order of offset, neighbours of one stream joined. */
export class OutputPageBuilder {
  at: number;
  /** A row had more bytes than were taken. */
  truncated = false;
  #bytesLeft: number;
  readonly #wanted: OutputStream | undefined;
  readonly #pieces: { stream: OutputStream; offset: number; end: number; parts: Uint8Array[] }[] = [];

  constructor({ from, limit, stream }: OutputOptions) {
    this.at = from;
    this.#bytesLeft = Math.max(1, limit);
    this.#wanted = stream;
  }

  get full(): boolean {
    return this.#bytesLeft === 0;
  }

  /** Adds bytes that begin at this offset; bytes before the page, or in it already, are skipped. */
  take(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    const fresh = bytes.subarray(Math.max(0, this.at - offset));
    if (fresh.length === 0) return;
    const start = Math.max(offset, this.at);
    if (this.#wanted !== undefined && stream !== this.#wanted) {
      this.at = start + fresh.length;
      return;
    }
    const part = fresh.subarray(0, this.#bytesLeft);
    this.truncated = part.length < fresh.length;
    this.at = start + part.length;
    this.#bytesLeft -= part.length;
    const last = this.#pieces.at(-1);
    if (last?.stream === stream && last.end === start) {
      last.parts.push(part);
      last.end = this.at;
    } else this.#pieces.push({ stream, offset: start, end: this.at, parts: [part] });
  }

  get pieces(): OutputPiece[] {
    return this.#pieces.map(({ stream, offset, parts }) => ({
      stream,
      offset,
      bytes: new Uint8Array(Buffer.concat(parts)),
    }));
  }
}

const headOf = ({ stream, bytes }: SmallOutput): number => bytes.length * 2 + (stream === "stdout" ? 0 : 1);

export function encodeSmallOutput(parts: readonly SmallOutput[]): Uint8Array {
  let size = varintSize(parts.length);
  for (const part of parts) size += varintSize(headOf(part)) + part.bytes.length;
  const value = new Uint8Array(size);
  let at = writeVarint(value, 0, parts.length);
  for (const part of parts) at = writeVarint(value, at, headOf(part));
  for (const { bytes } of parts) {
    value.set(bytes, at);
    at += bytes.length;
  }
  return value;
}

/** The results with copied bytes: output and values are often views into large receive buffers. */
export function withOwnBytes(results: readonly TaskResult[]): readonly TaskResult[] {
  if (results.every(({ output, value }) => output === undefined && value === undefined)) return results;
  return results.map((result) => {
    const output = result.output?.map(({ stream, bytes }) => ({ stream, bytes: new Uint8Array(bytes) }));
    const value = result.value && new Uint8Array(result.value);
    return { ...result, ...(output && { output }), ...(value && { value }) };
  });
}

/** The parts; their bytes are views of the value. */
function decodeSmallOutput(value: Uint8Array): SmallOutput[] {
  const numbers = new VarintReader(value);
  const heads = Array.from({ length: numbers.next() }, () => numbers.next());
  let at = numbers.at;
  return heads.map((head) => {
    const bytes = value.subarray(at, at + (head >>> 1));
    at += bytes.length;
    return { stream: head % 2 === 0 ? "stdout" : "stderr", bytes };
  });
}

export function pageOfSmallOutput(value: Uint8Array, options: OutputOptions): OutputPage {
  const page = new OutputPageBuilder(options);
  let offset = 0;
  for (const { stream, bytes } of decodeSmallOutput(value)) {
    if (!page.full) page.take(stream, offset, bytes);
    offset += bytes.length;
  }
  return page.at < offset ? { pieces: page.pieces, next: page.at } : { pieces: page.pieces };
}

export interface TaskRangeRow {
  readonly id: TaskRangeId;
  readonly job: JobId;
  readonly first: number;
  readonly last: number;
  readonly attempt: number;
  readonly failures: number;
  readonly crashes: number;
  readonly notBefore: number;
  readonly waitMs: number | null;
  readonly avoid: WorkerId | null;
  readonly worker: WorkerId | null;
}

/** Tasks that were never handed out, from a job's cursor. */
export const freshTaskRange = (id: TaskRangeId, job: JobId, first: number, last: number): TaskRange => ({
  id,
  job,
  first,
  last,
  attempt: 0,
  failures: 0,
  crashes: 0,
  notBefore: 0,
});

/** A row may have more columns than these. */
export function taskRangeFrom(row: TaskRangeRow): TaskRange {
  const { id, job, first, last, attempt, failures, crashes, notBefore, waitMs, avoid, worker } = row;
  const known = { id, job, first, last, attempt, failures, crashes, notBefore };
  const wait = waitMs === null ? {} : { waitMs };
  return { ...known, ...wait, ...(avoid === null ? {} : { avoid }), ...(worker === null ? {} : { worker }) };
}

/** Neighbours with the same attempt. */
export interface AttemptRun extends Range {
  readonly attempt: Attempt;
}

/** Joins neighbouring runs. Takes disjoint runs in any order and returns them in task order. */
export function joinRuns(runs: readonly AttemptRun[]): AttemptRun[] {
  const joined: AttemptRun[] = [];
  for (const run of runs.toSorted((a, b) => a.first - b.first)) {
    const before = joined.at(-1);
    if (before?.attempt === run.attempt && before.last + 1 === run.first) {
      joined[joined.length - 1] = { ...before, last: run.last };
    } else joined.push(run);
  }
  return joined;
}

/** The ranges of tasks that may run again: granted once, requested, and in no task range (`held`). */
export function rerunCandidates(requested: Ranges | undefined, cursor: number, held: Ranges): Ranges {
  const granted = { first: 0, last: cursor - 1 };
  const ranges = requested === undefined ? normalize([granted]) : intersection(granted, normalize(requested));
  return normalize(ranges.flatMap((range) => difference(range, held)));
}

/** Divides tasks without a result by their last stored attempt, because an attempt number is not used twice. */
export function runsByAttempt(
  ranges: Ranges,
  stored: readonly { readonly index: number; readonly attempt: Attempt }[],
): AttemptRun[] {
  const last = new Map<number, Attempt>();
  for (const { index, attempt } of stored)
    if (contains(ranges, index)) last.set(index, Math.max(attempt, last.get(index) ?? 0));
  const tried = [...last].map(([index, attempt]) => ({ first: index, last: index, attempt }));
  const triedRanges = normalize(tried);
  const others = ranges.flatMap((range) => difference(range, triedRanges));
  return [...tried, ...others.map((range) => ({ ...range, attempt: 0 }))];
}

/** Waiting, without failures and crashes, with the ids from `first` on. */
export const taskRangesFromRuns = (runs: readonly AttemptRun[], job: JobId, first: TaskRangeId): TaskRange[] =>
  runs.map((run, at) => ({ ...run, id: TaskRangeId(first + at), job, failures: 0, crashes: 0, notBefore: 0 }));

/** The first task with a result. Without one the job is being removed, which begins with the first results. */
export function firstRecorded(cursor: number, cancels: Ranges, taskRanges: Ranges): Range | undefined {
  const [found] = difference({ first: 0, last: cursor - 1 }, union(cancels, taskRanges));
  return found && { first: found.first, last: found.first };
}

export const BEING_REMOVED = "the job is being removed";

/** Why these cannot run again; `holder` is another job that has the key of this one. */
export function refusedRerun(runs: readonly AttemptRun[], max: number, holder: JobId | undefined): string | undefined {
  if (runs.length > max) return tooManyRanges(runs.length, max);
  if (runs.length === 0 || holder === undefined) return undefined;
  return `job ${holder} has the key of this one: cancel it, or wait for its end`;
}

export const tooManyRanges = (count: number, max: number): string =>
  `the tasks that would run again lie in ${count} separate ranges, more than the ${max} that one request may have: give fewer ranges`;

export interface ScheduleRow {
  readonly name: string;
  readonly revision: number;
  readonly nextAt: number | null;
  readonly spec: Uint8Array;
  readonly state: string;
  readonly lastJob: JobId | null;
  readonly formerJob: JobId | null;
}

/** A copy, because pack() returns a view of a shared buffer. */
export const encodeSchedule = (spec: ScheduleSpec): Uint8Array => new Uint8Array(pack(spec));

export const scheduleFrom = ({ name, revision, nextAt, spec, state, lastJob, formerJob }: ScheduleRow): Schedule => ({
  name,
  revision,
  ...(nextAt === null ? {} : { nextAt }),
  // Unpacking a Buffer would return the bytes in it as Buffers.
  spec: unpack(new Uint8Array(spec)),
  state: JSON.parse(state),
  ...(lastJob === null ? {} : { lastJob }),
  ...(formerJob === null ? {} : { formerJob }),
});

/** The job of a run, whether it was made now or before. */
export function jobOfRun(result: WriteResult | undefined): JobId | undefined {
  if (result?.op === "submit") return result.job.id;
  return result?.op === "duplicate" ? result.job : undefined;
}

const MAX_ENTRIES = 1000;
const MAX_BYTES = 256 * 1024;
const BINARY = 0x80000000;

/** The chunks may be transferred: those of packed entries are copied, because a commit may be tried again. */
export function chunkEntries(entries: Entries | PackedEntries): EntryChunk[] {
  if ("chunks" in entries) return entries.chunks.map((chunk) => ({ ...chunk, bytes: new Uint8Array(chunk.bytes) }));
  const chunks: EntryChunk[] = [];
  let first = 0;
  while (first < entries.length) {
    let size = 0;
    let next = first;
    for (; next < entries.length && next - first < MAX_ENTRIES; next++) {
      const more = 4 + byteLength(entries[next] ?? "");
      if (next > first && size + more > MAX_BYTES) break;
      size += more;
    }
    chunks.push({ first, last: next - 1, bytes: encode(entries, first, next, size) });
    first = next;
  }
  return chunks;
}

/** The entries of `range` among chunks that cover it. */
export function entriesWithin(chunks: readonly EntryChunk[], range: Range): Bytes[] {
  const found: Bytes[] = [];
  for (const chunk of chunks) {
    const bytes = Buffer.from(chunk.bytes.buffer, chunk.bytes.byteOffset, chunk.bytes.byteLength);
    let at = 0;
    for (let index = chunk.first; index <= chunk.last && index <= range.last; index++) {
      const head = bytes.readUInt32LE(at);
      const from = at + 4;
      at = from + (head & ~BINARY);
      if (index < range.first) continue;
      found.push(head & BINARY ? new Uint8Array(bytes.subarray(from, at)) : bytes.toString("utf8", from, at));
    }
  }
  return found;
}

const byteLength = (entry: Bytes): number => (typeof entry === "string" ? Buffer.byteLength(entry) : entry.length);

function encode(entries: Entries, first: number, next: number, size: number): Uint8Array {
  // Not from the pool: the buffer is transferred to the thread.
  const bytes = Buffer.allocUnsafeSlow(size);
  let at = 0;
  for (let index = first; index < next; index++) {
    const entry = entries[index] ?? "";
    const text = typeof entry === "string";
    const length = text ? bytes.write(entry, at + 4) : entry.length;
    if (!text) bytes.set(entry, at + 4);
    bytes.writeUInt32LE((text ? length : length | BINARY) >>> 0, at);
    at += 4 + length;
  }
  return bytes;
}
