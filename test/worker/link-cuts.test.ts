/** Every position at which the link between worker and broker can be cut, or one of them killed. */
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { CuttableLink, type Event, type Fault, WINDOW } from "./cuttable-link.js";

/** Small outputs, none, and one of several windows, which does not go with its result. */
const TEXTS = ["first\n", "", "x".repeat(2 * WINDOW + 7), "second\n"];
const FAULTS: readonly Fault[] = [
  "cut",
  "half-open",
  "broker killed",
  "worker killed, spooled",
  "worker killed, not spooled",
];
/** Which event comes first where several could: what is late is on its way, or only in memory, at the cut. */
const ORDERS: readonly (readonly Event[])[] = [
  ["end", "up", "commit", "down"],
  ["down", "commit", "up", "end"],
  ["up", "end", "down", "commit"],
];
/** A second fault comes at most so many events after the first: JOIN, WELCOME, the first OUTPUT, CREDIT, DONE and ACK. */
const SECOND_WITHIN = 7;
const MAX_STEPS = 1_000;

const dir = fs.mkdtempSync(join(tmpdir(), "laboro-cuts-"));
afterAll(() => fs.rmSync(dir, { recursive: true, force: true }));
let places = 0;

interface Run {
  /** Events until the end, or until the last fault if it was not reached. */
  readonly steps: number;
  readonly faults: readonly string[];
  readonly runAgain: number;
}

/** Runs the tasks to their end; each fault happens after so many events since the one before. */
async function run(order: readonly Event[], fault: Fault, after: readonly number[]): Promise<Run> {
  const link = await CuttableLink.open(join(dir, String(places++)), TEXTS);
  const waiting = [...after];
  let steps = 0;
  for (let left = waiting.shift(); steps < MAX_STEPS; steps++) {
    if (left === 0) {
      await link.fail(fault);
      left = waiting.shift();
    }
    if (left !== undefined) left--;
    if (!(await link.step(order))) break;
  }
  const faults = steps === MAX_STEPS ? ["it does not end"] : await link.faults();
  await link.close();
  return { steps, faults, runAgain: link.runAgain };
}

/** All of them at once, as most of their time is spent on the disk. */
async function runAll(order: readonly Event[], fault: Fault, positions: readonly (readonly number[])[]): Promise<void> {
  const outcomes = await Promise.all(positions.map((after) => run(order, fault, after)));
  const lost = outcomes.flatMap(({ faults }, i) => faults.map((text) => `after ${positions[i]} events: ${text}`));
  const runAgain = outcomes.reduce((sum, outcome) => sum + outcome.runAgain, 0);
  console.log(
    `${fault} at ${positions.length} positions, ${order.join(" before ")}: outputs lost: ${lost.length}, run again: ${runAgain}`,
  );
  expect(lost).toEqual([]);
  // Only what a dead worker has lost runs again.
  if (!fault.startsWith("worker")) expect(runAgain).toBe(0);
}

const upTo = (last: number): number[] => Array.from({ length: last + 1 }, (_, i) => i);

describe.each(FAULTS)("%s", (fault) => {
  it.each(ORDERS)("loses no output at any position, events in the order %s, %s, %s, %s", async (...order) => {
    const { steps } = await run(order, fault, []);
    await runAll(
      order,
      fault,
      upTo(steps).map((at) => [at]),
    );
  });
});

it.each(["cut", "broker killed"] as const)(
  "loses no output if a second fault (%s) comes before it has recovered",
  async (fault) => {
    const [order = []] = ORDERS;
    const { steps } = await run(order, fault, []);
    await runAll(
      order,
      fault,
      upTo(steps).flatMap((first) => upTo(SECOND_WITHIN).map((second) => [first, second])),
    );
  },
);
