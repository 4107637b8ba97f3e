/**
 * The requests of fuq's client. Those about jobs are operations of the broker. Those about workers concern the workers
 * that speak fuq at any listener.
 */
import { join } from "node:path";
import { asLaboroError } from "../../../../base/errors.js";
import type { Core, KnownWorker } from "../../../../broker/core.js";
import type { OperationInput, OperationName, OperationOutput } from "../../../../broker/operations/index.js";
import type { JobView } from "../../../../broker/operations/job-view.js";
import { finishedCount } from "../../../../model/job.js";
import type { Submission } from "../../../../model/job-input.js";
import { PLACEHOLDER } from "../../../../model/recipe.js";
import type { STATUSES } from "../../messages.js";
import { logDirectory } from "../foreman-tasks.js";
import { badRequest, HttpError, type JsonFields } from "./json-http.js";
import type { NodeInfo, Nodes } from "./nodes.js";

type Status = (typeof STATUSES)[number];

export type PerformOperation = <Name extends OperationName>(
  name: Name,
  input: OperationInput<Name>,
) => Promise<OperationOutput<Name>>;

/** The newest jobs in one answer, and tasks of one kind in one job. */
const MAX_JOBS = 10_000;
const MAX_TASKS = 10_000;
const PAGE = 1_000;

export async function jobNew(ask: PerformOperation, given: JsonFields): Promise<{ job_id: number }> {
  const { job } = await ask("submit", submissionOf(given));
  return { job_id: job };
}

/** By exact name, by status, or both. Without a status: jobs that have not ended. */
export async function jobList(ask: PerformOperation, given: JsonFields): Promise<object[]> {
  const name = given.text("name");
  const status = given.text("status");
  const found = (await jobs(ask, status)).filter((job) => {
    if (name !== "" && job.name !== name) return false;
    return status === "" || statusOf(job) === status;
  });
  const listed: object[] = [];
  for (const job of found.reverse()) listed.push(await taskStatus(ask, job));
  return listed;
}

const STATES = new Map<string, OperationInput<"jobs">["state"]>([
  ["finished", ["succeeded", "failed"]],
  ["cancelled", ["cancelled"]],
]);

/** Newest first. */
async function jobs(ask: PerformOperation, status: string): Promise<JobView[]> {
  const state = STATES.get(status) ?? ["open"];
  const found: JobView[] = [];
  let before: number | undefined;
  do {
    const page = await ask("jobs", { state, limit: PAGE, ...(before === undefined ? {} : { before }) });
    found.push(...page.jobs);
    before = page.next;
  } while (before !== undefined && found.length < MAX_JOBS);
  return found;
}

async function taskStatus(ask: PerformOperation, job: JobView): Promise<object> {
  const { succeeded, waiting, running, failed } = job.counters;
  return {
    Description: describeJob(job),
    TasksFinished: succeeded,
    TasksPending: waiting,
    TasksRunning: running === 0 ? [] : await numbers((from) => ask("running", { job: job.id, from, limit: PAGE })),
    TasksWithErrors:
      failed === 0 ? [] : await numbers((from) => ask("tasks", { job: job.id, from, limit: PAGE, state: ["failed"] })),
  };
}

type TaskPage = Pick<OperationOutput<"running">, "tasks" | "next"> | Pick<OperationOutput<"tasks">, "tasks" | "next">;

async function numbers(pageFrom: (from: number) => Promise<TaskPage>): Promise<number[]> {
  const found: number[] = [];
  for (let from: number | undefined = 0; from !== undefined && found.length < MAX_TASKS; ) {
    const page: TaskPage = await pageFrom(from);
    found.push(...page.tasks.map(({ number }) => number));
    from = page.next;
  }
  return found;
}

const ACTIONS = { hold: "paused", release: "waiting", cancel: "cancelled" } as const satisfies Record<string, Status>;

/** All jobs, or none if one is not known. A job that has ended stays as it is, and the answer says so. */
export async function jobState(ask: PerformOperation, given: JsonFields): Promise<object[]> {
  const ids = given.list("job_ids").map(jobId);
  const action = given.text("action");
  if (ids.length === 0 || ids.length > MAX_JOBS || !isAction(action)) throw badRequest();
  const before = await Promise.all(ids.map((job) => ask("job", { job })));
  const changes: object[] = [];
  for (const job of before) {
    const changed = await change(ask, action, job.id);
    const new_status = changed ? ACTIONS[action] : statusOf(await ask("job", { job: job.id }));
    changes.push({ job_id: job.id, prev_status: statusOf(job), new_status });
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

function jobId(value: unknown): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value > 0) return value;
  throw badRequest();
}

