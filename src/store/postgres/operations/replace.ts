/** Other parcels in the place of one: tasks that go back to wait, tasks that stay with the worker. */
import { numbers, texts } from "../arrays.js";
import type { Batch } from "../batch.js";
import type { Ledger } from "../ledger.js";
import { RESULT_COLUMNS, rareColumns, resultColumns, resultRows } from "../result-columns.js";
import type { Placed } from "../stages.js";
import { addToTally, flagsFrom, OWN, ownFlags } from "../statements.js";

/** $1 parcels, $2 their jobs, $3 how many tasks leave unrun; from $4 to $13 the pieces; from $14 on the ends of earlier attempts. */
const PIECES = `unnest($4::int[], $5::bigint[], $6::int[], $7::int[], $8::int[], $9::int[], $10::int[], $11::float8[], $12::text[], $13::text[])
  AS q (w, id, first, last, attempt, failures, crashes, not_before, avoid, worker)`;

const earlier = (rare: boolean): string => `
kept AS (
  INSERT INTO laboro.earlier (${RESULT_COLUMNS})
  SELECT ($2::bigint[])[r.w], r.idx, r.attempt, r.state, r.worker, r.started, r.ended, r.output_end, r.code, ${rareColumns(rare)}
  FROM ${resultRows(14, rare)}
  WHERE (SELECT flags FROM own)[r.w]
  ON CONFLICT DO NOTHING),`;

export const replaceStatement = (ends: "none" | "plain" | "rare"): string => `
WITH own AS MATERIALIZED (${ownFlags("$1")}),
gone AS (DELETE FROM laboro.parcel WHERE id = ANY($1::bigint[]) AND epoch = ${OWN} RETURNING id),
made AS (
  INSERT INTO laboro.parcel (id, job, first, last, attempt, failures, crashes, not_before, avoid, worker, epoch)
  SELECT q.id, ($2::bigint[])[q.w], q.first, q.last, q.attempt, q.failures, q.crashes, q.not_before, q.avoid, q.worker, ${OWN}
  FROM ${PIECES}
  -- A piece may have the name of what it replaces: that has to be gone first, which asking for it makes sure of.
  WHERE (SELECT flags FROM own)[q.w] AND (SELECT count(*) FROM gone) >= 0),
${ends === "none" ? "" : earlier(ends === "rare")}
counted AS (
  SELECT a.job, 0 AS bytes, 0 AS succeeded, 0 AS failed, sum(a.cancelled) AS cancelled
  FROM unnest($2::bigint[], $3::int[]) WITH ORDINALITY AS a (job, cancelled, n)
  WHERE a.cancelled > 0 AND (SELECT flags FROM own)[a.n]
  GROUP BY a.job),
summed AS (${addToTally("counted")})
SELECT flags::text AS own FROM own`;

export async function replace(batch: Batch, ledger: Ledger, writes: readonly Placed<"replace">[]): Promise<void> {
  const pieces = writes.flatMap(({ write }, at) => write.pieces.map((piece) => ({ ...piece, w: at + 1 })));
  const lists = writes.map(({ write }) => write.earlier);
  const ends = resultColumns(lists, batch.workers);
  const any = lists.some((list) => list.length > 0);
  const [row] = await batch.session.send<{ own: string }>(
    replaceStatement(any ? (ends.rare ? "rare" : "plain") : "none"),
    [
      numbers(writes.map(({ write }) => write.parcel)),
      numbers(writes.map(({ write }) => write.job)),
      numbers(writes.map(({ write }) => write.cancelled)),
      numbers(pieces.map(({ w }) => w)),
      numbers(pieces.map(({ id }) => id)),
      numbers(pieces.map(({ first }) => first)),
      numbers(pieces.map(({ last }) => last)),
      numbers(pieces.map(({ attempt }) => attempt)),
      numbers(pieces.map(({ failures }) => failures)),
      numbers(pieces.map(({ crashes }) => crashes)),
      numbers(pieces.map(({ notBefore }) => notBefore)),
      texts(pieces.map(({ avoid }) => avoid ?? null)),
      texts(pieces.map(({ worker }) => worker ?? null)),
      ...(any ? ends.values : []),
    ],
  );
  const own = flagsFrom(row?.own ?? null);
  writes.forEach(({ at, write }, i) => {
    batch.answers[at] = { op: write.op, lost: own[i] !== true };
    if (own[i] === true) ledger.add(at, write.job, { cancelled: write.cancelled });
  });
}
