/** Bytes of output, as rows. What comes again is stored once. */
import type { OutputStream } from "../../../model/outcome.js";
import type { OutputChunk, Write } from "../../../model/store.js";
import { ConcatenatedBytes, numberArray } from "../arrays.js";
import type { Value } from "../connections.js";
import { addToJobCounters } from "../statements.js";

export const STREAMS: readonly OutputStream[] = ["stdout", "stderr"];

/** Larger rows would cost a reader of a few bytes more. */
const MAX_ROW_BYTES = 64 * 1024;

/** $1 the bytes, concatenated; $2 to $8 the task, offset and position of each chunk; $9 jobs that are submitted in the same batch. */
export const APPEND = `
WITH given AS MATERIALIZED (
  SELECT c.*, c.start_offset + c.length AS until, max(c.start_offset + c.length) OVER (
    PARTITION BY c.job, c.idx, c.attempt ORDER BY c.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM unnest($2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::bigint[], $7::int[], $8::int[]) WITH ORDINALITY
    AS c (job, idx, attempt, stream, start_offset, start, length, n)),
-- Bytes that are stored already, by earlier batches or earlier in this one, are left out.
fresh AS MATERIALIZED (
  SELECT g.*, coalesce(j.reopen_count, 0) AS reopen_count, greatest(0, least(g.length, greatest(coalesce(g.before, 0), coalesce(s.until, 0)) - g.start_offset))::int AS known
  FROM given g LEFT JOIN laboro.job j ON j.id = g.job
  LEFT JOIN LATERAL (
    SELECT o.start_offset + octet_length(o.bytes) AS until FROM laboro.output o
    WHERE o.job = g.job AND o.idx = g.idx AND o.attempt = g.attempt ORDER BY o.start_offset DESC LIMIT 1) AS s ON true
  WHERE j.id IS NOT NULL OR g.job = ANY($9::bigint[])),
added AS (
  INSERT INTO laboro.output (job, idx, attempt, reopen_count, stream, start_offset, bytes)
  SELECT job, idx, attempt, reopen_count, stream, start_offset + known, substring($1::bytea FROM start + known FOR length - known)
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
    numberArray(chunks.map(({ job }) => job)),
    numberArray(chunks.map(({ index }) => index)),
    numberArray(chunks.map(({ attempt }) => attempt)),
    numberArray(chunks.map(({ stream }) => STREAMS.indexOf(stream))),
    numberArray(chunks.map(({ offset }) => offset)),
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
