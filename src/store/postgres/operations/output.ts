/** Bytes of output, as rows: written and read. What comes again is stored once. */
import type { JobId, TaskIndex } from "../../../model/ids.js";
import { OUTPUT_STREAMS } from "../../../model/outcome.js";
import type { OutputChunk, Write } from "../../../model/store.js";
import type { OutputOptions, OutputPage } from "../../../model/store-reads.js";
import { OutputPageBuilder, pageOfSmallOutput } from "../../rows.js";
import type { Session, Value } from "../connections.js";
import { addToJobCounters, ConcatenatedBytes, numberArray, numberColumns } from "../statements.js";

/** Larger rows would cost a reader of a few bytes more. */
const MAX_ROW_BYTES = 64 * 1024;

/** $1 the bytes, joined; $2 to $8 task, offset and position of each chunk; $9 jobs submitted in the same batch. */
export const APPEND = `
WITH given AS MATERIALIZED (
  SELECT c.*, c.start_offset + c.length AS until, max(c.start_offset + c.length) OVER (
    PARTITION BY c.job, c.idx, c.attempt ORDER BY c.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM unnest($2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::bigint[], $7::int[], $8::int[]) WITH ORDINALITY
    AS c (job, idx, attempt, stream, start_offset, start, length, n)),
-- Bytes that are stored already, by earlier batches or earlier in this one, are left out.
fresh AS MATERIALIZED (
  SELECT g.*, coalesce(j.reopen_count, 0) AS reopen_count,
    greatest(0, least(g.length, greatest(coalesce(g.before, 0), coalesce(s.until, 0)) - g.start_offset))::int AS known
  FROM given g LEFT JOIN laboro.job j ON j.id = g.job
  LEFT JOIN LATERAL (
    SELECT o.start_offset + octet_length(o.bytes) AS until FROM laboro.output o
    WHERE o.job = g.job AND o.idx = g.idx AND o.attempt = g.attempt ORDER BY o.start_offset DESC LIMIT 1) AS s ON true
  WHERE j.id IS NOT NULL OR g.job = ANY($9::bigint[])),
added AS (
  INSERT INTO laboro.output (job, idx, attempt, reopen_count, stream, start_offset, bytes)
  SELECT job, idx, attempt, reopen_count, stream, start_offset + known,
    substring($1::bytea FROM start + known FOR length - known)
  FROM fresh WHERE known < length
  ON CONFLICT DO NOTHING
  RETURNING job, octet_length(bytes) AS bytes),
sized AS (SELECT job, sum(bytes) AS bytes, 0 AS succeeded, 0 AS failed, 0 AS cancelled FROM added GROUP BY job)
${addToJobCounters("sized")}`;

/** All output of a batch, copied: the chunks are views of buffers that may change while the batch waits. */
export function outputOf(writes: readonly Write[]): readonly Value[] | undefined {
  const chunks: OutputChunk[] = [];
  for (const write of writes)
    if (write.op === "output") for (const chunk of write.chunks) chunks.push(...pieces(chunk));
  if (chunks.length === 0) return undefined;
  const bytes = new ConcatenatedBytes();
  for (const chunk of chunks) bytes.add(chunk.bytes);
  return [
    bytes.bytes,
    ...numberColumns(chunks, "job", "index", "attempt"),
    numberArray(chunks.map(({ stream }) => OUTPUT_STREAMS.indexOf(stream))),
    ...numberColumns(chunks, "offset"),
    numberArray(bytes.starts),
    numberArray(bytes.lengths),
  ];
}

function pieces(chunk: OutputChunk): OutputChunk[] {
  if (chunk.bytes.length <= MAX_ROW_BYTES) return chunk.bytes.length === 0 ? [] : [chunk];
  const list: OutputChunk[] = [];
  for (let at = 0; at < chunk.bytes.length; at += MAX_ROW_BYTES) {
    list.push({ ...chunk, offset: chunk.offset + at, bytes: chunk.bytes.subarray(at, at + MAX_ROW_BYTES) });
  }
  return list;
}

// Reading an attempt's output, a bounded page at a time: pieces in order of offset, neighbours of one stream joined.

