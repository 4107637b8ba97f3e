/** Reading an attempt's output, a bounded page at a time: pieces in order of offset, neighbours of one stream joined. */
import type { JobId, TaskIndex } from "../../model/ids.js";
import type { OutputOptions, OutputPage } from "../../model/store.js";
import { OutputPageBuilder, pageOfSmallOutput } from "../small-output.js";
import type { Session } from "./connections.js";
import { STREAMS } from "./operations/output.js";

/** $1 job, $2 task, $3 the attempt, or null for the latest with any: `output` is in its result's row where it is small. */
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
  SELECT o.start_offset + octet_length(o.bytes) FROM laboro.output o JOIN laboro.job j ON j.id = o.job JOIN laboro.job_state s ON s.job = o.job
  WHERE o.job = a.job AND o.idx = a.idx AND o.attempt = a.attempt AND o.reopen_count = j.reopen_count AND s.ended_at IS NULL
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
      page.take(STREAMS[stream] ?? "stdout", offset, bytes);
      budget -= bytes.length;
    }
    if (rows.length < wanted) return page.truncated ? { pieces: page.pieces, next: page.at } : { pieces: page.pieces };
    const size = rows.reduce((sum, { bytes }) => sum + bytes.length, 0) / rows.length;
    wanted = Math.min(MAX_ROWS, Math.max(MIN_ROWS, Math.ceil(Math.min(options.limit, budget) / size)));
  }
}
