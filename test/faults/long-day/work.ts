/** One round of work of every kind, and the account of it: every task once, every output byte for byte. */
import * as fs from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import {
  type Client,
  defineTask,
  type JobHandle,
  type Submission,
  type TaskResult,
} from "../../../src/entries/client.js";
import { RunLog, resultsOf } from "../../support/batch.js";
import { type FaultRow, OUTPUT_OF_TASK, outputOfTask } from "../../support/fault-batch.js";
import { DEADLINE_MS, type GroupSite } from "../../support/group-site.js";
import { LABORO, type Launched } from "../../support/launched.js";
import { again } from "../../support/site.js";
import type { Processes } from "./processes.js";

/** How many tasks of each kind a round has. */
export interface Counts {
  readonly batch: number;
  readonly numbered: number;
  readonly fuqClient: number;
  readonly scripts: number;
  readonly experiments: number;
  readonly calls: number;
  readonly typed: number;
  readonly limited: number;
  readonly delayed: number;
}

export type Losses = Omit<FaultRow, "fault" | "pauseMs" | "note">;
export const NO_LOSSES: Losses = {
  submissionsLost: 0,
  resultsLost: 0,
  outputsLost: 0,
  recordedTwice: 0,
  startedTwice: 0,
};

export const square = defineTask<{ n: number }, { n: number; square: number; text: string }>("square");
const LIMIT = 3;
const UNWANTED = 20;
const BROKER_AWAY = /LABORO_(BROKER_|STORE_UNAVAILABLE|LEASE_LOST)/;

/** What a job's tasks must have brought; undefined where their worker keeps the output. */
type Expected = (index: number, worker: string) => unknown;

export class Round {
  readonly log: RunLog;
  readonly #jobs: { readonly name: string; readonly job: JobHandle<unknown>; count: number; expected: Expected }[] = [];
  readonly #counts: Counts;
  readonly #client: Client;
  readonly #group: GroupSite;
  readonly #processes: Processes;
  readonly #dir: string;
  #cancelled: JobHandle | undefined;
  #experiments: Launched | undefined;
  /** Results at a time of which no task may be started later. */
  readonly #recorded: { readonly tasks: ReadonlySet<number>; readonly runs: number }[] = [];

