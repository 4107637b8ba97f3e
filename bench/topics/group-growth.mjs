/** A million finished tasks in PostgreSQL: their size on disk, and whether anything gets slower with their number. */
import postgres from "postgres";
import { median } from "../lib/figures.mjs";
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { postgresBinaries, startPostgres } from "../peers/postgres.mjs";

const STEPS = 10;
const QUERIES = 50;
const FIRST = "the first tenth";
const LAST = "the last tenth";
const SIZES = `
SELECT relname AS name, pg_total_relation_size(relid)::float8 AS bytes FROM pg_stat_user_tables WHERE schemaname = 'laboro'`;

export const groupGrowth = {
  name: "group-growth",
  title: "A million tasks that do nothing on PostgreSQL",
  note: "A link-level worker reports each task as done when it arrives, so this is the cost of queue, store and link. Ten jobs of a hundred thousand, one after the other. Times of queries are medians, measured through the client after the first job and after the last.",
  targets: ["tasks/s", "a job ms", "results ms", "list ms"].map((figure) =>
    figure === "tasks/s"
      ? { about: LAST, figure, beside: FIRST, least: 0.8 }
      : { about: LAST, figure, beside: FIRST, most: 1.5 },
  ),
  async contestants({ scale }) {
    if (postgresBinaries() === undefined) throw new Error("no PostgreSQL is installed");
    const server = await startPostgres();
    let rounds = 0;
    let laboro;
    let sql;
    const end = async () => {
      await sql?.end();
      await laboro?.stop();
    };
    /** The first tenth begins an empty database, the last follows it. */
    const first = async () => {
      await end();
      const url = await server.database(`growth_${++rounds}`);
      sql = postgres(url, { max: 1 });
      laboro = await startLaboro(["--store", url]);
      await laboro.crowd(1, 2);
      await laboro.run({ recipe: CALL, count: scale(20_000) });
      return step(laboro, scale(1_000_000) / STEPS);
    };
    const last = async () => {
      for (let i = 2; i < STEPS; i++) await laboro.run({ recipe: CALL, count: scale(1_000_000) / STEPS });
      const figures = await step(laboro, scale(1_000_000) / STEPS);
      await sql`VACUUM ANALYZE`;
      const sizes = await sql.unsafe(SIZES);
      const all = sizes.reduce((sum, { bytes }) => sum + bytes, 0);
      const results = sizes.find(({ name }) => name === "result")?.bytes ?? 0;
      const count = scale(1_000_000);
      return { ...figures, "bytes per task": all / count, "of it results": results / count };
    };
    return {
      list: [
        { about: FIRST, who: "laboro", measure: first },
        { about: LAST, who: "laboro", measure: last },
      ],
      stop: async () => {
        await end();
        await server.stop();
      },
    };
  },
};

async function step(laboro, count) {
  const begin = performance.now();
  const job = await laboro.run({ recipe: CALL, count });
  const seconds = (performance.now() - begin) / 1_000;
  await laboro.verify(job, count);
  return {
    "tasks/s": count / seconds,
    "a job ms": await queryMs(() => job.info()),
    "results ms": await queryMs((i) =>
      laboro.client.ask("tasks", { job: job.id, from: (i * 997) % count, limit: 100 }),
    ),
    "list ms": await queryMs(() => laboro.client.ask("jobs", { limit: 1 })),
  };
}

async function queryMs(query) {
  const taken = [];
  for (let i = 0; i < QUERIES; i++) {
    const begin = performance.now();
    await query(i);
    taken.push(performance.now() - begin);
  }
  return median(taken);
}
