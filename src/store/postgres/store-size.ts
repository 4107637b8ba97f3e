/**
 * About how many bytes the store uses: bytes of entries and output are counted as they are written, rows by the server's statistics.
 * Not the sizes of the files: these do not shrink when something is removed; the free space in them is used again.
 */

/** A row with its share of the indexes, in bytes. */
const ROW_BYTES = {
  job: 450,
  job_state: 150,
  job_counters: 150,
  task_range: 300,
  result: 150,
  earlier_attempt: 150,
  output: 120,
  entry_chunk: 120,
  key_value: 300,
};

export const BYTES = `
SELECT (coalesce((SELECT sum(bytes) FROM laboro.job_counters), 0) + coalesce(sum(s.n_live_tup * w.width), 0))::bigint AS bytes
FROM pg_stat_user_tables s
JOIN (VALUES ${Object.entries(ROW_BYTES)
  .map(([table, width]) => `('${table}', ${width})`)
  .join(", ")}) AS w (name, width) ON w.name = s.relname
WHERE s.schemaname = 'laboro'`;
