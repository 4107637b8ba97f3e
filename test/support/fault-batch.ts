/**
 * A batch during which something goes wrong, and what came of it: one row of the table in docs/guide/operations.md.
 *
 * The batch is one job of many tasks, and small jobs that are submitted one after the other all the while. Each task leaves a trace and
 * writes output that is known beforehand, so that at the end everything can be compared byte by byte.
 */
import * as fs from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import type { Client, JobHandle } from "../../src/entries/client.js";
import { RunLog, resultsOf } from "./batch.js";
import { REPOSITORY } from "./launched.js";
import { again } from "./site.js";
import { sleep, until } from "./wait.js";

/** `npm run test:faults`: more tasks, more rounds, all faults. */
export const FULL = process.env.LABORO_FAULTS === "full";
export const TEST_MS = FULL ? 600_000 : 120_000;
/** Enough for a machine that has much else to do. */
const DEADLINE_MS = TEST_MS / 3;
/** Each is a job with a row of its own. */
const MAX_SMALL_JOBS = FULL ? 100 : 25;
const POLL_MS = FULL ? 5 : 25;

export interface FaultRow {
  readonly fault: string;
  readonly submissionsLost: number;
  readonly resultsLost: number;
  readonly outputsLost: number;
  readonly recordedTwice: number;
  readonly startedTwice: number;
  /** The longest time in which no task was started, where that was measured. */
  readonly pauseMs?: number;
  /** What laboro says about a loss that the damage itself explains. */
  readonly note?: string;
}

export interface FaultBatch {
  readonly fault: string;
  readonly tasks: number;
  readonly client: Client;
  /** Where the traces of the tasks are kept. */
  readonly dir: string;
  /** Tasks that may start twice: those that a lost worker held. None if absent. */
  readonly mayStartTwice?: boolean;
  /** What the processes said, for when something has gone wrong. */
  readonly said?: () => string;
}

/** Starts the batch, calls `fault` when a quarter of the tasks have run, waits for the end, and compares. */
export async function batchUnder(batch: FaultBatch, fault: (log: RunLog) => Promise<void>): Promise<void> {
  const { tasks, client, mayStartTwice = false } = batch;
  const log = new RunLog(join(batch.dir, `runs-${batch.fault.replaceAll(/\W+/g, "-")}`));
  const job = await client.submit({ recipe: log.recipe(OUTPUT_OF_TASK), count: tasks });
  await until("a quarter has run", () => log.count >= tasks / 4, DEADLINE_MS);
  const before = { recorded: await recordedIn(job), runs: log.count };
  const smallLog = new RunLog(`${log.path}-small`);
  const small = new SmallJobs(client, smallLog);
  const pauses = new Pauses(() => log.count + smallLog.count);
  let pauseMs = 0;
  try {
    await fault(log);
    expect(await within(job.wait())).toBe("succeeded");
    await small.end();
  } catch (cause) {
    console.log(`${batch.fault}: ${log.count} of ${tasks} tasks were started\n${batch.said?.() ?? ""}`);
    throw cause;
  } finally {
    pauseMs = await pauses.end();
    await small.end();
  }
  const main = await compare(job, tasks, outputOfTask);
  const starts = new Map<number, number>();
  for (const [task] of log.runs()) starts.set(task, (starts.get(task) ?? 0) + 1);
  const others = await small.compare();
  const row: FaultRow = {
    fault: batch.fault,
    submissionsLost: others.submissionsLost,
    resultsLost: main.resultsLost + others.resultsLost,
    outputsLost: main.outputsLost + others.outputsLost,
    recordedTwice: main.recordedTwice + others.recordedTwice,
    startedTwice: [...starts.values()].filter((count) => count > 1).length,
    pauseMs,
  };
  report(row);
  expect(row).toMatchObject({ submissionsLost: 0, resultsLost: 0, outputsLost: 0, recordedTwice: 0 });
  if (!mayStartTwice) expect(row.startedTwice).toBe(0);
  // Whatever is lost, a task with a recorded result is not started again.
  const later = log.runs().slice(before.runs);
  expect(later.filter(([task]) => before.recorded.has(task))).toEqual([]);
}

async function recordedIn(job: JobHandle): Promise<ReadonlySet<number>> {
  return new Set((await resultsOf(job)).map(({ index }) => index));
}

