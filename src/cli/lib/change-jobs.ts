/** The same change to every job that a selector names; one that is refused does not keep the others from it. */

import { LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { EXIT, reportFailure } from "./failures.js";
import type { JobFilter } from "./job-states.js";
import { printLines } from "./print.js";
import { selectJobs } from "./select-jobs.js";
import { type JobSelector, isSingleJob } from "./selectors.js";
import type { JobView } from "./views.js";

export interface JobChange {
  /** Which of many jobs can be meant at all: `all` means every job that this could change. */
  readonly states: NonNullable<JobFilter["state"]>;
  /** "to hold", for when there is none. */
  readonly noneMessage: string;
  /** Makes the change, and says what was done: "job 3 is held". */
  readonly apply: (client: Client, job: JobView) => Promise<string>;
}

export async function changeJobs(client: Client, selector: JobSelector, change: JobChange): Promise<void> {
  const { states, noneMessage: what, apply: make } = change;
  if (isSingleJob(selector)) {
    for (const job of await selectJobs(client, selector)) printLines(await make(client, job));
    return;
  }
  const jobs = await selectJobs(client, selector, { state: states }).catch((cause: unknown) => {
    if (cause instanceof LaboroError && cause.code === "LABORO_NO_SUCH_JOB") return [];
    throw cause;
  });
  if (jobs.length === 0) printLines(`there is no job ${what}`);
  for (const job of jobs.reverse()) {
    try {
      printLines(await make(client, job));
    } catch (cause) {
      // Without the broker the next would fail, too.
      if (reportFailure(cause, false) === EXIT.unreachable) throw cause;
      process.exitCode = EXIT.failed;
    }
  }
}
