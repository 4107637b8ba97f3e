/**
 * Runs a folder of experiments with its own broker, until the last runner has left:
 *
 *   started      the broker in `outputs/.laboro` has the experiments; the listener is open
 *   spawned      every experiment was assigned once
 *   waiting      all experiments have ended; each runner gets FINO at its next request, and leaves
 *   interrupted  Ctrl-C: no experiment is assigned any more, running ones may finish; a second Ctrl-C stops the run
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { constants, hostname } from "node:os";
import { join } from "node:path";
import { LOCAL_DATA, localDataForOutputs, lockDirectory } from "../../../base/files/local-data.js";
import { type Log, PeerErrors, SILENT } from "../../../base/log.js";
import { TracedConnections } from "../../../base/traced-connections.js";
import type { Listener } from "../../../broker/listeners/listener.js";
import type { RunningBroker } from "../../../broker/options.js";
import { type Client, connect, type JobHandle } from "../../../client/client.js";
import type { TaskResult } from "../../../model/outcome.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { ResFile, type ResFileOptions } from "../../../protocols/runexp/broker/incoming-result.js";
import { openManager } from "../../../protocols/runexp/broker/listener.js";
import type { Experiment } from "../../../protocols/runexp/broker/runner-tasks.js";
import { ExperimentJobs, type ProgressOutput } from "../../../protocols/runexp/experiments/experiment-jobs.js";
import { type Aftermath, readScript } from "../../../protocols/runexp/experiments/folder.js";
import { bytesOf, DEFAULT_GROUP, displayName, type Status, toLatin1 } from "../../../protocols/runexp/messages.js";
import { longDate, resStatusOf, toWaitStatus, writeResHeader } from "../../../protocols/runexp/res-text.js";
import { type Runner, startRunner } from "../../../protocols/runexp/runner/index.js";
import { startBroker } from "../../../server.js";
import { type BrokerChoice, withBroker } from "../../lib/broker-connection.js";
import { EXIT } from "../../lib/failures.js";
import { type Interrupt, onInterrupt } from "../../lib/interrupt.js";
import { logger } from "../../lib/long-running.js";
import { openOutput, printNotice } from "../../lib/print.js";

interface ExperimentsRun extends BrokerRun {
  readonly port: number;
  readonly listen: string;
  readonly verbose: boolean;
  readonly ban: boolean;
  /** Experiments at once on this machine. */
  readonly localThreads: number;
}

/** Time for runners to leave after FINO. A runner on hold sends its next request after ten seconds. */
const LEAVE_MS = 15_000;
/** Time for runners to come back with their results after a restart. */
const GRACE_MS = 10_000;

