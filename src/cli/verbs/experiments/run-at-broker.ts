/**
 * A folder of experiments at a running broker: each is a job with its script, for any worker that runs scripts, laboro's own or a runner
 * connected to the broker's runexp listener. Killed and started again, it collects what the broker has done meanwhile.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { LOCAL_DATA } from "../../../base/files/local-data.js";
import type { Client, JobHandle } from "../../../client/client.js";
import type { TaskResult } from "../../../model/outcome.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import type { Experiment } from "../../../protocols/runexp/broker/experiments.js";
import { ResFile, type ResFileOptions } from "../../../protocols/runexp/broker/result-file.js";
import type { Aftermath } from "../../../protocols/runexp/experiments/aftermath.js";
import { readScript } from "../../../protocols/runexp/experiments/folder.js";
import type { ProgressOutput } from "../../../protocols/runexp/experiments/progress-output.js";
import { bytesOf, DEFAULT_GROUP, displayName, type Status, toLatin1 } from "../../../protocols/runexp/messages.js";
import { resStatusOf, toWaitStatus, writeResHeader } from "../../../protocols/runexp/res-text.js";
import { longDate } from "../../../protocols/runexp/runner/dates.js";
import { type BrokerChoice, withBroker } from "../../lib/broker-connection.js";
import { EXIT } from "../../lib/failures.js";
import { printNotice } from "../../lib/print.js";

export interface BrokerRun {
  readonly all: readonly Experiment[];
  readonly remaining: readonly Experiment[];
  readonly aftermath: Aftermath;
  readonly screen: ProgressOutput;
  readonly runs: string;
  readonly outputs: string;
  readonly group: string;
}

/** Temporary files of results, beside what a run with its own broker may have left. */
const TEMP_DIR = "fetched";
/** Jobs that are searched, submitted and waited for at one time. */
const CONCURRENCY = 64;

export function runAtBroker(run: BrokerRun, choice: BrokerChoice): Promise<number> {
  const dataDir = join(run.outputs, LOCAL_DATA);
  const folder = join(dataDir, TEMP_DIR);
  mkdirSync(folder, { recursive: true });
  return withBroker(choice, async (client) => {
    try {
      return await new BrokerExperiments(client, run, toLatin1(folder)).run();
    } finally {
      run.aftermath.save();
      rmSync(folder, { recursive: true, force: true });
      if (readdirSync(dataDir).length === 0) rmdirSync(dataDir);
    }
  });
}

class BrokerExperiments {
  readonly #client: Client;
  readonly #run: BrokerRun;
  readonly #target: ResFileOptions;
  #done: number;
  #failed = 0;
  #lost = 0;

  constructor(client: Client, run: BrokerRun, drafts: string) {
    this.#client = client;
    this.#run = run;
    this.#target = { outputs: toLatin1(run.outputs), drafts };
    this.#done = run.all.length - run.remaining.length;
  }

  async run(): Promise<number> {
    const { remaining, screen } = this.#run;
    const jobs: { readonly experiment: Experiment; readonly job: JobHandle }[] = [];
    // All are submitted first: the broker then has them even if this process is killed.
    await forEachConcurrently(remaining, async (experiment) =>
      jobs.push({ experiment, job: await this.#jobOf(experiment) }),
    );
    screen.line("All jobs were spawned.");
    await forEachConcurrently(jobs, ({ experiment, job }) => this.#collect(experiment, job));
    if (this.#lost > 0)
      printNotice(`${this.#lost} of ${remaining.length} experiments were cancelled, or their workers were lost`);
    if (this.#failed > 0)
      printNotice(`${this.#failed} of ${remaining.length} experiments failed; the same command runs them again`);
    screen.line("Done!");
    return this.#failed + this.#lost > 0 ? EXIT.failed : EXIT.ok;
  }

  /** The job that an earlier run submitted for the same script, unless its result was fetched already. */
  async #jobOf({ name, kind, path }: Experiment): Promise<JobHandle> {
    const { runs, outputs, group } = this.#run;
    const script = readScript(toLatin1(runs), path);
    const content = kind === ".sh" ? withBashShebang(script) : script;
    const key = `experiment ${createHash("sha256")
      .update(`${toLatin1(outputs)}\0${path}\0`)
      .update(content)
      .digest("hex")}`;
    const [known] = (await this.#client.ask("jobs", { key, limit: 1 })).jobs;
    const fetched = existsSync(bytesOf(`${toLatin1(outputs)}/${name}.res`));
    if (known !== undefined && known.state !== "cancelled" && (known.ended === undefined || !fetched))
      return this.#client.job(known.id);
    return this.#client.submit({
      recipe: { kind: "script", content, type: kind === ".sh" ? ".bash" : kind },
      name: displayName(path),
      key,
      pool: group === DEFAULT_GROUP ? DEFAULT_POOL : group,
    });
  }

  async #collect({ name }: Experiment, job: JobHandle): Promise<void> {
    await job.wait();
    const { value: result } = (await job.results().next()) as { value: TaskResult | undefined };
    if (result === undefined || (result.code === undefined && result.signal === undefined)) {
      this.#lost++;
      return;
    }
    const output: Uint8Array[] = [];
    for await (const { bytes } of job.output(0, { stream: "stdout" })) output.push(bytes);
    await this.#write(name, result, Buffer.concat(output));
  }

  async #write(name: string, result: TaskResult, output: Buffer): Promise<void> {
    const { aftermath, screen, all } = this.#run;
    const status: Status = resStatusOf(output);
    const header = writeResHeader({
      name,
      host: result.worker,
      command: `bash '${name}'`,
      started: longDate(result.started),
      ended: longDate(result.ended),
      waitStatus: statusOf(result),
      status,
    });
    const file = new ResFile(name, this.#target);
    file.write(Buffer.from(header, "latin1"));
    file.write(output);
    await file.sync();
    file.publish();
    await file.syncName();
    aftermath.set(name, status === "success");
    if (status === "failure") this.#failed++;
    screen.assigned(result.worker, displayName(name), ++this.#done, all.length);
    screen.ended(result.worker, displayName(name), status);
  }
}

/** As wait(2) has it. */
function statusOf({ code, signal }: TaskResult): number {
  if (code !== undefined) return toWaitStatus(code);
  return constants.signals[signal as NodeJS.Signals] ?? 0;
}

/** bash runs an experiment, whatever its first line says. Line numbers do not change. */
function withBashShebang(script: Buffer): Buffer {
  if (script.toString("latin1", 0, 2) !== "#!") return script;
  const end = script.indexOf("\n");
  return Buffer.concat([Buffer.from("#!/usr/bin/env bash"), end < 0 ? Buffer.alloc(0) : script.subarray(end)]);
}

async function forEachConcurrently<T>(all: readonly T[], work: (one: T) => Promise<unknown>): Promise<void> {
  const next = all.values();
  const turn = async (): Promise<void> => {
    for (const one of next) await work(one);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, turn));
}
