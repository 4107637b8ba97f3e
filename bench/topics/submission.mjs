/** Handing work in: how long it takes, and what it occupies while it waits and while it runs. */
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { median } from "../lib/figures.mjs";
import { CALL, startLaboro } from "../lib/laboro.mjs";
import { residentBytes, watchResident } from "../lib/usage.mjs";

const TEN = "array of ten";
const MILLION = "array of a million";
const ENTRIES = "100,000 entries of 64 B";
const RUN = "a million tasks that do nothing, run";
/** No worker is in it. */
const NOBODY = "nobody";
const TRUE = { kind: "command", argv: ["true"] };

export const submission = {
  name: "submission",
  title: "Submission, and what waiting work occupies",
  note: "Bytes on disk are those of the data directory, write-ahead log included. Memory is the broker's resident set. The million tasks are run by a link-level worker, which reports each as done when it arrives.",
  targets: [
    { about: MILLION, figure: "submit ms", beside: TEN, most: 1.2 },
    { about: ENTRIES, figure: "s", most: 0.5 },
  ],
  async contestants({ scale }) {
    const laboro = await startLaboro();
    await laboro.crowd(1, 2);
    await laboro.run({ recipe: CALL, count: 100 });
    const list = [
      { about: TEN, who: "laboro", measure: () => submits(laboro, 10, scale(100)) },
      { about: MILLION, who: "laboro", measure: () => submits(laboro, 1_000_000, scale(100)) },
      { about: ENTRIES, who: "laboro", measure: () => entries(scale(100_000)) },
      { about: RUN, who: "laboro", measure: () => memory(scale(1_000_000)) },
    ];
    return { list, stop: () => laboro.stop() };
  },
};

async function submits(laboro, count, times) {
  const taken = [];
  for (let i = 0; i < times; i++) {
    const begin = performance.now();
    const job = await laboro.client.submit({ recipe: TRUE, count, pool: NOBODY });
    taken.push(performance.now() - begin);
    await job.cancel();
  }
  return { "submit ms": median(taken) };
}

async function entries(count) {
  const laboro = await startLaboro();
  const lines = Array.from({ length: count }, (_, i) => String(i).padStart(64, "x"));
  const before = bytesIn(laboro.dir);
  const begin = performance.now();
  await laboro.client.submit({ recipe: TRUE, entries: lines, pool: NOBODY });
  const seconds = (performance.now() - begin) / 1_000;
  const bytes = bytesIn(laboro.dir) - before;
  await laboro.stop();
  return { s: seconds, "entries/s": count / seconds, "bytes per task": bytes / count };
}

async function memory(count) {
  const laboro = await startLaboro();
  await laboro.crowd(1, 2);
  await laboro.run({ recipe: CALL, count: 10_000 });
  const { pid } = laboro.broker;
  const before = residentBytes(pid);
  const held = await laboro.client.submit({ recipe: TRUE, count, pool: NOBODY });
  const waiting = residentBytes(pid);
  await held.cancel();
  const largest = watchResident(pid);
  await laboro.run({ recipe: CALL, count });
  const peak = largest();
  const after = residentBytes(pid);
  const disk = bytesIn(laboro.dir);
  await laboro.stop();
  return {
    "MB before": mega(before),
    "MB waiting": mega(waiting),
    "MB at most": mega(peak),
    "MB after": mega(after),
    "bytes on disk per finished task": disk / count,
  };
}

const mega = (bytes) => bytes / 1_048_576;

const bytesIn = (dir) =>
  readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
