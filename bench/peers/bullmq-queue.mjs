/** BullMQ; jobs are removed when they are done, as its own benchmark does. */
import { Queue, Worker } from "bullmq";
import IORedis from "ioredis";

const NAME = "noop";

export async function open(port) {
  const connect = () => new IORedis(Number(port), "127.0.0.1", { maxRetriesPerRequest: null });
  const queue = new Queue(NAME, { connection: connect(), defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  return {
    add: async (count) => {
      for (let from = 0; from < count; from += 1_000) {
        const size = Math.min(1_000, count - from);
        await queue.addBulk(Array.from({ length: size }, (_, i) => ({ name: NAME, data: { n: from + i } })));
      }
    },
    addOne: () => queue.add(NAME, { n: 0 }),
    work: async (done) => {
      const worker = new Worker(NAME, async () => {}, { connection: connect(), concurrency: 64 });
      worker.on("completed", done);
      worker.on("error", (error) => console.error(error));
      await worker.waitUntilReady();
      return () => worker.close();
    },
  };
}
