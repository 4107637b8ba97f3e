/**
 * A batch has an identity: its recipe and its name, without the entries. If an earlier batch of the same identity is
 * not finished and has one of the entries, it is resumed instead of submitting a new one. Tasks are matched by entry:
 * one that succeeded does not run again, and one that did not keeps its number. If some entries differ, a new job runs
 * what remains; new entries get the numbers after the last.
 *
 * A batch is finished when its job has ended and all of its output was printed (batch-files.ts). Output of tasks that
 * ended in an earlier run, and was not printed by it, is printed first.
 */
import { createHash } from "node:crypto";
import { LaboroError } from "../../../base/errors.js";
import type { Client } from "../../../client/client.js";
import { sendFiles, submitWithFiles } from "../../../client/task-files.js";
import { haltRuleOf } from "../../../model/job.js";
import type { TaskEnd } from "../../../model/outcome.js";
import { expandPaths, taskCommand } from "../../../model/placeholders.js";
import { contains, type Ranges, rangesOf } from "../../../model/ranges.js";
import { type Bytes, DEFAULT_POOL, PLACEHOLDER } from "../../../model/recipe.js";
import { filesOfTask } from "../../../model/task-files.js";
import { type Strides, taskNumber } from "../../../model/task-numbers.js";
import { entryLabel, type JobView, pages, type TaskView } from "../result-text.js";
import { getJob } from "../select-jobs.js";
import type { ParsedSubmission } from "../submission/options.js";
import { ENTRY_AS_LINE, EVAL_ENTRY } from "../submission/parallel-options.js";
import type { JobRecord } from "./batch-files.js";

export interface StartedBatch {
  readonly job: number;
  /** How many tasks the job has. */
  readonly count: number;
  /** The entry of a task, or its number if it has none. */
  readonly labelOf: (index: number) => string;
  readonly entryOf?: (index: number) => string | undefined;
  /** The command of a task, as it could be typed in a shell. */
  readonly commandOf: (index: number) => string;
  /** Set if the job was started with other options than now: says which. */
  readonly differenceText?: string;
  readonly resumed: boolean;
  /** How many of the requested tasks ended in an earlier run. */
  readonly doneBefore: number;
  readonly remaining: number;
  /** Tasks of the job that ended in an earlier run. */
  readonly endedBefore: ReadonlySet<number>;
  /** The jobs with tasks that ended in earlier runs: this one if it was resumed, and those that it resumes. */
  readonly earlier: readonly EarlierJob[];
  /** For a finished job: tasks that ended and do not run again. */
  readonly shownBefore?: readonly TaskView[];
  /** Jobs that are not resumed any more. */
  readonly dropped?: readonly JobRecord[];
}

interface EarlierJob {
  readonly job: JobView;
  readonly ended: readonly TaskView[];
  readonly labelOf: (index: number) => string;
}

