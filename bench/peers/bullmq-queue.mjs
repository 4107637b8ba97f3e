/** BullMQ; jobs are removed when they are done, as its own benchmark does. */
import { Queue, Worker } from "bullmq";
import IORedis from "ioredis";

const PROCESSOR = new URL("bullmq-processor.mjs", import.meta.url);

const NOOP = async () => {};
const PROCESSORS = {
  noop: [NOOP, { concurrency: 64 }],
  function: [async ({ data }) => ({ n: data.n + 1 }), { concurrency: 64 }],
  threads: [PROCESSOR, { concurrency: 4, useWorkerThreads: true }],
};

/** `name` is the queue's, and says how its jobs are done. */
export async function open(port, name = "noop") {
  const connect = () => new IORedis(Number(port), "127.0.0.1", { maxRetriesPerRequest: null });
  const queue = new Queue(name, { connection: connect(), defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  return {
    add: async (count) => {
      for (let from = 0; from < count; from += 1_000) {
        const size = Math.min(1_000, count - from);
        await queue.addBulk(Array.from({ length: size }, (_, i) => ({ name, data: { n: from + i } })));
      }
    },
    addOne: () => queue.add(name, { n: 0 }),
    work: async (done) => {
      const [processor, how] = PROCESSORS[name];
      const worker = new Worker(name, processor, { connection: connect(), ...how });
      worker.on("completed", done);
      worker.on("error", (error) => console.error(error));
      await worker.waitUntilReady();
      return () => worker.close();
    },
  };
}