export async function runExperiments(run: ExperimentsRun): Promise<number> {
  const { outputs, runs, group, aftermath, screen, remaining } = run;
  const dataDir = localDataForOutputs(outputs);
  const interrupt = onInterrupt();
  const log = run.verbose ? logger() : warningsOnly();
  // On the file system of the results.
  const drafts = join(outputs, LOCAL_DATA, "drafts");
  const lock = lockDirectory(outputs, dataDir);
  const broker = await startBroker({
    ...{ dir: dataDir, port: 0, log },
    settings: { standing: run.ban, graceMs: GRACE_MS },
    onFailed: () => process.exit(EXIT.failed),
  }).catch((cause: unknown) => {
    lock?.release();
    throw cause;
  });
  const pool = group === DEFAULT_GROUP ? DEFAULT_POOL : group;
  let done = false;
  const open: (() => Promise<void> | void)[] = [() => broker.stop()];
  try {
    // Drafts of an earlier run are incomplete results.
    rmSync(drafts, { recursive: true, force: true });
    mkdirSync(drafts, { recursive: true });
    const target = { runs: toLatin1(runs), outputs: toLatin1(outputs), drafts: toLatin1(drafts) };
    const batch = new ExperimentJobs(broker.core, target, aftermath, screen, run.all, remaining);
    const client = await connect({ broker: broker.url, token: broker.token, name: "experiments" });
    open.push(() => client.close());
    await batch.submitOrResume(client, remaining, pool);
    const listener = await openListener(broker, log, batch, run, pool);
    open.push(() => listener.close());
    if (run.verbose) printNotice(`listening for runners at ${listener.urls.join(" ")}`);
    if (group !== DEFAULT_GROUP) {
      screen.line(`Starting working group '${group}'. Use -g '${group}' with clients to join this group`);
    }
    if (run.localThreads > 0) {
      const local = keepLocalRunner(() => localRunner(run, listener, dataDir), batch);
      open.push(() => local.stop());
    }
    done = await waitUntilEnded(batch, broker, interrupt, screen);
    drainRunners(broker);
    await waitForRunnersToLeave(broker, interrupt);
    if (!done) return EXIT.interrupted;
    const failed = reportFailures(run, batch);
    screen.line("Done!");
    return failed ? EXIT.failed : EXIT.ok;
  } finally {
    interrupt.dispose();
    for (const close of open.reverse()) await close();
    aftermath.save();
    if (done) for (const folder of [dataDir, drafts]) rmSync(folder, { recursive: true, force: true });
    // After the removal: another run may use the folder as soon as the lock is released.
    lock?.release();
    if (done) removeEmpty(join(outputs, LOCAL_DATA));
  }
}

function removeEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // The directory does not exist, or another run uses it.
  }
}

/** Without -v only warnings and errors are printed. */
function warningsOnly(): Log {
  const say = (_fields: object, text: string): void => printNotice(text);
  return { ...SILENT, warn: say, error: say };
}

function openListener(
  broker: RunningBroker,
  log: Log,
  experiments: ExperimentJobs,
  run: ExperimentsRun,
  pool: string,
): Promise<Listener> {
  const peerErrors = new PeerErrors(log);
  const { core, guard } = broker;
  const context = { core, guard, log, peerErrors, connections: new TracedConnections(), settings: { pool } };
  return openManager(context, { host: run.listen, ports: [run.port] }, { experiments });
}

function localRunner({ localThreads, group }: ExperimentsRun, listener: Listener, dataDir: string): Runner {
  const port = Number(/:(\d+)$/.exec(listener.urls[0] ?? "")?.[1]);
  const host = (hostname().split(".")[0] ?? "").replace(/[^-_a-zA-Z0-9]/g, "-") || "local";
  return startRunner({
    ...{ host, group, threads: localThreads, dir: join(dataDir, "runner"), manager: { host: "127.0.0.1", port } },
    on: { stderr: openOutput(process.stderr) },
  });
}

/** A runner that got FINO while others were running starts again, to run the experiments of a lost runner. */
function keepLocalRunner(start: () => Runner, batch: ExperimentJobs): { stop(): Promise<void> } {
  let current = start();
  let stopped = false;
  const ended = (async () => {
    while ((await current.ended).status === "finished" && !stopped && !batch.allEnded) current = start();
  })();
  return {
    stop: () => {
      stopped = true;
      current.stop(true);
      return ended;
    },
  };
}

/** True when all experiments have ended, false after an interrupt. */
async function waitUntilEnded(
  batch: ExperimentJobs,
  broker: RunningBroker,
  interrupt: Interrupt,
  screen: ProgressOutput,
): Promise<boolean> {
  let spawned = false;
  const saySpawned = (): void => {
    if (spawned) return;
    spawned = true;
    screen.line("All jobs were spawned.");
    screen.line("Waiting for clients to disconnect.");
  };
  const allEnded = await new Promise<boolean>((resolve) => {
    const check = (): void => {
      if (batch.allAssigned) saySpawned();
      if (batch.allEnded) resolve(true);
      else if (interrupt.once.aborted && batch.noneRunning) resolve(false);
    };
    interrupt.once.addEventListener("abort", () => {
      printNotice("stopping when running experiments have ended; Ctrl-C again stops at once");
      drainRunners(broker);
      check();
    });
    interrupt.twice.addEventListener("abort", () => resolve(false));
    broker.core.events.onAdded(({ kind }) => {
      if (kind === "worker-joined" && interrupt.once.aborted) drainRunners(broker);
      if (kind === "tasks-ended" || kind === "job-ended" || kind === "worker-left") check();
      if (kind === "worker-left" && batch.someWait && !interrupt.once.aborted && !runnersConnected(broker))
        printNotice("experiments are waiting, but no runner is connected; they continue when one joins");
    });
    check();
  });
  if (allEnded) saySpawned();
  return allEnded;
}

