/** The requests of fuq's client about jobs: operations of the broker, in fuq's terms. */

import { asLaboroError } from "../../../../base/errors.js";
import type { OperationInput, OperationName, OperationOutput } from "../../../../broker/operations/index.js";
import type { JobView } from "../../../../broker/operations/job-view.js";
import { type Description, describeJob, programOf, type Status, statusOf, submissionOf } from "../job-description.js";
import { badRequest, type JsonFields } from "./json-http.js";

/** Performs an operation of the broker, with the role of the client. */
export type PerformOperation = <Name extends OperationName>(
  name: Name,
  input: OperationInput<Name>,
) => Promise<OperationOutput<Name>>;

/** Jobs in one answer, the newest ones; tasks of one kind in one job. */
const MAX_JOBS = 10_000;
const MAX_TASKS = 10_000;
const PAGE = 1_000;

interface JobTaskStatus {
  readonly Description: Description;
  readonly TasksFinished: number;
  readonly TasksPending: number;
  readonly TasksRunning: readonly number[];
  readonly TasksWithErrors: readonly number[];
}

export async function jobNew(ask: PerformOperation, given: JsonFields): Promise<{ job_id: number }> {
  const { job } = await ask("submit", submissionOf(given));
  return { job_id: job };
}

/** By exact name, by status, or both; without a status, those that have not ended. */
export async function jobList(ask: PerformOperation, given: JsonFields): Promise<JobTaskStatus[]> {
  const name = given.text("name");
  const status = given.text("status");
  const found = (await jobs(ask, status)).filter((job) => {
    if (name !== "" && job.name !== name) return false;
    return status === "" || statusOf(job) === status;
  });
  const listed: JobTaskStatus[] = [];
  for (const job of found.reverse()) listed.push(await taskStatus(ask, job));
  return listed;
}

const STATES = {
  finished: ["succeeded", "failed"],
  cancelled: ["cancelled"],
} as const;

/** Newest first. */
async function jobs(ask: PerformOperation, status: string): Promise<JobView[]> {
  const state = status === "finished" || status === "cancelled" ? [...STATES[status]] : (["open"] as const);
  const found: JobView[] = [];
  let before: number | undefined;
  do {
    const page = await ask("jobs", { state, limit: PAGE, ...(before === undefined ? {} : { before }) });
    found.push(...page.jobs);
    before = page.next;
  } while (before !== undefined && found.length < MAX_JOBS);
  return found;
}

async function taskStatus(ask: PerformOperation, job: JobView): Promise<JobTaskStatus> {
  const { succeeded, waiting, running, failed } = job.counters;
  return {
    Description: describeJob(job, statusOf(job)),
    TasksFinished: succeeded,
    TasksPending: waiting,
    TasksRunning: running === 0 ? [] : await numbers((from) => ask("running", { job: job.id, from, limit: PAGE })),
    TasksWithErrors:
      failed === 0 ? [] : await numbers((from) => ask("tasks", { job: job.id, from, limit: PAGE, state: ["failed"] })),
  };
}

interface Page {
  readonly tasks: readonly { readonly number: number }[];
  readonly next?: number;
}

async function numbers(pageFrom: (from: number) => Promise<Page>): Promise<number[]> {
  const found: number[] = [];
  let from: number | undefined = 0;
  while (from !== undefined && found.length < MAX_TASKS) {
    const page: Page = await pageFrom(from);
    found.push(...page.tasks.map(({ number }) => number));
    from = page.next;
  }
  return found;
}

const ACTIONS = { hold: "paused", release: "waiting", cancel: "cancelled" } as const satisfies Record<string, Status>;

interface StateChange {
  readonly job_id: number;
  readonly prev_status: Status;
  readonly new_status: Status;
}

/** All of these jobs or, where one is not known, none. A job that has ended stays as it is, and the answer says so. */
export async function jobState(ask: PerformOperation, given: JsonFields): Promise<StateChange[]> {
  const ids = given.list("job_ids").map(jobId);
  const action = given.text("action");
  if (ids.length === 0 || ids.length > MAX_JOBS || !isAction(action)) throw badRequest();
  const before = await Promise.all(ids.map((job) => ask("job", { job })));
  const changes: StateChange[] = [];
  for (const job of before) {
    const prev_status = statusOf(job);
    const changed = await change(ask, action, job.id);
    changes.push({ job_id: job.id, prev_status, new_status: changed ? ACTIONS[action] : await statusNow(ask, job.id) });
  }
  return changes;
}

const isAction = (text: string): text is keyof typeof ACTIONS => Object.hasOwn(ACTIONS, text);

async function change(ask: PerformOperation, action: keyof typeof ACTIONS, job: number): Promise<boolean> {
  try {
    await ask(action, { job });
    return true;
  } catch (cause) {
    if (asLaboroError(cause).code === "LABORO_JOB_ENDED") return false;
    throw cause;
  }
}

const statusNow = async (ask: PerformOperation, job: number): Promise<Status> => statusOf(await ask("job", { job }));

function jobId(value: unknown): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value > 0) return value;
  throw badRequest();
}

/** Forgets the jobs of fuq's kind that have ended: the queue is not fuq's alone, and jobs that still run stay listed. */
export async function jobClear(ask: PerformOperation): Promise<object> {
  for (const status of ["finished", "cancelled"] as const) {
    for (const { id, recipe } of await jobs(ask, status)) {
      if (programOf(recipe) === undefined) continue;
      await ask("remove", { job: id }).catch((cause: unknown) => {
        // Somebody else has removed it, or lets it run again.
        if (!["LABORO_NO_SUCH_JOB", "LABORO_JOB_OPEN"].includes(asLaboroError(cause).code)) throw cause;
      });
    }
  }
  return {};
}
