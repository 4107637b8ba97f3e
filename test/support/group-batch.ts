/** A batch that a group of brokers works on while something goes wrong, and what came of it. */
import { expect } from "vitest";
import type { Client } from "../../src/entries/client.js";
import { account, lostOutputs, RunLog } from "./batch.js";
import { DEADLINE_MS, type GroupSite } from "./group-site.js";
import { sleep, until } from "./wait.js";

/** `npm run test:faults`: more tasks and more rounds. */
export const FULL = process.env.LABORO_FAULTS === "full";
export const TEST_MS = FULL ? 600_000 : 180_000;

/** Longer than this machine needs to go on with the next task when nothing is wrong. */
const POLL_MS = 5;

export interface BatchOptions {
  readonly what: string;
  readonly tasks: number;
  readonly client: Client;
  /** Some of it may run again, because a worker was lost with it or given up. */
  readonly mayRunTwice?: boolean;
}

/**
 * Submits tasks that leave a trace, lets something go wrong once a quarter of them have run, and waits for the end. Prints what was lost and for how long
 * nothing was started.
 */
export async function batchUnder(
  group: GroupSite,
  { what, tasks, client, mayRunTwice = false }: BatchOptions,
  fault: (log: RunLog) => Promise<void>,
): Promise<void> {
  const log = new RunLog(group.site.path(`runs-${what.replaceAll(/\W+/g, "-")}`));
  const job = await client.submit({ recipe: log.speakingRecipe("sleep 0.03"), count: tasks });
  await until("a quarter has run", () => log.count >= tasks / 4, DEADLINE_MS);
  const pauses = new Pauses(log);
  let longest = 0;
  try {
    await fault(log);
    expect(await within(job.wait())).toBe("succeeded");
  } catch (cause) {
    console.log(`${what}: ${log.count} of ${tasks} tasks were started\n${group.said()}`);
    throw cause;
  } finally {
    longest = await pauses.end();
  }
  const { results, lost, unrun, runTwice } = await account(client, job.id, tasks, log);
  const outputsLost = await lostOutputs(client, job.id, tasks);
  console.log(
    `${what}: ${tasks} tasks, lost: ${lost.length}, run twice: ${runTwice.length}, outputs lost: ${outputsLost.length}, ` +
      `longest pause: ${(longest / 1000).toFixed(1)} s`,
  );
  expect(results).toHaveLength(tasks);
  expect({ lost, unrun, outputsLost }).toEqual({ lost: [], unrun: [], outputsLost: [] });
  if (!mayRunTwice) expect(runTwice).toEqual([]);
}

/** The end of a batch that goes on is seen long before this. */
async function within<T>(promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("the batch does not end")), TEST_MS / 3);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** For how long nothing new is started. */
class Pauses {
  readonly #log: RunLog;
  #over = false;
  #longest = 0;
  readonly #watching: Promise<void>;

  constructor(log: RunLog) {
    this.#log = log;
    this.#watching = this.#watch();
  }

  async end(): Promise<number> {
    this.#over = true;
    await this.#watching;
    return this.#longest;
  }

  async #watch(): Promise<void> {
    let count = this.#log.count;
    let since = performance.now();
    while (!this.#over) {
      await sleep(POLL_MS);
      const now = performance.now();
      const next = this.#log.count;
      if (next === count) continue;
      this.#longest = Math.max(this.#longest, now - since);
      count = next;
      since = now;
    }
  }
}
