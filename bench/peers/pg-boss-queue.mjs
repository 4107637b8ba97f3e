/** pg-boss, fetched and completed in batches of 500 by a loop of our own: its own polling is slower than once a job. */
import { PgBoss } from "pg-boss";

const QUEUE = "noop";
const BATCH = 500;

export async function open(connectionString) {
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  await boss.createQueue(QUEUE);
  const insert = (from, size) =>
    boss.insert(
      QUEUE,
      Array.from({ length: size }, (_, i) => ({ data: { n: from + i } })),
    );
  return {
    add: async (count) => {
      for (let from = 0; from < count; from += 1_000) await insert(from, Math.min(1_000, count - from));
    },
    addOne: () => insert(0, 1),
    work: async (done) => {
      let stopped = false;
      const loop = (async () => {
        while (!stopped) {
          const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
          if (jobs.length > 0)
            await boss.complete(
              QUEUE,
              jobs.map(({ id }) => id),
            );
          else await new Promise((resolve) => setTimeout(resolve, 500));
          for (const _ of jobs) done();
        }
      })();
      return async () => {
        stopped = true;
        // It may be in its pause: that is no part of the work.
        await Promise.race([loop, new Promise((resolve) => setImmediate(resolve))]);
      };
    },
  };
}