/** From now on each runner gets FINO at its next request. Running experiments may finish. */
function drainRunners({ core }: RunningBroker): void {
  for (const { profile } of core.workers("runexp")) {
    core.workerDrains(profile.id);
    core.portOf(profile.id)?.drain();
  }
}

const runnersConnected = ({ core }: RunningBroker): boolean =>
  core.workers("runexp").some(({ connected }) => connected);

/** Waits for connected runners only. */
async function waitForRunnersToLeave(broker: RunningBroker, interrupt: Interrupt): Promise<void> {
  const deadline = Date.now() + LEAVE_MS;
  while (runnersConnected(broker) && Date.now() < deadline && !interrupt.twice.aborted) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** True if not all succeeded. */
function reportFailures({ remaining }: ExperimentsRun, batch: ExperimentJobs): boolean {
  const failed = new Set(batch.failed);
  const lost = remaining.filter(({ name }) => !batch.hasEnded(name));
  for (const { path } of lost)
    printNotice(`${displayName(path)} has no result: its script was removed, or too many runners were lost`);
  if (failed.size > 0)
    printNotice(`${failed.size} of ${remaining.length} experiments failed; the same command runs them again`);
  return failed.size + lost.length > 0;
}

/**
 * Runs a folder of experiments at a running broker. Each experiment is a job with its script, for any worker that runs
 * scripts: laboro's workers and runners at the broker's runexp listener. After a restart it collects the results that
 * the broker has meanwhile.
 */
interface BrokerRun {
  readonly all: readonly Experiment[];
  readonly remaining: readonly Experiment[];
  readonly aftermath: Aftermath;
  readonly screen: ProgressOutput;
  readonly runs: string;
  readonly outputs: string;
  readonly group: string;
}

/** Directory for temporary files of results, separate from the data of a run with its own broker. */
const TEMP_DIR = "fetched";
/** How many jobs are looked up, submitted and awaited at once. */
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
    // All are submitted first, so that the broker runs them even if this process is killed.
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

  /** The job that an earlier run submitted for the same script, unless its result was already fetched. */
  async #jobOf({ name, kind, path }: Experiment): Promise<JobHandle> {
    const { runs, outputs, group } = this.#run;
    const script = readScript(toLatin1(runs), path);
    const content = kind === ".sh" ? withBashShebang(script) : script;
    const batchKey = `experiment ${createHash("sha256")
      .update(`${toLatin1(outputs)}\0${path}\0`)
      .update(content)
      .digest("hex")}`;
    const [known] = (await this.#client.ask("jobs", { batchKey, limit: 1 })).jobs;
    const fetched = existsSync(bytesOf(`${toLatin1(outputs)}/${name}.res`));
    if (known !== undefined && known.state !== "cancelled" && (known.ended === undefined || !fetched))
      return this.#client.job(known.id);
    return this.#client.submit({
      recipe: { kind: "script", content, type: kind === ".sh" ? ".bash" : kind },
      name: displayName(path),
      batchKey,
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

/** The status in the form of wait(2). */
function statusOf({ code, signal }: TaskResult): number {
  if (code !== undefined) return toWaitStatus(code);
  return constants.signals[signal as NodeJS.Signals] ?? 0;
}

/** Lets bash run the experiment, whatever its first line is. Line numbers do not change. */
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
