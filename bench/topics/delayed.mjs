/** A hundred thousand delayed jobs: what they cost while they wait, and how long it takes to start all that are due in one second. */

import { inEachStore } from "../lib/each-store.mjs";
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { cpuMicros, residentBytes } from "../lib/usage.mjs";

const WAIT_MS = 5_000;
/** Submissions that are under way at one time. */
const AT_ONCE = 200;
const SLOTS = 64;

export const delayed = {
  name: "delayed",
  title: "100,000 delayed jobs, due within one second, in each store",
  note: "No-op jobs of one task, each with a time of its own within that second, and one worker with 64 slots, which calls a function. Memory and idle CPU are those of the broker: without jobs, and with all of them waiting. The last column is the time from the first moment until the last job has ended.",
  // What waits costs no more than a broker without jobs, give or take a reading.
  targets: [
    { about: "SQLite", figure: "idle CPU ms/s, all", most: 5 },
    { about: "PostgreSQL", figure: "idle CPU ms/s, all", most: 10 },
  ],
  async contestants({ scale, progress }) {
    const count = scale(100_000);
    return inEachStore("delayed", (more) => measure(count, more), progress);
  },
};

async function measure(count, more) {
  const laboro = await startLaboro(more);
  try {
    const { client, broker } = laboro;
    const idle = async () => {
      await sleep(1_000);
      const before = cpuMicros(broker.pid);
      await sleep(WAIT_MS);
      return { cpu: (cpuMicros(broker.pid) - before) / WAIT_MS, bytes: residentBytes(broker.pid) };
    };
    const none = await idle();
    const due = Date.now() + 20_000 + count;
    const begun = performance.now();
    await times(count, AT_ONCE, (i) => client.submit({ recipe: CALL, at: due + Math.floor((1_000 * i) / count) }));
    const addSeconds = (performance.now() - begun) / 1_000;
    const all = await idle();
    await laboro.echoWorker(SLOTS);
    if (Date.now() > due) throw new Error("the jobs were due before all were stored");
    await sleep(due - Date.now());
    while ((await client.jobs({ state: ["open"], limit: 1 })).jobs.length > 0) await sleep(50);
    const seconds = (Date.now() - due) / 1_000;
    return {
      "stored/s": count / addSeconds,
      "idle CPU ms/s, none": none.cpu,
      "idle CPU ms/s, all": all.cpu,
      "memory MiB, none": none.bytes / 2 ** 20,
      "memory MiB, all": all.bytes / 2 ** 20,
      "all have ended, s": seconds,
    };
  } finally {
    await laboro.stop();
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));

async function times(count, atOnce, act) {
  let next = 0;
  const lane = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}
