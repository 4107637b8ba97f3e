/** A batch of short commands that leave a trace of every run, and the account of it at the end. */
import * as fs from "node:fs";
import type { Client, JobHandle, Submission, TaskResult } from "../../src/entries/client.js";
import { again } from "./site.js";

/** Every run appends its index and attempt to this file, in one write. */
export class RunLog {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
    fs.writeFileSync(path, "");
  }

  /** Commands that do nothing but leave their trace. */
  recipe(rest = ""): Submission["recipe"] {
    const line = `echo "$((LABORO_TASK - 1)) $LABORO_ATTEMPT" >> '${this.path}'${rest === "" ? "" : `; ${rest}`}`;
    return { kind: "command", argv: ["/bin/sh", "-c", line] };
  }

  /** [task, attempt] in the order of running. */
  runs(): [task: number, attempt: number][] {
    const lines = fs.readFileSync(this.path, "utf8").split("\n").slice(0, -1);
    return lines.map((line) => line.split(" ").map(Number) as [number, number]);
  }

  /** As `recipe`; each task also writes its own text to standard output. */
  speakingRecipe(rest = ""): Submission["recipe"] {
    return this.recipe(`echo "output of $((LABORO_TASK - 1))"${rest === "" ? "" : `; ${rest}`}`);
  }

  get count(): number {
    let lines = 0;
    for (const byte of fs.readFileSync(this.path)) if (byte === 10) lines++;
    return lines;
  }
}

export interface Account {
  readonly results: readonly TaskResult[];
  /** Tasks without exactly one result that says succeeded. */
  readonly lost: readonly number[];
  /** Tasks that never left a trace. */
  readonly unrun: readonly number[];
  readonly runTwice: readonly number[];
}

export async function resultsOf(job: JobHandle): Promise<TaskResult[]> {
  return again(async () => {
    const results: TaskResult[] = [];
    for await (const result of job.results()) results.push(result);
    return results;
  });
}

/** The text that a task of `speakingRecipe` writes. */
const spokenText = (index: number): string => `output of ${index}\n`;

/** Outputs read at one time. */
const READERS = 32;

/** Tasks of `speakingRecipe` whose stored output is not exactly what they wrote. */
export async function lostOutputs(client: Client, job: number, count: number): Promise<number[]> {
  const lost: number[] = [];
  let next = 0;
  const read = async (): Promise<void> => {
    for (let index = next++; index < count; index = next++)
      if ((await again(() => client.job(job).text(index))) !== spokenText(index)) lost.push(index);
  };
  await Promise.all(Array.from({ length: READERS }, read));
  return lost.sort((a, b) => a - b);
}

export async function account(client: Client, job: number, count: number, log?: RunLog): Promise<Account> {
  const results = await resultsOf(client.job(job));
  const recorded = new Map<number, number>();
  for (const { index, state } of results) {
    if (state === "succeeded") recorded.set(index, (recorded.get(index) ?? 0) + 1);
  }
  const ran = new Map<number, number>();
  for (const [task] of log?.runs() ?? []) ran.set(task, (ran.get(task) ?? 0) + 1);
  const all = Array.from({ length: count }, (_, index) => index);
  return {
    results,
    lost: all.filter((index) => recorded.get(index) !== 1),
    unrun: log === undefined ? [] : all.filter((index) => !ran.has(index)),
    runTwice: all.filter((index) => (ran.get(index) ?? 0) > 1),
  };
}
