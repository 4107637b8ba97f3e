/**
 * A folder of experiments at a broker that runs: each is a job with its script, for any worker there that runs scripts, be it one of
 * ours or a runner at the broker's own door. Killed and started again, it picks up what the broker has done meanwhile.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { OWN_DATA } from "../../../base/files/local-data.js";
import type { Client, JobHandle } from "../../../client/client.js";
import type { TaskResult } from "../../../model/outcome.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import type { Aftermath } from "../../../protocols/runexp/experiments/aftermath.js";
import {
  bytesOf,
  type FoundExperiment,
  latinOf,
  readScript,
  shown,
} from "../../../protocols/runexp/experiments/folder.js";
import { Drafts, ResFile, type ResFilePlace } from "../../../protocols/runexp/experiments/result-file.js";
import type { Screen } from "../../../protocols/runexp/experiments/screen.js";
import { DEFAULT_GROUP, type Status } from "../../../protocols/runexp/messages.js";
import { resHeader, verdictOf, waitStatus } from "../../../protocols/runexp/res-text.js";
import { dateLine } from "../../../protocols/runexp/runner/dates.js";
import { type BrokerChoice, withBroker } from "../../lib/broker-connection.js";
import { EXIT } from "../../lib/failures.js";
import { remark } from "../../lib/print.js";

export interface AtBroker {
  readonly all: readonly FoundExperiment[];
  readonly left: readonly FoundExperiment[];
  readonly aftermath: Aftermath;
  readonly screen: Screen;
  readonly runs: string;
  readonly outputs: string;
  readonly group: string;
}

/** Drafts of results, beside what a run with a broker of its own may have left. */
const DRAFTS = "fetched";
/** Jobs looked for, given and waited for at one time. */
const AT_ONCE = 64;

export function runAtBroker(run: AtBroker, choice: BrokerChoice): Promise<number> {
  const home = join(run.outputs, OWN_DATA);
  const folder = join(home, DRAFTS);
  mkdirSync(folder, { recursive: true });
  const drafts = new Drafts(latinOf(folder));
  return withBroker(choice, async (client) => {
    try {
      return await new Following(client, run, drafts).run();
    } finally {
      run.aftermath.save();
      drafts.close();
      rmSync(folder, { recursive: true, force: true });
      if (readdirSync(home).length === 0) rmdirSync(home);
    }
  });
}

class Following {
  readonly #client: Client;
  readonly #run: AtBroker;
  readonly #place: ResFilePlace;
  #done: number;
  #failed = 0;
  #lost = 0;

  constructor(client: Client, run: AtBroker, drafts: Drafts) {
    this.#client = client;
    this.#run = run;
    this.#place = { outputs: latinOf(run.outputs), drafts };
    this.#done = run.all.length - run.left.length;
  }

  async run(): Promise<number> {
    const { left, screen } = this.#run;
    const jobs: { readonly experiment: FoundExperiment; readonly job: JobHandle }[] = [];
    // All are given first, so that the broker has them whatever becomes of this process.
    await atOnce(left, async (experiment) => jobs.push({ experiment, job: await this.#jobOf(experiment) }));
    screen.line("All jobs were spawned.");
    await atOnce(jobs, ({ experiment, job }) => this.#collect(experiment, job));
    if (this.#lost > 0)
      remark(`${this.#lost} of ${left.length} experiments were cancelled, or their workers were lost`);
    if (this.#failed > 0)
      remark(`${this.#failed} of ${left.length} experiments failed; the same command runs them again`);
    screen.line("Done!");
    return this.#failed + this.#lost > 0 ? EXIT.failed : EXIT.ok;
  }

  /** The one that an earlier run gave for the same script, unless its result was fetched already. */
  async #jobOf({ name, kind, path }: FoundExperiment): Promise<JobHandle> {
    const { runs, outputs, group } = this.#run;
    const script = readScript(latinOf(runs), path);
    const content = kind === ".sh" ? forBash(script) : script;
    const key = `experiment ${createHash("sha256")
      .update(`${latinOf(outputs)}\0${path}\0`)
      .update(content)
      .digest("hex")}`;
    const [known] = (await this.#client.ask("jobs", { key, limit: 1 })).jobs;
    const fetched = existsSync(bytesOf(`${latinOf(outputs)}/${name}.res`));
    if (known !== undefined && known.state !== "cancelled" && (known.ended === undefined || !fetched))
      return this.#client.job(known.id);
    return this.#client.submit({
      recipe: { kind: "script", content, type: kind === ".sh" ? ".bash" : kind },
      name: shown(path),
      key,
      pool: group === DEFAULT_GROUP ? DEFAULT_POOL : group,
    });
  }

  async #collect({ name }: FoundExperiment, job: JobHandle): Promise<void> {
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
    const status: Status = verdictOf(output);
    const header = resHeader({
      name,
      host: result.worker,
      command: `bash '${name}'`,
      began: dateLine(result.started),
      ended: dateLine(result.ended),
      waitStatus: statusOf(result),
      status,
    });
    const file = new ResFile(name, this.#place);
    file.write(Buffer.from(header, "latin1"));
    file.write(output);
    await file.finish();
    aftermath.set(name, status === "success");
    if (status === "failure") this.#failed++;
    screen.handed(result.worker, shown(name), ++this.#done, all.length);
    screen.ended(result.worker, shown(name), status);
  }
}

/** As wait(2) has it. */
function statusOf({ code, signal }: TaskResult): number {
  if (code !== undefined) return waitStatus(code);
  return constants.signals[signal as NodeJS.Signals] ?? 0;
}

/** bash runs an experiment, whatever its first line says. The others keep their numbers. */
function forBash(script: Buffer): Buffer {
  if (script.toString("latin1", 0, 2) !== "#!") return script;
  const end = script.indexOf("\n");
  return Buffer.concat([Buffer.from("#!/usr/bin/env bash"), end < 0 ? Buffer.alloc(0) : script.subarray(end)]);
}

async function atOnce<T>(all: readonly T[], work: (one: T) => Promise<unknown>): Promise<void> {
  const next = all.values();
  const turn = async (): Promise<void> => {
    for (const one of next) await work(one);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, turn));
}
