/** A folder of experiments, and a manager for it, in this process. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PeerErrors } from "../../../src/base/log.js";
import { TracedConnections } from "../../../src/base/traced-connections.js";
import { openManager } from "../../../src/protocols/runexp/broker/listener.js";
import { ExperimentJobs, ProgressOutput } from "../../../src/protocols/runexp/experiments/experiment-jobs.js";
import { Aftermath, findExperiments } from "../../../src/protocols/runexp/experiments/folder.js";
import { checkInvariants } from "../../dispatch/invariants.js";
import { atEnd } from "../../support/at-end.js";
import { openTestBroker } from "../../support/test-broker.js";

export interface Batch {
  readonly batch: ExperimentJobs;
  readonly port: number;
  readonly complaints: string[];
  readonly lines: string[];
  readonly aftermath: Aftermath;
}

export interface BatchOptions {
  readonly standing?: boolean;
  readonly maxResultBytes?: number;
}

export function newStudy(): string {
  const dir = mkdtempSync(join(tmpdir(), "laboro-batch-"));
  for (const name of ["runs", "outputs", "drafts"]) mkdirSync(join(dir, name));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export function writeScripts(dir: string, scripts: Readonly<Record<string, string>>): void {
  for (const [path, script] of Object.entries(scripts)) {
    mkdirSync(join(dir, "runs", path, ".."), { recursive: true });
    writeFileSync(join(dir, "runs", path), script);
  }
}

export async function openBatch(dir: string, { standing = false, maxResultBytes }: BatchOptions = {}): Promise<Batch> {
  const { experiments } = findExperiments(join(dir, "runs"));
  const setup = await openTestBroker({ settings: { standing } });
  const { core, guard } = setup.broker;
  const aftermath = new Aftermath(join(dir, "outputs"));
  const lines: string[] = [];
  const screen = new ProgressOutput(
    { progress: false, assignments: false, ends: "all" },
    (text) => void lines.push(text),
  );
  const folders = { runs: join(dir, "runs"), outputs: join(dir, "outputs"), drafts: join(dir, "drafts") };
  const batch = new ExperimentJobs(core, folders, aftermath, screen, experiments, experiments);
  await batch.submitOrResume(setup.client, experiments, "default");
  const complaints: string[] = [];
  const log = { info: () => {}, error: () => {}, warn: (_fields: object, text: string) => void complaints.push(text) };
  const context = {
    ...{ core, guard, log, connections: new TracedConnections(), settings: {} },
    peerErrors: new PeerErrors(log),
  };
  const limits = { exchangeTimeoutMs: 2_000, ...(maxResultBytes === undefined ? {} : { maxResultBytes }) };
  const address = { host: "127.0.0.1", ports: [0] };
  const listener = await openManager(context, address, { experiments: batch, limits });
  atEnd(() => listener.close());
  atEnd(() => checkInvariants(core.state));
  return { batch, port: Number(new URL(listener.urls[0] ?? "").port), complaints, lines, aftermath };
}
