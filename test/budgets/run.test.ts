/**
 * What `laboro run` costs, in counts. Times change with the machine; counts hardly do. On a busy machine more is sent by itself and
 * stored by itself, never less: the smallest count of up to ten runs is compared. A change that needs less lowers the budget; a change
 * that needs more gives its reason here.
 *
 * Syncs of a single task: 30 at first; 3 more since files with tokens and the note of the last commit are synced, and locks are not; fewer
 * since small output is stored with its result and an embedded worker has no spool; 8 fewer since a new database is made with one sync.
 * Files of a single task: one more since a worker looks for the limit of the machine's memory.
 * Modules: 320 at first; 20 more since `run` relays output, tells tasks by number, checks its data directory and reads shell lines; 12 more
 * since connections and operations are bounded, damage is looked for, and it is recorded what was printed; 2 more since small output is
 * stored with its result and a slot's shell runs commands itself; 12 more since jobs are followed and messages pass in memory. No ask is
 * made for a task, and no message to a worker or about a task becomes bytes: what is encoded is the input of the asks.
 */
import { describe, expect, it } from "vitest";
import { type Counted, type CountedRun, countedRun, hasStrace, tracedRun } from "./calls.js";

/** What a client asks of the broker. */
const ASKS: readonly Counted[] = [["client/link.js", "sendAndWait"]];
const ENCODED: readonly Counted[] = [["protocols/laboro/codec.js", "encodeMessage"]];
const SCANNED: readonly Counted[] = [["protocols/laboro/codec-fields.js", "scan"]];
/** Each waits for the disk once. */
const COMMITS: readonly Counted[] = [["store/sqlite/engine.js", "commit"]];
/** Besides SQLite's own: output, spool, names of new files. */
const SYNCS: readonly Counted[] = [
  ["node:fs", "fsyncSync"],
  ["node:fs", "fdatasyncSync"],
  ["node:fs", "fdatasync"],
];
const OPENED: readonly Counted[] = [
  ["node:fs", "openSync"],
  ["node:fs", "open"],
];

type Budget = {
  readonly asks: number;
  readonly encoded: number;
  readonly scanned: number;
  readonly commits: number;
  readonly syncs: number;
  readonly opened: number;
  readonly modules: number;
};

const costs = ({ calls, modules }: CountedRun): Budget => ({
  asks: calls(...ASKS),
  encoded: calls(...ENCODED),
  scanned: calls(...SCANNED),
  commits: calls(...COMMITS),
  syncs: calls(...SYNCS),
  opened: calls(...OPENED),
  modules,
});

const TRIES = 10;

/** Runs until each count was within its budget once. */
function expectWithin<T extends Record<string, number>>(budget: T, run: () => T): void {
  const least: Record<string, number> = {};
  const over = (): string[] => Object.keys(budget).filter((name) => (least[name] ?? 0) > (budget[name] ?? 0));
  for (let tries = 0; tries < TRIES && (tries === 0 || over().length > 0); tries++) {
    for (const [name, count] of Object.entries(run())) least[name] = Math.min(least[name] ?? count, count);
  }
  expect(over(), `over budget: ${JSON.stringify(least)}`).toEqual([]);
}

const ONE = ["run", "echo {}", ":::", "a"];
const MANY = ["run", "--keep-order", "--array", "1-500", "echo {}"];

function counted(args: readonly string[], output: string): Budget {
  const run = countedRun(args);
  expect([run.status, run.stdout]).toEqual([0, output]);
  return costs(run);
}

function traced(args: readonly string[], output: string): { syncs: number } {
  const run = tracedRun(args, ["fsync", "fdatasync"]);
  expect([run.status, run.stdout]).toEqual([0, output]);
  return { syncs: run.lines.filter((line) => /\bf(data)?sync\(/.test(line)).length };
}

describe("laboro run 'echo {}' ::: a", () => {
  it("stays within its budget", () => {
    // 345 modules where the task ends before the main listener opens, which a busy machine has no time for.
    const budget = { asks: 3, encoded: 3, scanned: 6, commits: 3, syncs: 10, opened: 29, modules: 360 };
    expectWithin(budget, () => counted(ONE, "a\n"));
  });

  it.skipIf(!hasStrace)("syncs no more often than that, SQLite included (needs strace)", () => {
    expectWithin({ syncs: 18 }, () => traced(ONE, "a\n"));
  });
});

describe("laboro run --keep-order --array 1-500 'echo {}'", () => {
  const output = Array.from({ length: 500 }, (_, i) => `${i + 1}\n`).join("");

  it("stays within its budget", () => {
    const budget = { asks: 4, encoded: 4, scanned: 8, commits: 80, syncs: 12, opened: 100, modules: 320 };
    expectWithin(budget, () => counted(MANY, output));
  });

  it.skipIf(!hasStrace)("syncs no more often than that, SQLite included (needs strace)", () => {
    expectWithin({ syncs: 100 }, () => traced(MANY, output));
  });
});
