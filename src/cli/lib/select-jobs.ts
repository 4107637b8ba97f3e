/**
 * The jobs that a selector names, as the broker has them.
 *
 * How jobs and tasks are named on the command line:
 *   last       the job submitted last          3          job 3
 *   1-4,7      jobs 1 to 4 and 7               all        every job
 *   3.12       task 12 of job 3                last.1-9,12   tasks of the last job
 * Tasks have the numbers of their array, or count from 1.
 */
import { InvalidArgumentError } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import type { OperationInput } from "../../broker/operations/index.js";
import type { Client } from "../../client/client.js";
import { END_STATES } from "../../model/job.js";
import { normalize, type Range, type Ranges } from "../../model/ranges.js";
import { numberLimits, tasksNumbered, tasksText } from "../../model/task-numbers.js";
import { EXIT, reportFailure } from "./failures.js";
import { printLines } from "./print.js";
import type { JobView } from "./result-text.js";
import { suggestion } from "./suggest.js";

export type JobSelector =
  | { readonly kind: "last" }
  | { readonly kind: "all" }
  | { readonly kind: "some"; readonly ids: Ranges };

interface Selector {
  readonly jobs: JobSelector;
  /** Task numbers of the selected job; absent for all tasks. */
  readonly tasks?: Ranges;
}

const PART = /^(\d+)(?:-(\d+))?$/;

export function parseSelector(text: string): Selector {
  // Slurm's task 3 of job 7 must not be taken for job 73.
  if (text.includes("_")) throw badSelector(text, "JOB.TASKS, as 7.3 where Slurm has 7_3");
  const dot = text.indexOf(".");
  const jobs = parseJobs(dot < 0 ? text : text.slice(0, dot), text);
  if (dot < 0) return { jobs };
  if (!isSingleJob(jobs)) throw badSelector(text, "tasks of one job, as 3.1-10 or last.3");
  return { jobs, tasks: parseNumbers(text.slice(dot + 1), text) };
}

/** For verbs that act on whole jobs. */
export function parseJobSelector(text: string): JobSelector {
  const { jobs, tasks } = parseSelector(text);
  if (tasks !== undefined) throw badSelector(text, "a job without tasks");
  return jobs;
}

/** For verbs about one task: `3.12`, or `3` for the first of the job. */
export function parseTaskSelector(text: string): { readonly job: JobSelector; readonly number?: number } {
  const { jobs, tasks } = parseSelector(text);
  if (!isSingleJob(jobs)) throw badSelector(text, "one task, as 3.12");
  if (tasks === undefined) return { job: jobs };
  const [only, ...more] = tasks;
  if (only === undefined || more.length > 0 || only.first !== only.last) throw badSelector(text, "one task, as 3.12");
  return { job: jobs, number: only.first };
}

/**
 * The indices of the tasks with these numbers. A single number must exist. A range must be between the smallest and the
 * largest number, and selects the tasks in it: of 5, 7, 9 the range 5-8 selects 5 and 7.
 */
export function indicesOf(job: JobView, numbers: Ranges): Ranges {
  const limits = numberLimits(job);
  return normalize(
    numbers.flatMap((range) => {
      const found = tasksNumbered(job, range);
      if (found.length > 0 && range.first >= limits.first && range.last <= limits.last) return found;
      const text = `job ${job.id} has ${tasksText(job)}, not ${formatRanges([range])}`;
      throw new LaboroError("LABORO_NO_SUCH_TASK", text);
    }),
  );
}

export function isSingleJob(jobs: JobSelector): boolean {
  if (jobs.kind !== "some") return jobs.kind === "last";
  const [only, ...more] = jobs.ids;
  return more.length === 0 && only !== undefined && only.first === only.last;
}

/** As they are written in a selector. */
export function formatRanges(ranges: Ranges): string {
  return ranges.map(({ first, last }) => (first === last ? String(first) : `${first}-${last}`)).join(",");
}

function parseJobs(text: string, whole: string): JobSelector {
  if (text === "last" || text === "all") return { kind: text };
  const ids = normalize(parseNumbers(text, whole));
  if (ids.some(({ first }) => first < 1)) throw badSelector(whole, "job numbers from 1");
  return { kind: "some", ids };
}

/** As they are written: not merged, so that each can be checked separately. */
function parseNumbers(text: string, whole: string): Ranges {
  return text.split(",").map((part) => {
    const [, from, to = from] = PART.exec(part.trim()) ?? [];
    if (from === undefined || to === undefined) {
      throw badSelector(whole, whole.includes(".") ? "JOB.TASKS, as 3.1-10,12" : "last, all, or numbers as 3 or 1-4,7");
    }
    const first = Number(from);
    const last = Number(to);
    if (!Number.isSafeInteger(last) || !Number.isSafeInteger(first)) throw badSelector(whole, "smaller numbers");
    if (last < first) throw badSelector(whole, `the smaller number first, ${last}-${first}`);
    return { first, last };
  });
}