  private constructor(group: GroupSite, processes: Processes, client: Client, counts: Counts, number: number) {
    this.#group = group;
    this.#processes = processes;
    this.#client = client;
    this.#counts = counts;
    this.#dir = group.site.path(`round-${number}`);
    fs.mkdirSync(this.#dir);
    this.log = new RunLog(join(this.#dir, "runs"));
  }

  static async begin(
    group: GroupSite,
    processes: Processes,
    client: Client,
    counts: Counts,
    number: number,
  ): Promise<Round> {
    const round = new Round(group, processes, client, counts, number);
    await round.#submitAll(number);
    return round;
  }

  /** Before a fault: what has a result now is not started again. */
  async note(): Promise<void> {
    const [batch] = this.#jobs;
    if (batch === undefined) return;
    const tasks = new Set((await resultsOf(batch.job as JobHandle)).map(({ index }) => index));
    // Counted after the results are read: their first runs are all in the log by then.
    this.#recorded.push({ tasks, runs: this.log.count });
  }

  /** Lets go what was held, and cancels what nobody wants. */
  async release(): Promise<void> {
    await again(() => this.#job("numbered").release(), DEADLINE_MS);
    await again(() => this.#cancelled?.cancel() ?? Promise.resolve(), DEADLINE_MS);
  }

  /** Waits until all of it has ended, and compares. */
  async end(): Promise<Losses> {
    const losses = { ...NO_LOSSES };
    const done = await this.#ended();
    for (const { name, job, count, expected } of this.#jobs) {
      const info = await again(() => job.info(), DEADLINE_MS).catch(() => undefined);
      if (info === undefined) {
        losses.submissionsLost++;
        continue;
      }
      expect([name, info.state, info.reason]).toEqual([name, "succeeded", undefined]);
      const results = await again(() => followed(job), DEADLINE_MS);
      losses.resultsLost += count - new Set(results.map(({ index }) => index)).size;
      losses.recordedTwice += Math.max(results.length, info.counters.succeeded) - count;
      for (const { index, worker, value, output } of results) {
        const right = expected(index, worker);
        if (right === undefined) continue;
        const text = async (): Promise<string> =>
          output === undefined
            ? again(() => job.text(index), DEADLINE_MS)
            : output.map(({ bytes }) => Buffer.from(bytes).toString()).join("");
        // A program returns no value: its output is compared.
        const found = Buffer.isBuffer(value) ? await text() : value;
        if (JSON.stringify(found) === JSON.stringify(right)) continue;
        console.log(`${name}, task ${index} of ${worker}: ${shown(found)} is not ${shown(right)}`);
        losses.outputsLost++;
      }
    }
    const cancelled = await again(() => this.#cancelled?.info() ?? Promise.reject(), DEADLINE_MS);
    expect([cancelled.state, cancelled.counters.succeeded + cancelled.counters.cancelled]).toEqual([
      "cancelled",
      UNWANTED,
    ]);
    losses.outputsLost += done;
    losses.startedTwice = this.#startedTwice();
    this.#checkConcurrency();
    return losses;
  }

  /** How many outputs of the experiments are missing or wrong. */
  async #ended(): Promise<number> {
    for (const { name, job } of this.#jobs) {
      const end = await again(() => job.wait({ timeoutMs: 5 * DEADLINE_MS }), DEADLINE_MS);
      expect([name, end]).toEqual([name, "succeeded"]);
    }
    // A broker that is away may end it; the same command goes on where it was.
    for (;;) {
      await this.#experiments?.ended();
      if (!BROKER_AWAY.test(this.#experiments?.said ?? "")) break;
      this.#startExperiments();
    }
    expect([this.#experiments?.exitCode, this.#experiments?.said]).toEqual([0, expect.stringContaining("Done!")]);
    let wrong = 0;
    for (let i = 0; i < this.#counts.experiments; i++) {
      const file = join(this.#dir, "study/outputs", `e${i}.res`);
      if (!fs.existsSync(file) || !fs.readFileSync(file, "utf8").includes(`RES:value ${i}\n`)) {
        console.log(`${file} is missing or wrong`);
        wrong++;
      }
    }
    return wrong;
  }

  #startedTwice(): number {
    const starts = new Map<number, number>();
    const runs = this.log.runs();
    for (const [task] of runs) starts.set(task, (starts.get(task) ?? 0) + 1);
    for (const { tasks, runs: before } of this.#recorded)
      expect(runs.slice(before).filter(([task]) => tasks.has(task))).toEqual([]);
    for (const kind of ["numbered", "fuqClient"] as const) {
      const numbers = fs.readFileSync(this.#notes(kind), "utf8").trim().split("\n");
      expect(new Set(numbers).size).toBe(this.#counts[kind]);
    }
    return [...starts.values()].filter((count) => count > 1).length;
  }

  /** What is limited runs at one worker, which lives as long as the day: its beginnings and ends are counted. */
  #checkConcurrency(): void {
    let [running, most] = [0, 0];
    for (const line of fs.readFileSync(join(this.#dir, "limited"), "utf8").trim().split("\n")) {
      running += line === "+" ? 1 : -1;
      most = Math.max(most, running);
    }
    expect([running, most <= LIMIT]).toEqual([0, true]);
  }

  #job(name: string): JobHandle {
    const found = this.#jobs.find((one) => one.name === name);
    if (found === undefined) throw new Error(`no job ${name}`);
    return found.job as JobHandle;
  }

  async #submitAll(round: number): Promise<void> {
    const counts = this.#counts;
    const client = this.#client;
    const submit = async (name: string, count: number, job: Submission, expected: Expected): Promise<void> => {
      const unique = { idempotencyKey: `${name.replace(" ", "-")}-${round}` };
      const submission = { name, count, crashLimit: 50, ...unique, ...job };
      const handle = await again(() => client.submit(submission, { timeoutMs: DEADLINE_MS }), DEADLINE_MS);
      this.#jobs.push({ name, job: handle, count, expected });
    };
    const ours = { tags: ["ours"] };
    await submit("batch", counts.batch, { recipe: this.log.recipe(OUTPUT_OF_TASK), held: true, ...ours }, (index) =>
      outputOfTask(index),
    );
    // fuq keeps the output of its tasks in files.
    const numbered = (index: number, worker: string) =>
      /fuq|127\.0\.0\.1|:/.test(worker) ? undefined : `number ${index + 1}\n`;
    const dir = this.#dir;
    const recipe = { kind: "command", argv: [this.#numbered("numbered"), "{#}"], placeholders: true, dir } as const;
    await submit("numbered", counts.numbered, { recipe, held: true }, numbered);
    const scripts = { kind: "script", content: Buffer.from("echo RES:done\nseq 1 500\n"), type: ".sh" } as const;
    const lines = Array.from({ length: 500 }, (_, i) => `${i + 1}\n`).join("");
    await submit("scripts", counts.scripts, { recipe: scripts }, () => `RES:done\n${lines}`);
    const call = { kind: "call", service: "rr.reverse", body: Buffer.from("drawer") } as const;
    await submit("calls", counts.calls, { recipe: call, retries: 100, priority: 1 }, () => "reward");
    const inputs = Array.from({ length: counts.typed }, (_, n) => ({ n }));
    const options = { key: `typed-${round}`, name: "typed", crashLimit: 50, timeoutMs: DEADLINE_MS };
    const typed = await again(() => client.addMany(square, inputs, options), DEADLINE_MS);
    this.#jobs.push({
      name: "typed",
      job: typed,
      count: counts.typed,
      expected: (n) => ({ n, square: n * n, text: "ü".repeat(n % 50) }),
    });
    const limited = join(dir, "limited");
    const line = `echo + >> ${limited}; sleep 0.1; echo - >> ${limited}`;
    const counted = { kind: "command", argv: ["/bin/sh", "-c", line] } as const;
    await submit("limited", counts.limited, { recipe: counted, limits: ["api"], tags: ["steady"] }, () => "");
    const echo = { kind: "command", argv: ["echo", "later"] } as const;
    for (let i = 0; i < counts.delayed; i++)
      await submit(`delayed ${i}`, 1, { recipe: echo, delayMs: 500 + 300 * i, ...ours }, () => "later\n");
    const after = this.#jobs.map(({ job }) => ({ job: job.id }));
    await submit("last", 1, { recipe: echo, after, ...ours }, () => "later\n");
    const unwanted = { recipe: echo, count: UNWANTED, held: true, idempotencyKey: `unwanted-${round}` };
    this.#cancelled = await again(() => client.submit(unwanted, { timeoutMs: DEADLINE_MS }), DEADLINE_MS);
    await this.#fuqClient();
    this.#startExperiments();
    await again(() => this.#job("batch").release(), DEADLINE_MS);
  }

  /** As the original's command line does. */
  async #fuqClient(): Promise<void> {
    const command = this.#numbered("fuqClient");
    const place = { working_dir: this.#dir, logging_dir: this.#dir, command };
    const count = this.#counts.fuqClient;
    const auth = { password: this.#processes.password("a"), client: "day" };
    const { url } = this.#group.access("a");
    const answer = await fetch(`${url}/client/job/new`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ auth, msg: { name: "fuqClient", num_tasks: count, ...place } }),
    });
    const { job_id } = (await answer.json()) as { job_id: number };
    this.#jobs.push({ name: "fuqClient", job: this.#client.job(job_id), count, expected: () => undefined });
  }

  #startExperiments(): void {
    const base = join(this.#dir, "study");
    fs.mkdirSync(join(base, "runs"), { recursive: true });
    for (let i = 0; i < this.#counts.experiments; i++)
      fs.writeFileSync(join(base, "runs", `e${i}.sh`), `sleep 0.05\necho "RES:value ${i}"\n`);
    const url = join(this.#dir, "url");
    const { url: address, token } = this.#group.access("b");
    fs.writeFileSync(url, address.replace("://", `://${token}@`), { mode: 0o600 });
    const args = [LABORO, "experiments", base, "--broker", `@${url}`, "-q"];
    this.#experiments = this.#group.site.launch("experiments", args, { env: { HOME: this.#dir } });
  }

  #notes(kind: "numbered" | "fuqClient"): string {
    return join(this.#dir, `${kind}.notes`);
  }

  /** A command that notes its number. */
  #numbered(kind: "numbered" | "fuqClient"): string {
    const command = join(this.#dir, `${kind}.sh`);
    fs.writeFileSync(command, `#!/bin/sh\nsleep 0.02\necho "$1" >> '${this.#notes(kind)}'\necho "number $1"\n`);
    fs.chmodSync(command, 0o755);
    return command;
  }
}

/** With their output where that is small. */
async function followed(job: JobHandle<unknown>): Promise<TaskResult<unknown>[]> {
  const results: TaskResult<unknown>[] = [];
  for await (const result of job.results({ follow: true })) if (result.state === "succeeded") results.push(result);
  return results;
}

const shown = (value: unknown): string => JSON.stringify(value).slice(0, 100);
