/** The same change to every job that a selector names. A refusal of one job does not stop the others. */

import { LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { EXIT, reportFailure } from "./failures.js";
import type { JobFilter } from "./job-states.js";
import { printLines } from "./print.js";
import { selectJobs } from "./select-jobs.js";
import { isSingleJob, type JobSelector } from "./selectors.js";
import type { JobView } from "./views.js";

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
      // Without the broker the next would fail, too.
      if (reportFailure(cause, false) === EXIT.unreachable) throw cause;
      process.exitCode = EXIT.failed;
    }
  }
}