const badSelector = (got: string, expected: string): LaboroError =>
  badInput(`selector ${JSON.stringify(got)}: expected ${expected}`);

const PAGE = 1_000;

/** Newest first. A single number must exist; a range selects the jobs that exist in it. */
export async function selectJobs(client: Client, selector: JobSelector, filter: JobFilter = {}): Promise<JobView[]> {
  if (selector.kind === "last") return [await lastJob(client)];
  if (selector.kind === "all") return listJobs(client, filter);
  const found: JobView[] = [];
  for (const range of [...selector.ids].reverse()) {
    if (range.first === range.last) found.push(await getJob(client, range.first));
    else found.push(...(await listJobs(client, filter, range)));
  }
  if (found.length > 0) return found;
  throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no job among ${formatRanges(selector.ids)}`);
}

export async function selectJob(client: Client, selector: JobSelector): Promise<JobView> {
  const [only] = isSingleJob(selector) ? await selectJobs(client, selector) : [];
  if (only !== undefined) return only;
  throw badInput("expected one job, such as 3 or last");
}

/** Every job that matches the filter, page by page. */
export async function listJobs(client: Client, filter: JobFilter = {}, range?: Range): Promise<JobView[]> {
  const found: JobView[] = [];
  let before = range === undefined ? undefined : range.last + 1;
  for (;;) {
    const page = await client.ask("jobs", { ...filter, limit: PAGE, ...(before === undefined ? {} : { before }) });
    for (const job of page.jobs) if (range === undefined || job.id >= range.first) found.push(job);
    before = page.next;
    if (before === undefined || (range !== undefined && before <= range.first)) return found;
  }
}

export const getJob = (client: Client, job: number): Promise<JobView> => client.ask("job", { job });

async function lastJob(client: Client): Promise<JobView> {
  const [last] = (await client.ask("jobs", { limit: 1 })).jobs;
  if (last !== undefined) return last;
  throw new LaboroError("LABORO_NO_SUCH_JOB", "there is no job yet: submit one with laboro run or laboro submit");
}

/** A change that is made to every selected job. If one job refuses it, the others are still changed. */
export interface JobChange {
  /** States in which the change makes sense: `all` selects the jobs in one of them. */
  readonly states: NonNullable<JobFilter["state"]>;
  /** Completes "there is no job …": "to hold". */
  readonly noneMessage: string;
  /** Makes the change and returns what was done: "job 3 is held". */
  readonly apply: (client: Client, job: JobView) => Promise<string>;
}

export async function changeJobs(client: Client, selector: JobSelector, change: JobChange): Promise<void> {
  const { states, noneMessage, apply } = change;
  if (isSingleJob(selector)) {
    for (const job of await selectJobs(client, selector)) printLines(await apply(client, job));
    return;
  }
  const jobs = await selectJobs(client, selector, { state: states }).catch((cause: unknown) => {
    if (cause instanceof LaboroError && cause.code === "LABORO_NO_SUCH_JOB") return [];
    throw cause;
  });
  if (jobs.length === 0) printLines(`there is no job ${noneMessage}`);
  for (const job of jobs.reverse()) {
    try {
      printLines(await apply(client, job));
    } catch (cause) {
      // Without the broker, the next job would fail too.
      if (reportFailure(cause, false) === EXIT.unreachable) throw cause;
      process.exitCode = EXIT.failed;
    }
  }
}

/** The states of a job as options name them: `--state failed,cancelled`. */
type JobStateName = JobView["state"];
/** What the operation `jobs` can filter by. */
export type JobFilter = Pick<OperationInput<"jobs">, "state" | "name" | "pool">;

export const OPEN_STATES = [
  "held",
  "blocked",
  "delayed",
  "waiting",
  "running",
] as const satisfies readonly JobStateName[];
export const JOB_STATES = [...OPEN_STATES, ...END_STATES] as const;

/** For options that may be repeated. */
export const stateParser =
  <State extends JobStateName>(allowed: readonly State[]) =>
  (text: string, before: readonly State[] = []): readonly State[] => [
    ...before,
    ...text.split(",").map((word) => {
      const state = allowed.find((one) => one === word.trim());
      if (state !== undefined) return state;
      const hint = suggestion(word.trim(), allowed) || `; there are ${allowed.join(", ")}`;
      throw new InvalidArgumentError(`no state ${JSON.stringify(word)}${hint}`);
    }),
  ];
