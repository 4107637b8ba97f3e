/** Many small jobs: each submission is a job of its own, beside the job queues that a Node program would use instead. */
import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { metered } from "../lib/usage.mjs";
import { installed } from "../peers/installed.mjs";
import { postgresBinaries, startPostgres } from "../peers/postgres.mjs";
import { redisInstalled, startRedis } from "../peers/redis.mjs";

const PEER = fileURLToPath(new URL("../peers/queue-process.mjs", import.meta.url));
const SLOTS = 64;
const IN_FLIGHT = 100;
const SQLITE = "SQLite and Redis";
const POSTGRES = "PostgreSQL";
const TURNS = "PostgreSQL, a thousand at a time";
const POSTGRES_PEERS = [
  [POSTGRES, "graphile-worker, job by job", "graphile", "apart", 1.5],
  [POSTGRES, "pg-boss, job by job", "pg-boss-single", "apart", 1.5],
  [TURNS, "graphile-worker, batched", "graphile-batched", "batch", 1],
  [TURNS, "pg-boss, batches of 500", "pg-boss", "batch", 1],
];

export const smallJobs = {
  name: "small-jobs",
  title: "20,000 jobs of one task, each submitted by itself",
  note: "From the first submission to the end of the last job. Every job calls a function; 64 slots. laboro's client also waits for the end of each job. 100 submissions are in flight; in the rows `a thousand at a time` a thousand calls of one turn, then the next thousand. There the peers add a thousand jobs in a call, and take and complete hundreds at a time.",
  targets: [
    { about: SQLITE, figure: "jobs/s", than: "BullMQ, fsync always", least: 1.2 },
    ...POSTGRES_PEERS.map(([about, than, , , least]) => ({ about, figure: "jobs/s", than, least })),
  ],
  async contestants({ scale, progress }) {
    const count = scale(20_000);
    const list = [];
    const stops = [];
    const enter = async (about, who, run) => {
      await run(scale(5_000));
      list.push({ about, who, measure: () => run(count) });
    };
    const laboroAt = async (about, more, inTurns) => {
      const laboro = await startLaboro(more);
      stops.push(() => laboro.stop());
      const worker = await laboro.echoWorker(SLOTS);
      await enter(about, "laboro", (size) => measured(laboro, worker, size, separately));
      if (inTurns !== undefined)
        await enter(inTurns, "laboro", (size) => measured(laboro, worker, size, thousandsAtATime));
    };
    const peer = async (about, who, kind, address, ask) => {
      const process = startModule(PEER, [kind, address]);
      stops.push(() => process.stop());
      await enter(about, who, async (size) => {
        const { "end to end/s": rate } = await process.ask({ [ask]: size });
        return { "jobs/s": rate };
      });
    };

    await laboroAt(SQLITE, []);
    if (redisInstalled() && installed("bullmq")) {
      const redis = await startRedis();
      stops.push(() => redis.stop());
      await peer(SQLITE, "BullMQ, fsync always", "bullmq", String(redis.port), "apart");
    } else progress("no Redis, or no packages: without BullMQ");
    if (postgresBinaries() !== undefined) {
      const postgres = await startPostgres();
      stops.push(() => postgres.stop());
      await laboroAt(POSTGRES, ["--store", await postgres.database("laboro")], TURNS);
      if (installed("pg"))
        for (const [about, who, kind, ask] of POSTGRES_PEERS)
          await peer(about, who, kind, await postgres.database(kind.replaceAll("-", "_")), ask);
      else progress("no packages: without graphile-worker and pg-boss");
    } else progress("no PostgreSQL");
    return {
      list,
      stop: async () => {
        for (const stop of stops.toReversed()) await stop();
      },
    };
  },
};

const submitted = async ({ client }, ends) => {
  const job = await client.submit({ recipe: CALL });
  ends.push(job.wait());
};

async function separately(laboro, count, ends) {
  let left = count;
  const lane = async () => {
    while (left-- > 0) await submitted(laboro, ends);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, lane));
}

async function thousandsAtATime(laboro, count, ends) {
  for (let left = count; left > 0; left -= 1_000)
    await Promise.all(Array.from({ length: Math.min(1_000, left) }, () => submitted(laboro, ends)));
}

async function measured(laboro, worker, count, submitAll) {
  const ends = [];
  const { seconds, cpu } = await metered({ broker: laboro.broker, worker }, async () => {
    await submitAll(laboro, count, ends);
    await Promise.all(ends);
  });
  const bad = (await Promise.all(ends)).filter((end) => end !== "succeeded").length;
  if (bad > 0 || ends.length !== count) throw new Error(`${bad} of ${ends.length} jobs did not succeed`);
  return { "jobs/s": count / seconds, "broker CPU µs": cpu.broker / count, "worker CPU µs": cpu.worker / count };
}
