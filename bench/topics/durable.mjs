/** Durable jobs that do nothing beside the job queues that a Node program would use instead. */
import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";
import { median } from "../lib/figures.mjs";
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { beanstalkd } from "../peers/beanstalkd.mjs";
import { installed } from "../peers/installed.mjs";
import { postgresBinaries, startPostgres } from "../peers/postgres.mjs";
import { redisInstalled, startRedis } from "../peers/redis.mjs";

const PEER = fileURLToPath(new URL("../peers/queue-process.mjs", import.meta.url));
const ONE = "one job, idle";

export const durable = {
  name: "durable",
  title: "Durable jobs that do nothing, 20,000, concurrency 64",
  note: "Each queue's adding and working side is one process beside its server; laboro's worker has a process of its own. All call a function for each job. Jobs are added in batches, then worked off; end to end counts both.",
  targets: [
    { figure: "end to end/s", than: "graphile-worker, batched", least: 2 },
    { about: ONE, figure: "p50 ms", most: 1.5 },
  ],
  async contestants({ scale, progress }) {
    const count = scale(20_000);
    const about = `${count.toLocaleString("en")} jobs`;
    const list = [];
    const stops = [];
    const enter = async (who, { batch, single }) => {
      await batch(scale(5_000));
      list.push({ about, who, measure: () => batch(count) });
      if (single !== undefined) list.push({ about: ONE, who, measure: () => single(scale(100)) });
    };
    const start = async (who, ...args) => {
      const peer = startModule(PEER, args);
      stops.push(() => peer.stop());
      await enter(who, driven(peer));
    };

    const laboro = await startLaboro();
    stops.push(() => laboro.stop());
    await laboro.echoWorker(64);
    await enter("laboro", ours(laboro));
    await enter("laboro, a job each", apart(laboro));
    if (postgresBinaries() !== undefined && installed("pg")) {
      const postgres = await startPostgres();
      stops.push(() => postgres.stop());
      for (const [who, kind] of [
        ["graphile-worker, batched", "graphile-batched"],
        ["graphile-worker", "graphile"],
        ["pg-boss, batches of 500", "pg-boss"],
      ]) {
        await start(who, kind, postgres.url);
      }
    } else progress("no PostgreSQL, or no packages: without graphile-worker and pg-boss");
    if (redisInstalled() && installed("bullmq")) {
      const redis = await startRedis();
      stops.push(() => redis.stop());
      await start("BullMQ, fsync always", "bullmq", String(redis.port));
    } else progress("no Redis, or no packages: without BullMQ");
    if (beanstalkd.available()) {
      const server = await beanstalkd.start();
      stops.push(() => server.stop());
      await start("beanstalkd, fsync each", "beanstalkd", String(server.port));
    } else progress("no beanstalkd");
    return {
      list,
      stop: async () => {
        for (const stop of stops.toReversed()) await stop();
      },
    };
  },
};

const driven = (peer) => ({
  batch: (count) => peer.ask({ batch: count }),
  single: (times) => peer.ask({ single: times }),
});

/** All handed in while nothing is worked off, then released, as the peers do it. */
const ours = (laboro) => ({
  batch: async (count) => {
    const entries = Array.from({ length: count }, (_, i) => String(i));
    const begin = performance.now();
    const job = await laboro.client.submit({ recipe: CALL, entries, held: true });
    const added = performance.now();
    await job.release();
    await job.wait();
    const end = performance.now();
    await laboro.verify(job, count);
    return {
      "added/s": (count * 1_000) / (added - begin),
      "worked off/s": (count * 1_000) / (end - added),
      "end to end/s": (count * 1_000) / (end - begin),
    };
  },
  single: async (times) => {
    const taken = [];
    for (let i = 0; i < times; i++) {
      const begin = performance.now();
      await laboro.run({ recipe: CALL });
      taken.push(performance.now() - begin);
    }
    return { "p50 ms": median(taken) };
  },
});

/** A job for each task, so that nothing is shared between tasks: a thousand submissions under way at a time. */
const apart = (laboro) => ({
  batch: async (count) => {
    const begin = performance.now();
    const jobs = [];
    while (jobs.length < count) {
      const size = Math.min(1_000, count - jobs.length);
      jobs.push(...(await Promise.all(Array.from({ length: size }, () => laboro.client.submit({ recipe: CALL })))));
    }
    const added = performance.now();
    const ends = await Promise.all(jobs.map((job) => job.wait()));
    const end = performance.now();
    const bad = ends.filter((how) => how !== "succeeded").length;
    if (bad > 0) throw new Error(`${bad} of ${count} jobs did not succeed`);
    return { "added/s": (count * 1_000) / (added - begin), "end to end/s": (count * 1_000) / (end - begin) };
  },
});
