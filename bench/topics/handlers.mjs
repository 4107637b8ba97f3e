/** Typed handlers, as functions of the worker's process and in threads, beside those of other queues. */
import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";
import { median } from "../lib/figures.mjs";
import { increment } from "../lib/handlers.mjs";
import { startLaboro } from "../lib/laboro.mjs";
import { metered } from "../lib/usage.mjs";
import { installed } from "../peers/installed.mjs";
import { postgresBinaries, startPostgres } from "../peers/postgres.mjs";
import { redisInstalled, startRedis } from "../peers/redis.mjs";

const WORKER = fileURLToPath(new URL("../lib/handlers-worker.mjs", import.meta.url));
const PEER = fileURLToPath(new URL("../peers/queue-process.mjs", import.meta.url));
const WAYS = [
  { how: "inline", slots: 64, batches: "20,000 tasks, functions", single: "one call at a time, function" },
  { how: "threads", slots: 4, batches: "20,000 tasks, threads", single: "one call at a time, thread" },
];
const [FUNCTIONS, THREADS] = WAYS.map(({ batches }) => batches);

export const handlers = {
  name: "handlers",
  title: "Typed handlers: functions and threads",
  note: "Each handler adds 1 to a number; inputs and results are JSON. laboro stores the results, BullMQ removes them with their jobs. Functions: 64 at a time, threads: 4. A call is a request, which is not stored: the difference of the two rows is what a thread costs. pg-boss's own `work` polls twice a second, 64 jobs at a time.",
  targets: [
    { about: FUNCTIONS, figure: "tasks/s", than: "BullMQ, fsync always", least: 1 },
    { about: FUNCTIONS, figure: "tasks/s", than: "pg-boss, work", least: 1 },
    { about: THREADS, figure: "tasks/s", than: "BullMQ, fsync always", least: 1 },
  ],
  async contestants({ scale, progress }) {
    const count = scale(20_000);
    const list = [];
    const stops = [];
    for (const { how, slots, batches, single } of WAYS) {
      const laboro = await startLaboro();
      stops.push(() => laboro.stop());
      const args = [laboro.url, laboro.token, String(slots), how];
      const worker = startModule(WORKER, args);
      stops.push(() => worker.stop());
      await calls(laboro.client, 500);
      await batch(laboro, worker, scale(5_000));
      list.push({ about: batches, who: "laboro", measure: () => batch(laboro, worker, count) });
      list.push({ about: single, who: "laboro", measure: () => calls(laboro.client, scale(4_000)) });
    }
    const peer = async (about, who, kind, address) => {
      const process = startModule(PEER, [kind, address]);
      stops.push(() => process.stop());
      const measure = async (batch) => ({ "tasks/s": (await process.ask({ batch }))["end to end/s"] });
      await measure(scale(5_000));
      list.push({ about, who, measure: () => measure(count) });
    };
    if (redisInstalled() && installed("bullmq")) {
      const redis = await startRedis();
      stops.push(() => redis.stop());
      await peer(FUNCTIONS, "BullMQ, fsync always", "bullmq-function", String(redis.port));
      await peer(THREADS, "BullMQ, fsync always", "bullmq-threads", String(redis.port));
    } else progress("no Redis, or no packages: without BullMQ");
    if (postgresBinaries() !== undefined && installed("pg")) {
      const postgres = await startPostgres();
      stops.push(() => postgres.stop());
      await peer(FUNCTIONS, "pg-boss, work", "pg-boss-work", await postgres.database("pg_boss_work"));
    } else progress("no PostgreSQL, or no packages: without pg-boss");
    return {
      list,
      stop: async () => {
        for (const stop of stops.toReversed()) await stop();
      },
    };
  },
};

async function batch(laboro, worker, count) {
  const inputs = Array.from({ length: count }, (_, n) => ({ n }));
  let job;
  const { seconds, cpu } = await metered({ broker: laboro.broker, worker }, async () => {
    job = await laboro.client.addMany(increment, inputs);
    await job.wait();
  });
  await laboro.verify(job, count);
  return { "tasks/s": count / seconds, "broker CPU µs": cpu.broker / count, "worker CPU µs": cpu.worker / count };
}

async function calls(client, count) {
  const taken = [];
  for (let n = 0; n < count; n++) {
    const begin = performance.now();
    const result = await client.call(increment, { n });
    taken.push((performance.now() - begin) * 1_000);
    if (result.n !== n + 1) throw new Error(`${n} became ${result.n}`);
  }
  return { "p50 µs": median(taken) };
}
