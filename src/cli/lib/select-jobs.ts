/** The jobs that a selector names, as the broker has them. */

import { InvalidArgumentError } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import type { OperationInput } from "../../broker/operations/index.js";
import type { Client } from "../../client/client.js";
import type { Range } from "../../model/ranges.js";
import { EXIT, reportFailure } from "./failures.js";
import { printLines } from "./print.js";
import { formatRanges, isSingleJob, type JobSelector } from "./selectors.js";
import { suggestion } from "./suggest.js";
import type { JobView } from "./views.js";

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
export const ENDED_STATES = ["succeeded", "failed", "cancelled"] as const satisfies readonly JobStateName[];
export const JOB_STATES = [...OPEN_STATES, ...ENDED_STATES] as const;

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
