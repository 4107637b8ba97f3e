/**
 * About how much room all of it takes: bytes of entries and output are counted as they come, rows by the server's statistics. The sizes of the files
 * would not do: they do not shrink when something is removed, but are filled again.
 */

/** A row with its share of the indexes, in bytes. */
const ROW_BYTES = { job: 500, tally: 150, parcel: 300, result: 150, earlier: 150, output: 120, entry_chunk: 120, kept: 300 };

export const BYTES = `
SELECT (coalesce((SELECT sum(bytes) FROM laboro.tally), 0) + coalesce(sum(s.n_live_tup * w.width), 0))::bigint AS bytes
FROM pg_stat_user_tables s
JOIN (VALUES ${Object.entries(ROW_BYTES)
  .map(([table, width]) => `('${table}', ${width})`)
  .join(", ")}) AS w (name, width) ON w.name = s.relname
WHERE s.schemaname = 'laboro'`;