/** Includes the bytes of a script, so that a changed script is another batch. */
export function batchKey(submission: ParsedSubmission): string {
  const text = JSON.stringify([keyedRecipe(submission.recipe), submission.name ?? ""], (_key, value: unknown) =>
    value instanceof Uint8Array ? `bytes:${Buffer.from(value).toString("base64")}` : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}

/** Files that every task gets belong to the batch, as a script does. Those of one entry come and go with it. */
function keyedRecipe(recipe: ParsedSubmission["recipe"]): ParsedSubmission["recipe"] {
  if (recipe.kind === "call" || recipe.files?.sent === undefined) return recipe;
  const { sent, use = [] } = recipe.files;
  const fixed = use.filter((path) => !PLACEHOLDER.test(path));
  const common = filesOfTask(sent, expandPaths(fixed, { number: 0 }, "--send"));
  return { ...recipe, files: { ...recipe.files, sent: sent.filter((_, place) => common.includes(place)) } };
}

/** `unfinished`: jobs of this command whose output was not printed completely. They may have ended. */
export async function startOrResume(
  client: Client,
  submission: ParsedSubmission,
  fresh: boolean,
  unfinished: readonly JobRecord[],
): Promise<StartedBatch> {
  const keyed = { ...submission, batchKey: batchKey(submission) };
  const { jobs } = await client.ask("jobs", { batchKey: keyed.batchKey, state: ["open"] });
  const dropped: JobRecord[] = [];
  const ended: JobView[] = [];
  for (const record of unfinished) {
    if (jobs.some(({ id }) => id === record.id)) continue;
    const job = await endedJob(client, record);
    if (job === undefined) dropped.push(record);
    else ended.push(job);
  }
  for (const job of [...jobs, ...ended]) {
    const batch = await batchOf(client, job, keyed.entries);
    if (batch === undefined) continue;
    if (!fresh) return { ...(await resume(client, batch, keyed)), dropped };
    if (job.ended === undefined) await client.ask("cancel", { job: job.id, reason: "a fresh one was asked for" });
    dropped.push({ key: keyed.batchKey, id: job.id, created: job.created });
  }
  return { ...(await submitNew(client, keyed)), dropped };
}

/** Undefined if the job was cancelled or removed: such a job is not resumed. */
async function endedJob(client: Client, { id, created }: JobRecord): Promise<JobView | undefined> {
  const job = await getJob(client, id).catch(ignoreRemoved);
  return job?.state === "cancelled" || job?.created !== created ? undefined : job;
}

async function submitNew(
  client: Client,
  submission: ParsedSubmission,
  doneBefore = 0,
  earlier: readonly EarlierJob[] = [],
): Promise<StartedBatch> {
  const { id } = await submitWithFiles(client, submission, process.cwd());
  const count = submission.entries?.length ?? submission.count ?? 1;
  return {
    job: id,
    count,
    ...taskNames(submission),
    resumed: doneBefore > 0,
    doneBefore,
    remaining: count,
    endedBefore: new Set(),
    earlier,
  };
}

interface UnfinishedBatch {
  readonly job: JobView;
  readonly entries: readonly Bytes[];
  readonly tasks: readonly BatchTask[];
  /** The job itself, and those that it resumes. */
  readonly earlier: readonly [EarlierJob, ...EarlierJob[]];
  /** Tasks of the jobs that this one resumes. */
  readonly earlierTasks: readonly BatchTask[];
}

/** Undefined if the job has none of the wanted entries: then it is another batch, which may be running. */
async function batchOf(
  client: Client,
  job: JobView,
  wanted: readonly Bytes[] | undefined,
): Promise<UnfinishedBatch | undefined> {
  if (job.hasEntries !== (wanted !== undefined)) return undefined;
  const ended = await allEndedTasks(client, job.id);
  const entries = wanted === undefined ? [] : await fetchEntries(client, job.id);
  const own = { job, ended, labelOf: taskLabels(job, wanted === undefined ? undefined : entries) };
  if (wanted === undefined) return { job, entries, tasks: [], earlier: [own], earlierTasks: [] };
  const tasks = jobTasks(job, entries, ended);
  const before = await earlierTasks(client, job);
  const known = new Set([...tasks, ...before.tasks].map(({ entry }) => entryKey(entry)));
  if (!wanted.some((entry) => known.has(entryKey(entry)))) return undefined;
  return { job, entries, tasks, earlier: [own, ...before.jobs], earlierTasks: before.tasks };
}

async function resume(client: Client, batch: UnfinishedBatch, submission: ParsedSubmission): Promise<StartedBatch> {
  const { job: open, entries: had, tasks, earlier } = batch;
  const wanted = submission.entries;
  // Numbers are part of the recipe, so the count is the same.
  if (wanted === undefined) return attach(client, open, submission, earlier);
  const current = { ...submission, entries: had, ...(open.numbers && { numbers: open.numbers }) };
  const { chosen, remaining } = matchEntries([...tasks, ...batch.earlierTasks], submission);
  const own = new Set(tasks.map(({ number }) => number));
  const covered = remaining.every(({ number }) => own.has(number)) && tasks.every(({ number }) => chosen.has(number));
  if (covered) return attach(client, open, current, earlier, wanted.length - tasks.length);
  if (open.ended === undefined)
    await client.ask("cancel", { job: open.id, reason: "a later run resumed it with other entries" });
  const doneBefore = wanted.length - remaining.length;
  if (remaining.length > 0) {
    const entries = remaining.map(({ entry }) => entry);
    const numbers = rangesOf(remaining.map(({ number }) => number)).map((range) => ({ ...range, step: 1 }));
    // `--after last` may name a job of this batch.
    const after = submission.after?.filter((other) => !earlier.some(({ job }) => job.id === other.job)) ?? [];
    return submitNew(client, { ...submission, entries, numbers, after, resumes: open.id }, doneBefore, earlier);
  }
  const endedBefore = new Set(earlier[0].ended.map(({ index }) => index));
  return {
    job: open.id,
    count: open.count,
    ...taskNames(current),
    resumed: true,
    doneBefore,
    remaining: 0,
    endedBefore,
    earlier,
  };
}

interface BatchTask {
  readonly number: number;
  readonly entry: Bytes;
  readonly succeeded: boolean;
}

function jobTasks(job: JobView, entries: readonly Bytes[], ended: readonly TaskView[]): BatchTask[] {
  const succeeded = new Set(ended.filter(({ state }) => state === "succeeded").map(({ index }) => index));
  return entries.map((entry, index) => ({ number: taskNumber(job, index), entry, succeeded: succeeded.has(index) }));
}

/** The jobs that this one resumes, and their tasks that are not in this job. */
async function earlierTasks(client: Client, open: JobView): Promise<{ tasks: BatchTask[]; jobs: EarlierJob[] }> {
  const found = new Map<number, BatchTask>();
  const jobs: EarlierJob[] = [];
  for (let id = open.resumes; id !== undefined; ) {
    const job: JobView | undefined = await getJob(client, id).catch(ignoreRemoved);
    if (job === undefined) break;
    const [entries, ended] = [await fetchEntries(client, id), await allEndedTasks(client, id)];
    jobs.push({ job, ended, labelOf: taskLabels(job, entries) });
    for (const task of jobTasks(job, entries, ended)) if (!found.has(task.number)) found.set(task.number, task);
    id = job.resumes;
  }
  for (let index = 0; index < open.count; index++) found.delete(taskNumber(open, index));
  return { tasks: [...found.values()], jobs };
}

function ignoreRemoved(cause: unknown): undefined {
  if (!(cause instanceof LaboroError) || cause.code !== "LABORO_NO_SUCH_JOB") throw cause;
}

async function attach(
  client: Client,
  open: JobView,
  submission: ParsedSubmission,
  earlier: readonly [EarlierJob, ...EarlierJob[]],
  doneEarlier = 0,
): Promise<StartedBatch> {
  if (open.held && open.ended === undefined) {
    if (open.recipe.files !== undefined) await sendMissing(client, open.id);
    await client.ask("release", { job: open.id });
  }
  const endedBefore = new Set(earlier[0].ended.map(({ index }) => index));
  const differenceText = differences(open, submission);
  return {
    job: open.id,
    count: open.count,
    ...taskNames(submission),
    resumed: true,
    doneBefore: doneEarlier + endedBefore.size,
    remaining: open.count - endedBefore.size,
    endedBefore,
    earlier,
    ...(differenceText === undefined ? {} : { differenceText }),
  };
}

/** The run before may have ended while it sent files. */
async function sendMissing(client: Client, job: number): Promise<void> {
  const { recipe } = await client.ask("job", { job, content: true });
  await sendFiles(client, job, recipe.files?.sent ?? [], process.cwd());
}

/** Which ended tasks run again. */
export interface RerunSelection {
  readonly states: readonly TaskEnd[];
  readonly tasks?: Ranges;
}

/** Runs ended tasks of a job again. Undefined if there are none, except for a whole job that is unfinished. */
export async function rerunTasks(
  client: Client,
  job: number,
  selection: RerunSelection,
): Promise<StartedBatch | undefined> {
  const view = await client.ask("job", { job });
  const runsAgain = ({ state, index }: TaskView): boolean =>
    selection.states.includes(state) && (selection.tasks === undefined || contains(selection.tasks, index));
  // Read before the rerun, because some tasks may have ended again when it returns.
  const shownBefore = (await allEndedTasks(client, job)).filter((task) => !runsAgain(task));
  const endedBefore = new Set(shownBefore.map(({ index }) => index));
  const { count } = await client.ask("rerun", { job, ...selection });
  const isWhole = selection.tasks === undefined && selection.states.includes("cancelled");
  if (count === 0 && !(isWhole && view.ended === undefined)) return undefined;
  const labelOf = taskLabels(view, view.hasEntries ? await fetchEntries(client, job) : undefined);
  const commandOf = (): string => view.recipe.summary;
  return {
    job,
    count: view.count,
    labelOf,
    commandOf,
    resumed: false,
    doneBefore: endedBefore.size,
    remaining: view.count - endedBefore.size,
    endedBefore,
    earlier: [],
    shownBefore,
  };
}

const haltText = (limits: Parameters<typeof haltRuleOf>[0]): string => JSON.stringify(haltRuleOf(limits) ?? "");

/** The options that differ from those with which the job was started. */
function differences(open: JobView, given: ParsedSubmission): string | undefined {
  const { limits, needs } = open;
  const pairs: readonly [string, unknown, unknown][] = [
    ["--slots", needs.slots, given.needs?.slots ?? 1],
    ["--priority", open.priority, given.priority ?? 0],
    ["--retries", limits.retries, given.retries ?? 0],
    ["--max-running", limits.maxRunning, given.maxRunning],
    ["--halt", haltText(limits), haltText(given)],
    ["--time-limit", limits.timeLimitMs, given.timeLimitMs],
    ["--time-request", limits.timeRequestMs, given.timeRequestMs],
    ["--pool", open.pool, given.pool ?? DEFAULT_POOL],
  ];
  const other = pairs.filter(([, before, now]) => before !== now).map(([name]) => name);
  return other.length === 0
    ? undefined
    : `it keeps the options it was started with, which differ in ${other.join(", ")}`;
}

const taskNames = (submission: ParsedSubmission): Pick<StartedBatch, "labelOf" | "entryOf" | "commandOf"> => ({
  labelOf: taskLabels(submission, submission.entries),
  entryOf: (index) => {
    const entry = submission.entries?.[index];
    if (entry !== undefined) return Buffer.from(entry).toString();
    return "array" in submission.recipe ? String(taskNumber(submission, index)) : undefined;
  },
  commandOf: (index) => commandLine(submission, index),
});

function taskLabels(
  job: { readonly recipe: JobView["recipe"] | ParsedSubmission["recipe"]; readonly numbers?: Strides },
  entries: readonly Bytes[] | undefined,
): (index: number) => string {
  return (index) => {
    const entry = entries?.[index];
    return entry === undefined ? String(taskNumber(job, index)) : entryLabel(entry);
  };
}

async function allEndedTasks(client: Client, job: number): Promise<TaskView[]> {
  const found: TaskView[] = [];
  for await (const page of pages((from) => client.ask("tasks", { job, from }))) found.push(...page.tasks);
  return found;
}

async function fetchEntries(client: Client, job: number): Promise<Bytes[]> {
  const found: Bytes[] = [];
  const read = (from: number) => client.ask("entries", { job, from, limit: 10_000 });
  for await (const page of pages(read)) found.push(...page.entries);
  return found;
}

/**
 * Finds the task of each wanted entry. `chosen`: the numbers of existing tasks. `remaining`: the tasks to run, by
 * number. An entry that occurs twice must have succeeded twice.
 */
function matchEntries(
  tasks: readonly BatchTask[],
  submission: ParsedSubmission,
): { readonly chosen: ReadonlySet<number>; readonly remaining: readonly BatchTask[] } {
  const byEntry = new Map<string, BatchTask[]>();
  let highest = 0;
  // The last of a list is taken first: succeeded tasks before others, then the lowest number.
  for (const task of [...tasks].sort((a, b) => Number(a.succeeded) - Number(b.succeeded) || b.number - a.number)) {
    highest = Math.max(highest, task.number);
    const same = byEntry.get(entryKey(task.entry));
    if (same === undefined) byEntry.set(entryKey(task.entry), [task]);
    else same.push(task);
  }
  const chosen = new Set<number>();
  const remaining: BatchTask[] = [];
  const used = new Set(tasks.map(({ number }) => number));
  for (const [index, entry] of (submission.entries ?? []).entries()) {
    const task = byEntry.get(entryKey(entry))?.pop();
    if (task !== undefined) chosen.add(task.number);
    if (task?.succeeded === true) continue;
    if (task !== undefined) {
      remaining.push(task);
      continue;
    }
    // The number that it has in the list, if tasks of the list were chosen.
    const own = submission.numbers === undefined ? undefined : taskNumber(submission, index);
    const number = own !== undefined && !used.has(own) ? own : highest + 1;
    highest = Math.max(highest, number);
    remaining.push({ number, entry, succeeded: false });
  }
  return { chosen, remaining: remaining.sort((a, b) => a.number - b.number) };
}

const entryKey = (entry: Bytes): string => Buffer.from(entry).toString("latin1");

/** The command of a task, as it could be typed in a shell. */
export function commandLine(submission: ParsedSubmission, index: number): string {
  const { recipe, entries } = submission;
  const number = taskNumber(submission, index);
  const entry = entries?.[index] ?? ("array" in recipe && recipe.array !== undefined ? String(number) : undefined);
  const argv = recipe.kind === "command" ? recipe.argv : [];
  const isLine = argv.at(-1) === EVAL_ENTRY || argv.join(" ") === ENTRY_AS_LINE.join(" ");
  if (isLine && entry !== undefined) return Buffer.from(entry).toString();
  return taskCommand(recipe, { number, entry });
}
