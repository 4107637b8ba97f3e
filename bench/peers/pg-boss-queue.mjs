/**
 * pg-boss, fetched and completed in batches by a loop of the benchmark: its own polling is slower than once a job. With batches of one,
 * 64 such loops.
 */
import { PgBoss } from "pg-boss";

const QUEUE = "noop";

export async function open(connectionString, batchSize) {
  const { boss, adding } = await start(connectionString);
  return {
    ...adding,
    work: async (done) => {
      let stopped = false;
      const loop = async () => {
        while (!stopped) {
          const jobs = await boss.fetch(QUEUE, { batchSize });
          if (jobs.length > 0)
            await boss.complete(
              QUEUE,
              jobs.map(({ id }) => id),
            );
          else await new Promise((resolve) => setTimeout(resolve, batchSize === 1 ? 20 : 500));
          for (const _ of jobs) done();
        }
      };
      const loops = Promise.all(Array.from({ length: batchSize === 1 ? 64 : 1 }, loop));
      return async () => {
        stopped = true;
        // It may be in its pause: that is no part of the work.
        await Promise.race([loops, new Promise((resolve) => setImmediate(resolve))]);
      };
    },
  };
}

/** Its own `work`, which polls. */
export async function openWork(connectionString, batchSize) {
  const { boss, adding } = await start(connectionString);
  return {
    ...adding,
    work: async (done) => {
      await boss.work(QUEUE, { batchSize, pollingIntervalSeconds: 0.5 }, async (jobs) => {
        for (const _ of jobs) done();
      });
      return () => boss.offWork(QUEUE);
    },
  };
}

async function start(connectionString) {
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  await boss.createQueue(QUEUE);
  const insert = (from, size) =>
    boss.insert(
      QUEUE,
      Array.from({ length: size }, (_, i) => ({ data: { n: from + i } })),
    );
  const add = async (count) => {
    for (let from = 0; from < count; from += 1_000) await insert(from, Math.min(1_000, count - from));
  };
  return { boss, adding: { add, addOne: () => insert(0, 1) } };
}
