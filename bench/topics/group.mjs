/** Brokers on one PostgreSQL, beside the job queues that keep their jobs in the same server. */
import { fileURLToPath } from "node:url";
import { startModule } from "../lib/children.mjs";
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { installed } from "../peers/installed.mjs";
import { postgresBinaries, startPostgres } from "../peers/postgres.mjs";

const PEER = fileURLToPath(new URL("../peers/queue-process.mjs", import.meta.url));
const PEERS = [
  ["graphile-worker, batched", "graphile-batched", 2],
  ["pg-boss, batches of 500", "pg-boss", 1],
];

export const group = {
  name: "group",
  title: "Brokers on one PostgreSQL, 20,000 durable jobs, concurrency 64",
  note: "All of them on one server with its default settings, one after the other. With two brokers each has a worker, and all jobs are given to the first. Jobs are added in batches, then worked off; end to end counts both. All call a function for each job.",
  targets: PEERS.map(([than, , least]) => ({ figure: "end to end/s", than, least })),
  async contestants({ scale, progress }) {
    if (postgresBinaries() === undefined) throw new Error("no PostgreSQL is installed");
    const postgres = await startPostgres();
    const stops = [() => postgres.stop()];
    const count = scale(20_000);
    const about = `${count.toLocaleString("en")} jobs`;
    const list = [];
    const enter = async (who, batch) => {
      await batch(scale(2_000));
      list.push({ about, who, measure: () => batch(count) });
    };

    for (const brokers of [1, 2]) {
      const { first, stop } = await startGroup(postgres, brokers);
      stops.push(stop);
      const many = brokers === 1 ? "" : `, ${brokers} brokers`;
      await enter(`laboro${many}`, (size) => run(first, size));
    }
    if (installed("pg")) {
      for (const [who, kind] of PEERS) {
        const peer = startModule(PEER, [kind, postgres.url]);
        stops.push(() => peer.stop());
        await enter(who, (size) => peer.ask({ batch: size }));
      }
    } else progress("no packages: without graphile-worker and pg-boss");
    return {
      list,
      stop: async () => {
        for (const stop of stops.toReversed()) await stop();
      },
    };
  },
};

/** A database of its own, so many brokers on it, and a worker at each. */
async function startGroup(postgres, brokers) {
  const url = await postgres.database(`laboro_${brokers}`);
  const all = [];
  for (let i = 0; i < brokers; i++) {
    const laboro = await startLaboro(["--store", url]);
    await laboro.echoWorker(64 / brokers);
    all.push(laboro);
  }
  return { first: all[0], stop: () => Promise.all(all.map((laboro) => laboro.stop())) };
}

/** Handed in while nothing is worked off, then released, as the peers do it. */
async function run(laboro, count) {
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
}