/** Removes the ended jobs of fuq's kind. Other jobs in the queue are not fuq's. */
export async function jobClear(ask: PerformOperation): Promise<object> {
  for (const status of ["finished", "cancelled"] as const) {
    for (const { id, recipe } of await jobs(ask, status)) {
      if (programOf(recipe) === undefined) continue;
      await ask("remove", { job: id }).catch((cause: unknown) => {
        // Another client has removed it, or started it again.
        if (!["LABORO_NO_SUCH_JOB", "LABORO_JOB_OPEN"].includes(asLaboroError(cause).code)) throw cause;
      });
    }
  }
  return {};
}

// Workers

/** Connected workers, or with `cookie_list` all with a valid cookie. The original's empty list is null. */
export async function nodesList(core: Core, nodes: Nodes, given: JsonFields): Promise<object[] | null> {
  const session = await nodes.session();
  const known = new Map((await nodes.all()).map(({ id, info }) => [id, info]));
  const connected = core.workers("fuq").filter(({ connected }) => connected);
  const entries = given.flag("cookie_list")
    ? Array.from(known.values(), (info) => entryOf(info, session))
    : connected.map((worker) => entryOf(known.get(worker.profile.id) ?? infoOf(worker), session));
  return entries.length === 0 ? null : entries;
}

const entryOf = ({ node, pid, uniqueName, tags, nproc }: NodeInfo, session: string) => ({
  node,
  pid,
  session,
  unique_name: uniqueName,
  ...(tags.length === 0 ? {} : { tags }),
  nproc,
});

/** A worker at another listener has reported only its slots. */
const infoOf = ({ profile: { name, tags, total, address = name } }: KnownWorker): NodeInfo => ({
  node: address,
  pid: 0,
  uniqueName: name,
  tags,
  nproc: total.slots,
});

/** They finish their tasks and exit. An unknown name is no error: that worker may have exited already. */
export async function nodesShutdown(core: Core, nodes: Nodes, given: JsonFields): Promise<object> {
  const names = new Set(given.texts("uniq_names"));
  for (const name of names) {
    const node = await nodes.findByName(name);
    // A disconnected one is stopped when it reconnects.
    if (node !== undefined) node.stopping = true;
  }
  stop(core, (name) => names.has(name));
  return {};
}

/** Stops all workers that speak fuq. The broker continues, because it may have work of others. */
export async function shutdown(core: Core, nodes: Nodes): Promise<object> {
  for (const node of await nodes.all()) node.stopping = true;
  stop(core, () => true);
  return {};
}

function stop(core: Core, isMeant: (name: string) => boolean): void {
  for (const { profile } of core.workers("fuq")) {
    if (!isMeant(profile.name)) continue;
    core.workerDrains(profile.id);
    core.portOf(profile.id)?.stop();
  }
}

// Jobs in fuq's terms

function describeJob(job: JobView) {
  const { id, name, count, recipe } = job;
  const { dir, log } = recipe;
  const working_dir = typeof dir === "string" ? dir : "";
  return {
    job_id: id,
    name,
    num_tasks: count,
    working_dir,
    logging_dir: log === undefined ? "" : logDirectory(working_dir, log),
    command: programOf(recipe) ?? recipe.summary,
    status: statusOf(job),
  };
}

/** The program of a job of fuq's kind, which gets the number of its task and nothing else. */
function programOf(recipe: JobView["recipe"]): string | undefined {
  const [program, number, ...more] = ("argv" in recipe ? recipe.argv : undefined) ?? [];
  return typeof program === "string" && number === "{#}" && more.length === 0 ? program : undefined;
}

function submissionOf(given: JsonFields): Submission {
  const name = given.text("name");
  const command = given.text("command");
  const dir = given.text("working_dir");
  const logs = given.text("logging_dir");
  const count = given.integer("num_tasks");
  if (name === "" || command === "" || dir === "" || count < 1) throw badRequest();
  // In a recipe they would be replaced.
  if (PLACEHOLDER.test(command + name + logs))
    throw new HttpError(400, "400 bad request: placeholders such as {} and {#} are not taken");
  const log = logs === "" ? {} : { log: join(logs, `${name}_{#}.log`) };
  return {
    name,
    count,
    recipe: { kind: "command", argv: [command, "{#}"], placeholders: true, dir, ...log },
    held: given.text("status") === "paused",
  };
}

const STATUS_OF: Readonly<Record<JobView["state"], Status>> = {
  held: "paused",
  blocked: "waiting",
  delayed: "waiting",
  waiting: "waiting",
  running: "running",
  succeeded: "finished",
  failed: "finished",
  cancelled: "cancelled",
};

/** A job of which a task has ended is running until it ends, whether or not a task runs now. */
function statusOf({ state, counters }: Pick<JobView, "state" | "counters">): Status {
  const status = STATUS_OF[state];
  return status === "waiting" && finishedCount(counters) > 0 ? "running" : status;
}
