import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { expect, it } from "vitest";
import { JobId } from "../../../src/model/ids.js";
import { sizeOf } from "../../../src/model/ranges.js";
import { scaled } from "../../support/scale.js";
import { Broker } from "../suite/kit.js";
import { sqliteHarness } from "./harness.js";

const CHILD = new URL("./committing-child.mjs", import.meta.url).pathname;
const ROUNDS = scaled(4);

interface Acknowledged {
  readonly job: JobId;
  /** Tasks 0 .. next - 1 were acknowledged as recorded. */
  readonly next: number;
}

/** Kills the child after as many acknowledgements; reads on to the end of what it had said. */
async function killAfter(dir: string, size: number, lines: number): Promise<Acknowledged> {
  const child = spawn(process.execPath, [CHILD, dir, String(size)], { stdio: ["ignore", "pipe", "inherit"] });
  let seen = 0;
  let acknowledged: Acknowledged = { job: JobId(0), next: 0 };
  const closed = once(child, "close");
  for await (const line of createInterface({ input: child.stdout })) {
    const [job = 0, , last = 0] = line.split(" ").map(Number);
    acknowledged = { job: JobId(job), next: last + 1 };
    if (++seen === lines) child.kill("SIGKILL");
  }
  await closed;
  return acknowledged;
}

it("has every batch it acknowledged, each batch whole or not at all, and reports no damage, however it is killed", async () => {
  const { dir, handle, reported, dispose } = await sqliteHarness();
  let lost = 0;
  let checked = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const size = 1 + Math.floor(Math.random() * 100);
    const lines = 1 + Math.floor(Math.random() * 60);
    const { job, next } = await killAfter(dir, size, lines);
    expect(next).toBeGreaterThan(0);

    const broker = await Broker.at(handle());
    const { results } = await broker.store.results(job, { from: 0, limit: 1_000_000 });
    const there = new Set(results.map(({ index }) => index));
    for (let index = 0; index < next; index++) if (!there.has(index)) lost++;
    expect(results.length % size).toBe(0);
    expect(results.map(({ index }) => index)).toEqual(results.map((_, at) => at));
    expect((await broker.job({ id: job })).counters.succeeded).toBe(results.length);
    for (const index of [0, Math.floor(next / 2), next - 1]) {
      const { pieces } = await broker.store.output(job, index, { from: 0, limit: 100 });
      expect(pieces.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual([`output of ${index}`]);
    }
    const waiting = broker.held.taskRanges.filter(({ taskRange }) => taskRange.job === job);
    expect(waiting.reduce((sum, { taskRange }) => sum + sizeOf(taskRange), 0)).toBe(1_000_000 - results.length);
    checked += next;
    await broker.store.close();
  }
  console.log(`kill -9 in ${ROUNDS} rounds, ${checked} results acknowledged, lost: ${lost}`);
  expect(lost).toBe(0);
  expect(reported).toEqual([]);
  await dispose();
});
