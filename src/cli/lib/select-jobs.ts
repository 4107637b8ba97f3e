/** The jobs that a selector names, as the broker has them. */

import { badInput, LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import type { Range } from "../../model/ranges.js";
import type { JobFilter } from "./job-states.js";
import { formatRanges, isSingleJob, type JobSelector } from "./selectors.js";
import type { JobView } from "./views.js";

const PAGE = 1_000;

/** Newest first. A single number must exist; of a range, the jobs that exist. */
export async function selectJobs(client: Client, selector: JobSelector, filter: JobFilter = {}): Promise<JobView[]> {
  if (selector.kind === "last") return [await lastJob(client)];
  if (selector.kind === "all") return listJobs(client, filter);
  const found: JobView[] = [];
  for (const range of [...selector.ids].reverse()) {
    if (range.first === range.last) found.push(await getJob(client, range.first));
    else found.push(...(await listJobs(client, filter, range)));
  }
  if (found.length > 0) return found;
  throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no such job among ${formatRanges(selector.ids)}`);
}

export async function selectJob(client: Client, selector: JobSelector): Promise<JobView> {
  const [only] = isSingleJob(selector) ? await selectJobs(client, selector) : [];
  if (only !== undefined) return only;
  throw badInput("this needs one job, as 3 or last");
}

/** Every job that the filter lets through, page by page. */
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
