/**
 * What `laboro run` costs, in counts. Times change with the machine; counts hardly do. A budget is the largest
 * count of twenty runs, half of them with busy cores, and a fifth more where it depends on what happens to be sent together. A change that needs
 * less lowers the budget; a change that needs more gives its reason here.
 *
 * Syncs of a single task: 30 at first; 3 more since files with tokens and the note of the last commit are synced, and locks are not; fewer
 * since small output is stored with its result and an embedded worker has no spool.
 * Modules: 320 at first; 20 more since `run` relays output, tells tasks by number, checks its data directory and reads shell lines; 12 more
 * since connections and operations are bounded, damage is looked for, and it is recorded what was printed; 4 more since small output is
 * stored with its result and a slot's shell runs commands itself.
 */
import { describe, expect, it } from "vitest";
import { type Counted, type CountedRun, countedRun, hasStrace, tracedRun } from "./calls.js";

/** What a client asks of the broker. */
const ASKS: readonly Counted[] = [["client/link.js", "sendAndWait"]];
const ENCODED: readonly Counted[] = [["protocols/laboro/codec.js", "encodeMessage"]];
const SCANNED: readonly Counted[] = [["protocols/laboro/codec-scan.js", "scan"]];
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

interface Budget {
  readonly asks: number;
  readonly encoded: number;
  readonly scanned: number;
  readonly commits: number;
  readonly syncs: number;
  readonly opened: number;
  readonly modules: number;
}

const costs = ({ calls, modules }: CountedRun): Budget => ({
  asks: calls(...ASKS),
  encoded: calls(...ENCODED),
  scanned: calls(...SCANNED),
  commits: calls(...COMMITS),
  syncs: calls(...SYNCS),
  opened: calls(...OPENED),
  modules,
});

function expectWithin(cost: Budget, budget: Budget): void {
  const over = Object.entries(budget).filter(([name, most]) => cost[name as keyof Budget] > most);
  expect(over, `over budget: ${JSON.stringify(cost)}`).toEqual([]);
}

const ONE = ["run", "echo {}", ":::", "a"];
const MANY = ["run", "--array", "1-500", "echo {}"];

describe("laboro run 'echo {}' ::: a", () => {
  it("stays within its budget", () => {
    const run = countedRun(ONE);
    expect([run.status, run.stdout]).toEqual([0, "a\n"]);
    expectWithin(costs(run), {
      asks: 12,
      encoded: 38,
      scanned: 76,
      commits: 3,
      syncs: 12,
      opened: 32,
      modules: 356,
    });
  });

  it.skipIf(!hasStrace)("syncs and opens no more files than that, SQLite included", () => {
    const run = tracedRun(ONE, ["fsync", "fdatasync", "openat"]);
    expect([run.status, run.stdout]).toEqual([0, "a\n"]);
    expect(run.lines.filter((line) => /\bf(data)?sync\(/.test(line)).length).toBeLessThanOrEqual(26);
  });
});

describe("laboro run --array 1-500 'echo {}'", () => {
  it("stays within its budget", () => {
    const run = countedRun(MANY);
    expect([run.status, run.stdout.split("\n").length]).toEqual([0, 501]);
    expectWithin(costs(run), {
      asks: 760,
      encoded: 2_400,
      scanned: 3_900,
      commits: 116,
      syncs: 12,
      opened: 320,
      modules: 356,
    });
  });

  it.skipIf(!hasStrace)("syncs no more often than that, SQLite included", () => {
    const run = tracedRun(MANY, ["fsync", "fdatasync"]);
    expect(run.status).toBe(0);
    expect(run.lines.filter((line) => /\bf(data)?sync\(/.test(line)).length).toBeLessThanOrEqual(150);
  });
});