/** $1 job, $2 task, $3 the attempt, or null for the latest with output. Small `output` is in the row of the result. */
export const FIND_OUTPUT = `
SELECT attempt, output FROM (
  (SELECT attempt, NULL::bytea AS output FROM laboro.output
   WHERE job = $1::bigint AND idx = $2::int AND ($3::int IS NULL OR attempt = $3::int) ORDER BY attempt DESC LIMIT 1)
  UNION ALL
  SELECT attempt, output FROM laboro.result
  WHERE job = $1::bigint AND idx = $2::int AND ($3::int IS NULL OR attempt = $3::int) AND output IS NOT NULL
  UNION ALL
  SELECT attempt, output FROM laboro.earlier_attempt
  WHERE job = $1::bigint AND idx = $2::int AND ($3::int IS NULL OR attempt = $3::int) AND output IS NOT NULL) AS found
ORDER BY attempt DESC, output IS NULL LIMIT 1`;

/** $1 job, $2 task, $3 attempt, $4 from, $5 rows at most. The first row contains `from`. */
export const OUTPUT_ROWS = `
SELECT start_offset AS "offset", stream, bytes FROM laboro.output
WHERE job = $1::bigint AND idx = $2::int AND attempt = $3::int AND start_offset >= coalesce((
  SELECT max(start_offset) FROM laboro.output
    WHERE job = $1::bigint AND idx = $2::int AND attempt = $3::int AND start_offset <= $4::bigint), 0)
ORDER BY start_offset LIMIT $5::int`;

/** $1 jobs, $2 tasks, $3 attempts. 0 for an ended attempt: it has a result, or the job ended while it ran. */
export const OUTPUT_ENDS = `
SELECT coalesce((
  SELECT o.start_offset + octet_length(o.bytes)
  FROM laboro.output o JOIN laboro.job j ON j.id = o.job JOIN laboro.job_state s ON s.job = o.job
  WHERE o.job = a.job AND o.idx = a.idx AND o.attempt = a.attempt AND o.reopen_count = j.reopen_count
    AND s.ended_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM laboro.result r WHERE r.job = a.job AND r.idx = a.idx AND r.attempt = a.attempt)
    AND NOT EXISTS (
      SELECT 1 FROM laboro.earlier_attempt e WHERE e.job = a.job AND e.idx = a.idx AND e.attempt = a.attempt)
  ORDER BY o.start_offset DESC LIMIT 1), 0) AS "end"
FROM unnest($1::bigint[], $2::int[], $3::int[]) WITH ORDINALITY AS a (job, idx, attempt, n) ORDER BY a.n`;

/** Rows per query; fewer if they are large. */
const MIN_ROWS = 4;
const MAX_ROWS = 2_000;
/** The most bytes that are read for one page, even if few of them belong to it. */
const MAX_READ_BYTES = 8 * 1024 * 1024;

interface Row {
  readonly offset: number;
  readonly stream: number;
  readonly bytes: Uint8Array;
}

interface FoundOutput {
  readonly attempt: number;
  readonly output: Uint8Array | null;
}

export async function readOutput(
  session: Session,
  job: JobId,
  index: TaskIndex,
  options: OutputOptions,
): Promise<OutputPage> {
  const [found] = await session.send<FoundOutput>(FIND_OUTPUT, [job, index, options.attempt ?? null]);
  if (found === undefined) return { pieces: [] };
  const { attempt, output } = found;
  if (output !== null) return pageOfSmallOutput(output, options);
  const page = new OutputPageBuilder(options);
  let budget = MAX_READ_BYTES;
  for (let wanted = MIN_ROWS; ; ) {
    const rows = await session.send<Row>(OUTPUT_ROWS, [job, index, attempt, page.at, wanted]);
    for (const { offset, stream, bytes } of rows) {
      if (page.full || budget <= 0) {
        // There is more, unless the page has all of this row already.
        if (offset + bytes.length > page.at) return { pieces: page.pieces, next: page.at };
        continue;
      }
      page.take(OUTPUT_STREAMS[stream] ?? "stdout", offset, bytes);
      budget -= bytes.length;
    }
    if (rows.length < wanted) return page.truncated ? { pieces: page.pieces, next: page.at } : { pieces: page.pieces };
    const size = rows.reduce((sum, { bytes }) => sum + bytes.length, 0) / rows.length;
    wanted = Math.min(MAX_ROWS, Math.max(MIN_ROWS, Math.ceil(Math.min(options.limit, budget) / size)));
  }
}
