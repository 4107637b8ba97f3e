/** The experiments of a folder as jobs of a broker: submitted, or found where an earlier run left them, and what the door asks about them. */
import type { Core } from "../../../broker/core.js";
import type { OperationOutput } from "../../../broker/operations/index.js";
import type { Client } from "../../../client/client.js";
import { figuresOf } from "../../../dispatch/standing.js";
import type { JobState } from "../../../dispatch/state.js";
import { JobId, type TaskIndex, type WorkerId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { type Range, rangesOf } from "../../../model/ranges.js";
import type { Bytes } from "../../../model/recipe.js";
import type { Experiment, Experiments, ResultFile } from "../broker/experiments.js";
import type { Status } from "../messages.js";
import type { Aftermath } from "./aftermath.js";
import { bytesOf, type FoundExperiment, readScript, shown } from "./folder.js";
import { ResFile, type ResFilePlace } from "./result-file.js";
import type { Screen } from "./screen.js";

export const EXPERIMENTS_KEY = "runexp experiments";
/** The table of ends is written so often at most. */
const SAVE_MS = 60_000;
/** An experiment at which so many runners were lost is given up. */
const CRASH_LIMIT = 20;
/** For a worker that is no runner of runexp, and cannot know what to do. */
const NO_SCRIPT = Buffer.from("echo 'an experiment runs at a runner of runexp' >&2\nexit 1\n");

export interface BatchPlace extends ResFilePlace {
  /** A path of bytes. */
  readonly runs: string;
}

export class Batch implements Experiments {
  readonly #core: Core;
  readonly #place: BatchPlace;
  readonly #aftermath: Aftermath;
  readonly #screen: Screen;
  /** All that there are, and how many of them were done before. */
  readonly #total: number;
  readonly #before: number;
  readonly #byPath: ReadonlyMap<string, FoundExperiment>;
  readonly #tasks = new Map<string, { readonly job: JobId; readonly index: TaskIndex }>();
  readonly #jobs = new Set<JobId>();
  readonly #handed = new Set<string>();
  readonly #ended = new Map<string, Status>();
  readonly #standings = new Map<string, string>();
  #savedAt = Date.now();

  constructor(
    core: Core,
    place: BatchPlace,
    aftermath: Aftermath,
    screen: Screen,
    all: readonly FoundExperiment[],
    left: readonly FoundExperiment[],
  ) {
    this.#core = core;
    this.#place = place;
    this.#aftermath = aftermath;
    this.#screen = screen;
    this.#total = all.length;
    this.#before = all.length - left.length;
    this.#byPath = new Map(left.map((one) => [one.path, one]));
  }

  /** The jobs that hold these experiments; those of an earlier run go on, without what needs no running any more. */
  async begin(client: Client, left: readonly FoundExperiment[], pool: string): Promise<void> {
    const known = new Set<string>();
    const { jobs } = await client.ask("jobs", { key: EXPERIMENTS_KEY, state: ["open"], limit: 1_000 });
    for (const { id } of jobs) {
      const kept = await this.#goOn(client, id);
      for (const path of kept) known.add(path);
    }
    const fresh = left.filter(({ path }) => !known.has(path));
    if (fresh.length > 0) {
      const job = await client.submit({
        recipe: { kind: "script", content: NO_SCRIPT, type: ".sh" },
        name: "experiments",
        key: EXPERIMENTS_KEY,
        entries: fresh.map(({ path }) => bytesOf(path)),
        ...{ pool, crashLimit: CRASH_LIMIT },
      });
      this.#enter(
        JobId(job.id),
        fresh.map(({ path }, index) => [index, path]),
      );
    }
    for (const { name } of left) this.#aftermath.forget(name);
    this.#aftermath.save();
  }

  /** Which experiments of a job that was begun before are still to be run. */
  async #goOn(client: Client, id: number): Promise<readonly string[]> {
    const paths = await entriesOf(client, id);
    const ended = new Set<number>();
    for await (const { index } of client.job(id).results()) ended.add(index);
    const open = paths.map((path, index): [number, string] => [index, path]).filter(([index]) => !ended.has(index));
    const wanted = open.filter(([, path]) => this.#byPath.has(path));
    const unwanted = rangesOf(open.filter(([, path]) => !this.#byPath.has(path)).map(([index]) => index));
    if (unwanted.length > 0) await client.job(id).cancel(unwanted as Range[], "it is done, or its script is gone");
    if (wanted.length > 0) this.#enter(JobId(id), wanted);
    return wanted.map(([, path]) => path);
  }

  #enter(job: JobId, tasks: readonly (readonly [number, string])[]): void {
    this.#jobs.add(job);
    for (const [index, path] of tasks) {
      const name = this.#byPath.get(path)?.name;
      if (name !== undefined) this.#tasks.set(name, { job, index });
    }
  }

  /** All of them have ended. */
  get over(): boolean {
    return this.#open().length === 0;
  }

  /** Nothing is at a runner. */
  get idle(): boolean {
    return this.#open().every(({ out }) => out === 0);
  }

  /** Each was handed out at least once. */
  get handedOut(): boolean {
    return this.#before + this.#handed.size === this.#total;
  }

  get failed(): readonly string[] {
    return [...this.#ended].filter(([, status]) => status === "failure").map(([name]) => name);
  }

  /** Whether its result came. */
  hasEnded(name: string): boolean {
    return this.#ended.has(name);
  }

  #open(): JobState[] {
    return [...this.#jobs].map((id) => this.#core.state.jobs.get(id)).filter((job) => job !== undefined);
  }

  // What the door asks

  of({ key }: Pick<Job, "key">, _index: TaskIndex, entry: Bytes | undefined): Experiment | undefined {
    if (key !== EXPERIMENTS_KEY || entry === undefined) return undefined;
    const path = Buffer.from(entry).toString("latin1");
    return this.#byPath.get(path) ?? { name: path.replace(/\.[^.]*$/, ""), kind: ".sh", path };
  }

  content(experiment: Experiment): Buffer {
    return readScript(this.#place.runs, experiment.path);
  }

  find(name: string): { readonly job: JobId; readonly index: TaskIndex } | undefined {
    return this.#tasks.get(name);
  }

  openResult(name: string): ResultFile {
    return new ResFile(name, this.#place);
  }

  handed(host: string, name: string): void {
    // One that comes back from a lost runner and goes out again is no progress.
    if (this.#handed.has(name)) return;
    this.#handed.add(name);
    this.#screen.handed(host, shown(name), this.#before + this.#handed.size, this.#total);
  }

  ended(host: string, name: string, status: Status): void {
    this.handed(host, name);
    this.#ended.set(name, status);
    this.#aftermath.set(name, status === "success");
    this.#screen.ended(host, shown(name), status);
    this.#sayStanding(host);
    if (Math.abs(Date.now() - this.#savedAt) < SAVE_MS) return;
    this.#savedAt = Date.now();
    this.#aftermath.save();
  }

  #sayStanding(host: string): void {
    const { standing, results, succeeded, recent } = figuresOf(this.#core.state, host);
    if (standing === (this.#standings.get(host) ?? "good")) return;
    this.#standings.set(host, standing);
    const failures = recent.split("-").length - 1;
    const words = {
      good: "behaves again: it gets experiments as before",
      suspended: `is on hold: ${failures} of its last ${recent.length} experiments failed`,
      banned: `is banned: only ${succeeded} of ${results} experiments succeeded`,
    };
    this.#screen.about(host, words[standing]);
  }

  overFor(worker: WorkerId): boolean {
    return this.#open().every(
      (job) => nothingWaits(job) && [...job.claims].every((claim) => claim.worker.profile.id === worker),
    );
  }
}

const nothingWaits = ({ ready, later, more, leasing }: JobState): boolean =>
  ready === 0 && later.size === 0 && !more && !leasing;

async function entriesOf(client: Client, job: number): Promise<string[]> {
  const found: string[] = [];
  for (let from: number | undefined = 0; from !== undefined; ) {
    const page: OperationOutput<"entries"> = await client.ask("entries", { job, from, limit: 10_000 });
    found.push(...page.entries.map((entry) => Buffer.from(entry).toString("latin1")));
    from = page.next;
  }
  return found;
}
