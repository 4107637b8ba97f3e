/** A million delayed jobs in one store. Takes a minute: with LABORO_FAULTS=full, or LABORO_TEST_SCALE=10 and more. */
import { expect, it } from "vitest";
import { JobId } from "../../../src/model/ids.js";
import type { Write } from "../../../src/model/store.js";
import { Broker, NOW, newRangeId, request } from "../suite/kit.js";
import { sqliteHarness } from "./harness.js";

const FULL = process.env.LABORO_FAULTS === "full" || Number(process.env.LABORO_TEST_SCALE ?? 1) >= 10;
const COUNT = 1_000_000;
const IN_BATCH = 10_000;
/** How long a promotion of the earliest, or a reading, may take on a slow machine. */
const SOON_MS = 2_000;

const MIB = 2 ** 20;

it.skipIf(!FULL)(
  "a million delayed jobs fit: they cost nothing until due, also after a restart, and the earliest is found at once (needs LABORO_FAULTS=full)",
  async () => {
    const harness = await sqliteHarness();
    let broker = await Broker.at(harness.handle());
    const memory = (): number => process.memoryUsage().rss / MIB;
    const spent: string[] = [];
    const timed = async <T>(what: string, act: () => Promise<T>): Promise<readonly [T, number]> => {
      const begun = performance.now();
      const result = await act();
      const ms = performance.now() - begun;
      spent.push(`${what} ${ms.toFixed(0)} ms`);
      return [result, ms];
    };
    try {
      const before = memory();
      await timed("storing", async () => {
        for (let first = 0; first < COUNT; first += IN_BATCH) {
          // The later ones are stored first.
          const writes = Array.from({ length: IN_BATCH }, (_, at): Write => {
            const spec = request({ count: 1, notBefore: NOW + COUNT - first - at });
            return { op: "submit", job: spec, lease: 0, rangeId: newRangeId() };
          });
          await broker.store.commit(writes, NOW);
        }
      });
      const stored = memory() - before;
      await broker.store.close();
      const [reopened, openMs] = await timed("opening", () => Broker.at(harness.handle()));
      broker = reopened;
      expect(broker.held.jobs).toEqual([]);
      expect(openMs).toBeLessThan(SOON_MS);
      const [next, nextMs] = await timed("finding the first", () => broker.store.nextDelayed());
      expect(next).toEqual({ clock: NOW + 1 });
      expect(nextMs).toBeLessThan(SOON_MS);
      const [count] = await timed("counting", () => broker.store.delayedCount());
      expect(count).toBe(COUNT);
      const due = { op: "promote", clock: NOW + 1_000, steady: 0, max: 1_000 } as const;
      const [promoted, promoteMs] = await timed("promoting 1,000", () => broker.write(due));
      expect(promoted.jobs.map(({ id }) => id)).toEqual(Array.from({ length: 1_000 }, (_, at) => JobId(COUNT - at)));
      expect(promoteMs).toBeLessThan(SOON_MS);
      expect(await broker.store.nextDelayed()).toEqual({ clock: NOW + 1_001 });
      const bytes = (await broker.store.bytesUsed()) / MIB;
      console.log(
        `a million delayed jobs: ${spent.join(", ")}; memory +${stored.toFixed(0)} MiB, file ${bytes.toFixed(0)} MiB`,
      );
    } finally {
      await broker.store.close();
      await harness.dispose();
    }
  },
  1_800_000,
);
