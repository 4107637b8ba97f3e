/** Reading an attempt's output, a bounded page at a time: pieces in order of offset, neighbours of one stream joined. */
import type { JobId, TaskIndex } from "../../model/ids.js";
import type { OutputStream } from "../../model/outcome.js";
import type { OutputOptions, OutputPage, OutputPiece } from "../../model/store.js";
import type { Session } from "./connections.js";
import { STREAMS } from "./operations/output.js";

/** $1 job, $2 task. */
export const LATEST = "SELECT max(attempt) AS attempt FROM laboro.output WHERE job = $1::bigint AND idx = $2::int";

/** $1 job, $2 task, $3 attempt, $4 from, $5 rows at most: from the row on in which `from` lies. */
export const OUTPUT_ROWS = `
SELECT start_offset AS "offset", stream, bytes FROM laboro.output
WHERE job = $1::bigint AND idx = $2::int AND attempt = $3::int AND start_offset >= coalesce((
  SELECT max(start_offset) FROM laboro.output WHERE job = $1::bigint AND idx = $2::int AND attempt = $3::int AND start_offset <= $4::bigint), 0)
ORDER BY start_offset LIMIT $5::int`;

/**
 * $1 jobs, $2 tasks, $3 attempts. 0 for an attempt that has ended: it has a result, or its job ended while it ran, and may have been
 * reopened since.
 */
export const OUTPUT_ENDS = `
SELECT coalesce((
  SELECT o.start_offset + octet_length(o.bytes) FROM laboro.output o JOIN laboro.job j ON j.id = o.job
  WHERE o.job = a.job AND o.idx = a.idx AND o.attempt = a.attempt AND o.reopen_count = j.reopen_count AND j.ended_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM laboro.result r WHERE r.job = a.job AND r.idx = a.idx AND r.attempt = a.attempt)
    AND NOT EXISTS (SELECT 1 FROM laboro.earlier_attempt e WHERE e.job = a.job AND e.idx = a.idx AND e.attempt = a.attempt)
  ORDER BY o.start_offset DESC LIMIT 1), 0) AS "end"
FROM unnest($1::bigint[], $2::int[], $3::int[]) WITH ORDINALITY AS a (job, idx, attempt, n) ORDER BY a.n`;

/** Rows asked for at a time: a few where they are large. */
const MIN_ROWS = 4;
const MAX_ROWS = 2_000;
/** A page ends after reading this much, however little of it was asked for. */
const MAX_READ_BYTES = 8 * 1024 * 1024;

interface Row {
  readonly offset: number;
  readonly stream: number;
  readonly bytes: Uint8Array;
}

export async function readOutput(
  session: Session,
  job: JobId,
  index: TaskIndex,
  options: OutputOptions,
): Promise<OutputPage> {
  const attempt = options.attempt ?? (await latest(session, job, index));
  const page = new PageBuilder(options);
  let budget = MAX_READ_BYTES;
  for (let wanted = MIN_ROWS; ; ) {
    const rows = await session.send<Row>(OUTPUT_ROWS, [job, index, attempt, page.at, wanted]);
    for (const { offset, stream, bytes } of rows) {
      if (page.full || budget <= 0) {
        // There is more, unless the page has all of this row already.
        if (offset + bytes.length > page.at) return { pieces: page.pieces, next: page.at };
        continue;
      }
      page.take(STREAMS[stream] ?? "stdout", offset, bytes);
      budget -= bytes.length;
    }
    if (rows.length < wanted) return page.truncated ? { pieces: page.pieces, next: page.at } : { pieces: page.pieces };
    const size = rows.reduce((sum, { bytes }) => sum + bytes.length, 0) / rows.length;
    wanted = Math.min(MAX_ROWS, Math.max(MIN_ROWS, Math.ceil(Math.min(options.limit, budget) / size)));
  }
}

async function latest(session: Session, job: JobId, index: TaskIndex): Promise<number> {
  const [row] = await session.send<{ attempt: number | null }>(LATEST, [job, index]);
  return row?.attempt ?? 0;
}

class PageBuilder {
  at: number;
  /** Less was taken of a row than there was. */
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
