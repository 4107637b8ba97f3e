/** The experiments of a folder as jobs of a broker: submitted, or resumed from an earlier run. */
import type { Core } from "../../../broker/core.js";
import type { OperationOutput } from "../../../broker/operations/index.js";
import type { Client } from "../../../client/client.js";
import { JobId, type TaskIndex, type WorkerId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { type Range, rangesOf } from "../../../model/ranges.js";
import type { Bytes } from "../../../model/recipe.js";
import { ResFile, type ResFileOptions } from "../broker/incoming-result.js";
import type { Experiment, Experiments } from "../broker/runner-tasks.js";
import { bytesOf, displayName, type Status } from "../messages.js";
import { shortDate } from "../res-text.js";
import { type Aftermath, readScript } from "./folder.js";

const EXPERIMENTS_KEY = "runexp experiments";
/** The shortest time between two writes of the table of results. */
const SAVE_MS = 60_000;
/** An experiment fails when this many runners were lost while they ran it. */
const CRASH_LIMIT = 20;
/** For a worker that is not a runner. */
const NO_SCRIPT = Buffer.from("echo 'an experiment runs at a runner of runexp' >&2\nexit 1\n");

interface ExperimentJobsOptions extends ResFileOptions {
  /** A path of bytes. */
  readonly runs: string;
}

export class ExperimentJobs implements Experiments {
  readonly #core: Core;
  readonly #options: ExperimentJobsOptions;
  readonly #aftermath: Aftermath;
  readonly #screen: ProgressOutput;
  readonly #total: number;
  readonly #doneBefore: ReadonlySet<string>;
  readonly #byPath: ReadonlyMap<string, Experiment>;
  readonly #tasks = new Map<string, { readonly job: JobId; readonly index: TaskIndex }>();
  readonly #jobs = new Set<JobId>();
  readonly #assigned = new Set<string>();
  readonly #ended = new Map<string, Status>();
  readonly #standings = new Map<string, string>();
  #savedAt = Date.now();

  constructor(
    core: Core,
    options: ExperimentJobsOptions,
    aftermath: Aftermath,
    screen: ProgressOutput,
    all: readonly Experiment[],
    remaining: readonly Experiment[],
  ) {
    this.#core = core;
    this.#options = options;
    this.#aftermath = aftermath;
    this.#screen = screen;
    this.#total = all.length;
    const left = new Set(remaining.map(({ name }) => name));
    this.#doneBefore = new Set(all.map(({ name }) => name).filter((name) => !left.has(name)));
    this.#byPath = new Map(remaining.map((one) => [one.path, one]));
  }

  /** Submits these experiments, or resumes the jobs of an earlier run without those that need not run any more. */
  async submitOrResume(client: Client, remaining: readonly Experiment[], pool: string): Promise<void> {
    const known = new Set<string>();
    const { jobs } = await client.ask("jobs", { batchKey: EXPERIMENTS_KEY, state: ["open"], limit: 1_000 });
    for (const { id } of jobs) {
      for (const path of await this.#resumeJob(client, id)) known.add(path);
    }
    const fresh = remaining.filter(({ path }) => !known.has(path));
    if (fresh.length > 0) {
      const job = await client.submit({
        recipe: { kind: "script", content: NO_SCRIPT, type: ".sh" },
        name: "experiments",
        batchKey: EXPERIMENTS_KEY,
        entries: fresh.map(({ path }) => bytesOf(path)),
        ...{ pool, crashLimit: CRASH_LIMIT },
      });
      const tasks = fresh.map(({ path }, index): [number, string] => [index, path]);
      this.#addTasks(JobId(job.id), tasks);
    }
    for (const { name } of remaining) this.#aftermath.forget(name);
    this.#aftermath.save();
  }

  /** The experiments of an earlier job that are still to be run. */
  async #resumeJob(client: Client, id: number): Promise<readonly string[]> {
    const paths = await entriesOf(client, id);
    const ended = new Set<number>();
    for await (const { index } of client.job(id).results()) ended.add(index);
    const open = paths.map((path, index): [number, string] => [index, path]).filter(([index]) => !ended.has(index));
    const wanted = open.filter(([, path]) => this.#byPath.has(path));
    const unwanted = rangesOf(open.filter(([, path]) => !this.#byPath.has(path)).map(([index]) => index));
    if (unwanted.length > 0)
      await client.job(id).cancel(unwanted as Range[], "the experiment is done, or its script is gone");
    if (wanted.length > 0) this.#addTasks(JobId(id), wanted);
    return wanted.map(([, path]) => path);
  }

  #addTasks(job: JobId, tasks: readonly (readonly [number, string])[]): void {
    this.#jobs.add(job);
    for (const [index, path] of tasks) {
      const name = this.#byPath.get(path)?.name;
      if (name !== undefined) this.#tasks.set(name, { job, index });
    }
  }

  get allEnded(): boolean {
    return this.#open().length === 0;
  }

  get someWait(): boolean {
    return this.#open().some(({ waits }) => waits);
  }

  get noneRunning(): boolean {
    return this.#open().every(({ workers }) => workers.length === 0);
  }

  /** At least once. */
  get allAssigned(): boolean {
    return this.#doneBefore.size + this.#assigned.size === this.#total;
  }

  get failed(): readonly string[] {
    return [...this.#ended].filter(([, status]) => status === "failure").map(([name]) => name);
  }

  hasEnded(name: string): boolean {
    return this.#ended.has(name);
  }

  #open() {
    return [...this.#jobs].map((id) => this.#core.openWork(id)).filter((work) => work !== undefined);
  }

  // Calls of the listener

  experimentOf(
    { batchKey }: Pick<Job, "batchKey">,
    _index: TaskIndex,
    entry: Bytes | undefined,
  ): Experiment | undefined {
    if (batchKey !== EXPERIMENTS_KEY || entry === undefined) return undefined;
    const path = Buffer.from(entry).toString("latin1");
    return this.#byPath.get(path) ?? { name: path.replace(/\.[^.]*$/, ""), kind: ".sh", path };
  }

  readScript(experiment: Experiment): Buffer {
    return readScript(this.#options.runs, experiment.path);
  }

  findTask(name: string): { readonly job: JobId; readonly index: TaskIndex } | undefined {
    return this.#tasks.get(name);
  }

  isDone(name: string): boolean {
    return this.#doneBefore.has(name) || this.#ended.has(name);
  }

  openResult(name: string): ResFile {
    return new ResFile(name, this.#options);
  }

  assigned(host: string, name: string): void {
    // Not counted again when it returns from a lost runner.
    if (this.#assigned.has(name)) return;
    this.#assigned.add(name);
    this.#screen.assigned(host, displayName(name), this.#doneBefore.size + this.#assigned.size, this.#total);
  }

  ended(host: string, name: string, status: Status): void {
    this.assigned(host, name);
    this.#ended.set(name, status);
    this.#aftermath.set(name, status === "success");
    this.#screen.ended(host, displayName(name), status);
    this.#reportStanding(host);
    if (Math.abs(Date.now() - this.#savedAt) < SAVE_MS) return;
    this.#savedAt = Date.now();
    this.#aftermath.save();
  }

  #reportStanding(host: string): void {
    const { standing, results, succeeded, recent } = this.#core.standingOf(host);
    if (standing === (this.#standings.get(host) ?? "good")) return;
    this.#standings.set(host, standing);
    const failures = recent.split("-").length - 1;
    const words = {
      good: "behaves again: it gets experiments as before",
      suspended: `is on hold: ${failures} of its last ${recent.length} experiments failed`,
      banned: `is banned: only ${succeeded} of ${results} experiments succeeded`,
    };
    this.#screen.hostNotice(host, words[standing]);
  }

  whereOpen(worker: WorkerId): ReturnType<Experiments["whereOpen"]> {
    if (this.someWait) return "waiting";
    const here = this.#open().every(({ workers }) => workers.every((one) => one === worker));
    return here ? "here" : "elsewhere";
  }

  lost(host: string, experiments: number): void {
    const what = experiments === 1 ? "its experiment waits" : `its ${experiments} experiments wait`;
    this.#screen.hostNotice(host, experiments === 0 ? "is gone" : `is gone: ${what} for another runner`);
  }
}

async function entriesOf(client: Client, job: number): Promise<string[]> {
  const found: string[] = [];
  for (let from: number | undefined = 0; from !== undefined; ) {
    const page: OperationOutput<"entries"> = await client.ask("entries", { job, from, limit: 10_000 });
    found.push(...page.entries.map((entry) => Buffer.from(entry).toString("latin1")));
    from = page.next;
  }
  return found;
}

/** The output of `experiments`, in the format of queueexp. */
interface ProgressOptions {
  /** One line that is overwritten. */
  readonly progress: boolean;
  /** A line for each experiment that is assigned. */
  readonly assignments: boolean;
  /** Which results get a line. */
  readonly ends: "all" | "none" | Status;
}

export class ProgressOutput {
  readonly #options: ProgressOptions;
  readonly #write: (text: string) => void;

  constructor(options: ProgressOptions, write: (text: string) => void) {
    this.#options = options;
    this.#write = write;
  }

  line(text: string): void {
    this.#write(`${text}\n`);
  }

  /** `done`: experiments that are assigned, or were done before. */
  assigned(host: string, name: string, done: number, total: number): void {
    const percent = (Math.floor((1000 * done) / total) / 10).toFixed(1).padStart(5);
    if (this.#options.progress) this.#write(`[${percent}%] ${done}/${total}\r`);
    else if (this.#options.assignments) this.line(`${shortDate(Date.now())} [${percent}%] ${host}: ${name}`);
  }

  ended(host: string, name: string, status: Status): void {
    const { ends } = this.#options;
    if (ends !== "all" && ends !== status) return;
    this.line(`${shortDate(Date.now())} [RESULT] ${host}: finished ${name} with ${status}`);
  }

  hostNotice(host: string, text: string): void {
    this.line(`${shortDate(Date.now())} [${host}] ${text}`);
  }
}

/** From the command line: -t and -f are the default, unless --shownames or -q is given. */
export function progressOptions(given: {
  readonly progress?: boolean;
  readonly shownames?: boolean;
  readonly quiet?: boolean;
  readonly aftermath?: boolean;
  readonly success?: boolean;
  readonly failure?: boolean;
}): ProgressOptions {
  const { progress = false, shownames = false, quiet = false, aftermath, success, failure } = given;
  const plain = !progress && !shownames && !quiet;
  const requested = aftermath || (success && failure) ? "all" : success ? "success" : failure ? "failure" : undefined;
  return {
    progress: progress || plain,
    assignments: shownames && !quiet,
    ends: requested ?? (plain ? "failure" : "none"),
  };
}
