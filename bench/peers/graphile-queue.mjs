/** graphile-worker; `batched` takes jobs in blocks of 500 and completes them in batches. */
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const CONCURRENCY = 64;
const QUIET = new Logger(() => () => {});

export async function open(connectionString, batched) {
  const utils = await makeWorkerUtils({ connectionString, logger: QUIET });
  await utils.migrate();
  const batching = {
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  };
  const add = async (count) => {
    for (let from = 0; from < count; from += 1_000) {
      const size = Math.min(1_000, count - from);
      await utils.addJobs(Array.from({ length: size }, (_, i) => ({ identifier: "noop", payload: { n: from + i } })));
    }
  };
  return {
    add,
    addOne: () => utils.addJob("noop", { n: 0 }),
    work: async (done) => {
      const runner = await run({
        connectionString,
        concurrency: CONCURRENCY,
        maxPoolSize: 10,
        noHandleSignals: true,
        logger: QUIET,
        taskList: { noop: () => done() },
        preset: batched ? { worker: batching } : {},
      });
      return () => runner.stop();
    },
  };
}
