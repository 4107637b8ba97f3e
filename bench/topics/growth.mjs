/** A million finished tasks in each store: their size on disk, and whether anything gets slower with their number. */
import postgres from "postgres";
import { median } from "../lib/figures.mjs";
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { postgresBinaries, startPostgres } from "../peers/postgres.mjs";

const STEPS = 10;
const QUERIES = 50;
/** Jobs of one task that are submitted with each step, to be listed and removed. */
const SMALL_JOBS = 200;
const REMOVED = 20;
const FLAT = [
  "a job ms",
  "results ms",
  "failed results ms",
  "list ms",
  "list cancelled ms",
  "list by name ms",
  "remove ms",
];
const SIZES = `
SELECT relname AS name, pg_total_relation_size(relid)::float8 AS bytes FROM pg_stat_user_tables WHERE schemaname = 'laboro'`;
/** Updates of `job` move its cursor and need no index entry; those of `job_state` set its end, which is indexed. */
const CHURN = `
SELECT (SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'laboro' AND relname = 'task_range')::int AS dead,
  (SELECT n_tup_hot_upd::float8 / greatest(1, n_tup_upd) FROM pg_stat_user_tables WHERE schemaname = 'laboro' AND relname = 'job') AS hot,
  (SELECT xact_rollback::float8 / (xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = current_database()) AS rollbacks`;

const first = (store) => `${store}, the first tenth`;
const last = (store) => `${store}, the last tenth`;

export const growth = {
  name: "growth",
  title: "A million tasks that do nothing, in each store",
  note: "A link-level worker reports each task as done when it arrives, so this is the cost of queue, store and link. Ten jobs of a hundred thousand tasks, each followed by 200 jobs of one task. Times of queries are medians, measured through the client after the first tenth and after the last.",
  targets: [
    ...["SQLite", "PostgreSQL"].flatMap((store) => [
      { about: last(store), figure: "tasks/s", beside: first(store), least: 0.8 },
      ...FLAT.map((figure) => ({ about: last(store), figure, beside: first(store), most: 1.5 })),
    ]),
    { about: last("PostgreSQL"), figure: "HOT updates of jobs", least: 0.9 },
    { about: last("PostgreSQL"), figure: "dead task ranges", most: 10_000 },
    { about: last("PostgreSQL"), figure: "rolled back transactions", most: 0.01 },
  ],
  async contestants({ scale, progress }) {
    const stores = [growing("SQLite", scale, () => ({ more: [] }))];
    let server;
    if (postgresBinaries() === undefined) progress("no PostgreSQL");
    else {
      server = await startPostgres();
      let databases = 0;
      const begin = async () => {
        const url = await server.database(`growth_${++databases}`);
        return { more: ["--store", url], sql: postgres(url, { max: 1 }) };
      };
      stores.push(growing("PostgreSQL", scale, begin));
    }
    return {
      list: stores.flatMap(({ list }) => list),
      stop: async () => {
        for (const { end } of stores) await end();
        await server?.stop();
      },
    };
  },
};

/** The first tenth begins an empty store, the last follows it. */
function growing(store, scale, begin) {
  const count = scale(1_000_000);
  let laboro;
  let sql;
  const end = async () => {
    await sql?.end();
    await laboro?.stop();
    sql = laboro = undefined;
  };
  const measureFirst = async () => {
    await end();
    const begun = await begin();
    sql = begun.sql;
    laboro = await startLaboro(begun.more);
    await laboro.crowd(1, 2);
    await laboro.run({ recipe: CALL, count: scale(20_000) });
    return step(laboro, count / STEPS);
  };
  const measureLast = async () => {
    for (let i = 2; i < STEPS; i++) await fill(laboro, count / STEPS);
    const figures = await step(laboro, count / STEPS);
    return { ...figures, ...(sql === undefined ? {} : await sizes(sql, count)) };
  };
  const list = [
    { about: first(store), who: "laboro", measure: measureFirst },
    { about: last(store), who: "laboro", measure: measureLast },
  ];
  return { list, end };
}

async function sizes(sql, count) {
  const [{ dead, hot, rollbacks }] = await sql.unsafe(CHURN);
  await sql`VACUUM ANALYZE`;
  const tables = await sql.unsafe(SIZES);
  const all = tables.reduce((sum, { bytes }) => sum + bytes, 0);
  const results = tables.find(({ name }) => name === "result")?.bytes ?? 0;
  return {
    "bytes per task": all / count,
    "of it results": results / count,
    "dead task ranges": dead,
    "HOT updates of jobs": hot,
    "rolled back transactions": rollbacks,
  };
}

/** A large job, and small ones, one of them cancelled. */
async function fill(laboro, count) {
  const begin = performance.now();
  const job = await laboro.run({ recipe: CALL, count });
  const seconds = (performance.now() - begin) / 1_000;
  await laboro.verify(job, count);
  const small = await Promise.all(
    Array.from({ length: SMALL_JOBS }, () => laboro.client.submit({ recipe: CALL, name: "small" })),
  );
  await Promise.all(small.map((one) => one.wait()));
  await (await laboro.client.submit({ recipe: CALL, pool: "nobody" })).cancel();
  return { job, small, seconds };
}

async function step(laboro, count) {
  const { job, small, seconds } = await fill(laboro, count);
  const { client } = laboro;
  const at = (i) => (i * 997) % count;
  return {
    "tasks/s": count / seconds,
    "a job ms": await queryMs(() => job.info()),
    "results ms": await queryMs((i) => client.ask("tasks", { job: job.id, from: at(i), limit: 100 })),
    "failed results ms": await queryMs((i) =>
      client.ask("tasks", { job: job.id, from: at(i), limit: 100, state: ["failed"] }),
    ),
    "list ms": await queryMs(() => client.ask("jobs", { limit: 20 })),
    "list cancelled ms": await queryMs(() => client.ask("jobs", { limit: 1, state: ["cancelled"] })),
    "list by name ms": await queryMs(() => client.ask("jobs", { limit: 20, name: "small" })),
    "remove ms": await queryMs((i) => client.ask("remove", { job: small[i].id }), REMOVED),
  };
}

async function queryMs(query, times = QUERIES) {
  const taken = [];
  for (let i = 0; i < times; i++) {
    const begin = performance.now();
    await query(i);
    taken.push(performance.now() - begin);
  }
  return median(taken);
}