/** Prints the row, and keeps it for the table of `npm run test:faults`. */
export function report(row: FaultRow): void {
  const { fault, pauseMs, note, ...counts } = row;
  const pause = pauseMs === undefined ? "" : `, ${(pauseMs / 1000).toFixed(1)} s`;
  console.log(`${fault}: ${JSON.stringify(counts)}${pause}${note === undefined ? "" : `; ${note}`}`);
  if (!FULL) return;
  const dir = join(REPOSITORY, "test", "output");
  fs.mkdirSync(dir, { recursive: true });
  fs.appendFileSync(join(dir, "faults.jsonl"), `${JSON.stringify(row)}\n`);
}

/** One task in ten writes more than fits beside its result. */
export const OUTPUT_OF_TASK =
  'if [ $((LABORO_TASK % 10)) = 0 ]; then seq "$LABORO_TASK" 3000; else echo "task $LABORO_TASK"; fi; sleep 0.02';

export function outputOfTask(index: number): string {
  const number = index + 1;
  if (number % 10 !== 0) return `task ${number}\n`;
  const lines = Array.from({ length: Math.max(0, 3001 - number) }, (_, at) => `${number + at}\n`);
  return lines.join("");
}

interface Comparison {
  readonly resultsLost: number;
  readonly outputsLost: number;
  readonly recordedTwice: number;
}

async function compare(job: JobHandle, count: number, output: (index: number) => string): Promise<Comparison> {
  const results = await resultsOf(job);
  const succeeded = results.filter(({ state }) => state === "succeeded");
  const { counters } = await again(() => job.info());
  let outputsLost = 0;
  for (const { index } of succeeded) if ((await again(() => job.text(index))) !== output(index)) outputsLost++;
  return {
    resultsLost: count - new Set(succeeded.map(({ index }) => index)).size,
    outputsLost,
    recordedTwice: Math.max(succeeded.length, counters.succeeded) - count,
  };
}

/** Jobs of one task each. Only those count whose submission was acknowledged. */
class SmallJobs {
  readonly #client: Client;
  readonly #log: RunLog;
  readonly #acknowledged: { readonly job: JobHandle; readonly text: string }[] = [];
  readonly #submitting: Promise<void>;
  #over = false;

  constructor(client: Client, log: RunLog) {
    this.#client = client;
    this.#log = log;
    this.#submitting = this.#submit();
  }

  end(): Promise<void> {
    this.#over = true;
    return this.#submitting;
  }

  async compare(): Promise<Comparison & { readonly submissionsLost: number }> {
    const sum = { submissionsLost: 0, resultsLost: 0, outputsLost: 0, recordedTwice: 0 };
    for (const { job, text } of this.#acknowledged) {
      const known = await again(() => job.info()).catch(() => undefined);
      if (known === undefined) {
        sum.submissionsLost++;
        continue;
      }
      expect(await within(job.wait())).toBe("succeeded");
      const one = await compare(job, 1, () => `${text}\n`);
      sum.resultsLost += one.resultsLost;
      sum.outputsLost += one.outputsLost;
      sum.recordedTwice += one.recordedTwice;
    }
    return sum;
  }

  async #submit(): Promise<void> {
    for (let number = 1; !this.#over && this.#acknowledged.length < MAX_SMALL_JOBS; number++) {
      const text = `small job ${number}`;
      // Refused, or its answer was lost: nothing was promised.
      const job = await within(this.#client.submit({ recipe: this.#log.recipe(`echo '${text}'`) })).catch(
        () => undefined,
      );
      if (job !== undefined) this.#acknowledged.push({ job, text });
      await sleep(25);
    }
  }
}

/** The end of a batch that goes on is seen long before this. */
async function within<T>(promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("the batch does not end")), DEADLINE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

class Pauses {
  readonly #started: () => number;
  #over = false;
  #longest = 0;
  readonly #watching: Promise<void>;

  constructor(started: () => number) {
    this.#started = started;
    this.#watching = this.#watch();
  }

  async end(): Promise<number> {
    this.#over = true;
    await this.#watching;
    return this.#longest;
  }

  async #watch(): Promise<void> {
    let count = this.#started();
    let since = performance.now();
    while (!this.#over) {
      await sleep(POLL_MS);
      const now = performance.now();
      const next = this.#started();
      if (next === count) continue;
      this.#longest = Math.max(this.#longest, now - since);
      count = next;
      since = now;
    }
  }
}
