/** Ten thousand schedules: what they cost while they wait, and how long it takes until all have run that are due at once. */

import { inEachStore } from "../lib/each-store.mjs";
import { startLaboro } from "../lib/laboro.mjs";
import { cpuMicros } from "../lib/usage.mjs";

const WAIT_MS = 10_000;
const DAY_MS = 86_400_000;
/** Submissions that are under way at one time. */
const AT_ONCE = 50;
/** Never run: no worker is there. */
const job = { recipe: { kind: "command", argv: ["true"] } };

export const schedules = {
  name: "schedules",
  title: "10,000 schedules, in each store",
  note: "They wait for the same moment, and there is no worker. Idle CPU is that of the broker in 10 s, without any schedule and with all of them waiting. Then all are due at once: the time from that moment until each of them has its job.",
  targets: [],
  async contestants({ scale, progress }) {
    const count = scale(10_000);
    return inEachStore("schedules", (more) => measure(count, more), progress);
  },
};

async function measure(count, more) {
  const laboro = await startLaboro(more);
  try {
    const { client, broker } = laboro;
    const idleMs = async () => {
      await sleep(1_000);
      const before = cpuMicros(broker.pid);
      await sleep(WAIT_MS);
      // Microseconds a millisecond are milliseconds a second.
      return (cpuMicros(broker.pid) - before) / WAIT_MS;
    };
    const none = await idleMs();
    const start = Date.now() + DAY_MS;
    const begun = performance.now();
    await times(count, AT_ONCE, (i) => client.schedules.set(`s${i}`, { everyMs: DAY_MS, start, job }));
    const addSeconds = (performance.now() - begun) / 1_000;
    const all = await idleMs();
    // Soon, not in a day.
    const due = Date.now() + 5_000 + addSeconds * 4_000;
    await times(count, AT_ONCE, (i) => client.schedules.edit(`s${i}`, { start: due }));
    if (Date.now() > due) throw new Error("the schedules were due before all were set");
    await sleep(due - Date.now());
    while ((await client.ask("status", {})).jobs.waiting < count) await sleep(20);
    const seconds = (Date.now() - due) / 1_000;
    return {
      "added/s": count / addSeconds,
      "idle CPU ms/s, none": none,
      "idle CPU ms/s, all": all,
      "all have run, s": seconds,
    };
  } finally {
    await laboro.stop();
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function times(count, atOnce, act) {
  let next = 0;
  const lane = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}
