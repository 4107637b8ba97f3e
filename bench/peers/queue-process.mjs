/**
 * A peer's adding and working side: `queue-process.mjs KIND ADDRESS`. A queue offers
 *   add(count)              all durable when it resolves, while nothing is worked off
 *   work(done)              starts working; done() is called at each job's end; gives a function that stops it
 *   addOne()                adds one job while workers wait
 */
import { median } from "../lib/figures.mjs";

const QUEUES = {
  "graphile-batched": () => import("./graphile-queue.mjs").then(({ open }) => open(address, true)),
  graphile: () => import("./graphile-queue.mjs").then(({ open }) => open(address, false)),
  "pg-boss": () => import("./pg-boss-queue.mjs").then(({ open }) => open(address, 500)),
  "pg-boss-single": () => import("./pg-boss-queue.mjs").then(({ open }) => open(address, 1)),
  "pg-boss-work": () => import("./pg-boss-queue.mjs").then(({ openWork }) => openWork(address, 64)),
  bullmq: () => import("./bullmq-queue.mjs").then(({ open }) => open(address)),
  "bullmq-function": () => import("./bullmq-queue.mjs").then(({ open }) => open(address, "function")),
  "bullmq-threads": () => import("./bullmq-queue.mjs").then(({ open }) => open(address, "threads")),
  beanstalkd: () => import("./beanstalkd-queue.mjs").then(({ open }) => open(address)),
};
/** A queue that polls takes long over single jobs: a few are enough. */
const MAX_MS = 5_000;
/** Additions that wait for their answer at a time. */
const IN_FLIGHT = 100;
const [kind, address] = process.argv.slice(2);
const queue = QUEUES[kind]();

process.on("message", async ({ batch, single, apart }) => {
  try {
    const opened = await queue;
    if (batch !== undefined) process.send(await batches(opened, batch));
    else process.send(single === undefined ? await separately(opened, apart) : await singles(opened, single));
  } catch (cause) {
    process.send({ error: cause.stack });
  }
});
process.on("SIGTERM", () => process.exit(0));
process.on("disconnect", () => process.exit(0));

async function batches(opened, count) {
  const begin = performance.now();
  await opened.add(count);
  const added = performance.now();
  let left = count;
  let stop;
  await new Promise((resolve) => {
    stop = opened.work(() => {
      if (--left === 0) resolve();
    });
  });
  // A job counts as worked off when the server knows that it is: stopping waits for the last of that.
  await (await stop)();
  const end = performance.now();
  return {
    "added/s": (count * 1_000) / (added - begin),
    "worked off/s": (count * 1_000) / (end - added),
    "end to end/s": (count * 1_000) / (end - begin),
  };
}

/** Added one by one while others are worked off. */
async function separately(opened, count) {
  let undone = count;
  let unadded = count;
  let stop;
  const begin = performance.now();
  const done = new Promise((resolve) => {
    stop = opened.work(() => {
      if (--undone === 0) resolve();
    });
  });
  const lane = async () => {
    while (unadded-- > 0) await opened.addOne();
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, lane));
  await done;
  await (await stop)();
  return { "end to end/s": (count * 1_000) / (performance.now() - begin) };
}

async function singles(opened, times) {
  let finished = () => {};
  const stop = await opened.work(() => finished());
  const taken = [];
  const deadline = performance.now() + MAX_MS;
  for (let i = 0; i < times && performance.now() < deadline; i++) {
    const begin = performance.now();
    await new Promise((resolve, reject) => {
      finished = resolve;
      opened.addOne().catch(reject);
    });
    taken.push(performance.now() - begin);
  }
  await stop();
  return { "p50 ms": median(taken) };
}
