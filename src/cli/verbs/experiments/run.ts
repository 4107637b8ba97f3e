/**
 * One run over a folder of experiments, with a broker of its own, until the last runner has left:
 *
 *   started      the broker in `outputs/.laboro` has the experiments; the listener is open
 *   spawned      all of them were handed out once
 *   waiting      all have ended; runners get FINO when they ask, and leave
 *   interrupted  Ctrl-C: nothing new is handed out, running experiments may end; a second Ctrl-C stops the run
 */
import { mkdirSync, rmdirSync, rmSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { LOCAL_DATA, localDataForOutputs, lockDirectory } from "../../../base/files/local-data.js";
import { type Log, SILENT } from "../../../base/log.js";
import { PeerErrors } from "../../../base/peer-errors.js";
import { TracedConnections } from "../../../base/traced-connections.js";
import type { Listener } from "../../../broker/listeners/listener.js";
import type { RunningBroker } from "../../../broker/options.js";
import { connect } from "../../../client/client.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import type { Experiment } from "../../../protocols/runexp/broker/experiments.js";
import { openManager } from "../../../protocols/runexp/broker/listener.js";
import type { Aftermath } from "../../../protocols/runexp/experiments/aftermath.js";
import { ExperimentJobs } from "../../../protocols/runexp/experiments/experiment-jobs.js";
import type { ProgressOutput } from "../../../protocols/runexp/experiments/progress-output.js";
import { DEFAULT_GROUP, displayName, toLatin1 } from "../../../protocols/runexp/messages.js";
import { type Runner, startRunner } from "../../../protocols/runexp/runner/index.js";
import { startBroker } from "../../../server.js";
import { EXIT } from "../../lib/failures.js";
import { type Interrupt, onInterrupt } from "../../lib/interrupt.js";
import { logger } from "../../lib/long-running.js";
import { openOutput, printNotice } from "../../lib/print.js";

export interface ExperimentsRun {
  readonly all: readonly Experiment[];
  readonly remaining: readonly Experiment[];
  readonly aftermath: Aftermath;
  readonly screen: ProgressOutput;
  readonly runs: string;
  readonly outputs: string;
  readonly port: number;
  readonly listen: string;
  readonly group: string;
  readonly verbose: boolean;
  readonly ban: boolean;
  /** Experiments at once on this machine. */
  readonly localThreads: number;
}

/** Time for runners to leave after FINO: one on hold asks again after ten seconds. */
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
    // What an earlier run left there are no whole results.
    rmSync(drafts, { recursive: true, force: true });
    mkdirSync(drafts, { recursive: true });
    const target = { runs: toLatin1(runs), outputs: toLatin1(outputs), drafts: toLatin1(drafts) };
    const batch = new ExperimentJobs(broker.core, target, aftermath, screen, run.all, remaining);
    const client = await connect({ broker: broker.url, token: broker.token, name: "experiments" });
    open.push(() => client.close());
    await batch.submitOrResume(client, remaining, pool);
    const listener = await openListener(broker, log, batch, run, pool);
    open.push(() => listener.close());
    if (run.verbose) printNotice(`runners come in at ${listener.urls.join(" ")}`);
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
    // It is gone already, or another run uses it.
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

/** A runner that had to go while others still ran something comes back: it takes what a lost runner had. */
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
      printNotice("stopping: what runs may end; Ctrl-C again stops at once");
      drainRunners(broker);
      check();
    });
    interrupt.twice.addEventListener("abort", () => resolve(false));
    broker.core.events.onAdded(({ kind }) => {
      if (kind === "worker-joined" && interrupt.once.aborted) drainRunners(broker);
      if (kind === "tasks-ended" || kind === "job-ended" || kind === "worker-left") check();
      if (kind === "worker-left" && batch.someWait && !interrupt.once.aborted && !runnersConnected(broker))
        printNotice("experiments wait, and no runner is left: they go on when one joins");
    });
    check();
  });
  if (allEnded) saySpawned();
  return allEnded;
}

/** From now on each runner gets FINO when it asks; what it runs may end. */
function drainRunners({ core }: RunningBroker): void {
  for (const { profile } of core.workers("runexp")) {
    core.workerDrains(profile.id);
    core.portOf(profile.id)?.drain();
  }
}

const runnersConnected = ({ core }: RunningBroker): boolean =>
  core.workers("runexp").some(({ connected }) => connected);

/** Runners get FINO when they ask. One that has disconnected is not waited for. */
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
    printNotice(`${displayName(path)} has no result: its script is gone, or too many runners were lost`);
  if (failed.size > 0)
    printNotice(`${failed.size} of ${remaining.length} experiments failed; the same command runs them again`);
  return failed.size + lost.length > 0;
}
