/**
 * A batch has an identity: its recipe and its name, without the entries. If an earlier batch of the same identity is not finished, it is
 * resumed instead of submitting a new one. Tasks are matched by entry: one that succeeded does not run again, whatever its index was.
 */
import { createHash } from "node:crypto";
import type { Client } from "../../../client/client.js";
import type { TaskEnd } from "../../../model/outcome.js";
import { contains, type Ranges } from "../../../model/ranges.js";
import { type Bytes, DEFAULT_POOL, numberAt, type Stride } from "../../../model/recipe.js";
import type { ParsedSubmission } from "../submission/options.js";
import type { JobView, OperationOutput, TaskView } from "../views.js";
import { commandLine } from "./command-line.js";
import { entryLabel } from "./output-printer.js";

export interface StartedBatch {
  readonly job: number;
  /** How many tasks the job has. */
  readonly count: number;
  /** What a task is called: its entry, its number of the array, or its index. */
  readonly labelOf: (index: number) => string;
  /** The command of a task, as it could be typed. */
  readonly commandOf: (index: number) => string;
  /** Set if the job was started with other options than were given now: a text for people. */
  readonly differenceText?: string;
  readonly resumed: boolean;
  /** How many of the requested tasks ended in an earlier run. */
  readonly doneBefore: number;
  readonly remaining: number;
  /** Tasks of the job that ended in an earlier run. */
  readonly endedBefore: ReadonlySet<number>;
}

/** Bytes in a recipe enter the hash as bytes, so that a changed script is another batch. */
export function batchKey(submission: ParsedSubmission): string {
  const text = JSON.stringify([submission.recipe, submission.name ?? ""], (_key, value: unknown) =>
    value instanceof Uint8Array ? `bytes:${Buffer.from(value).toString("base64")}` : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}

export async function startOrResume(
  client: Client,
  submission: ParsedSubmission,
  fresh: boolean,
): Promise<StartedBatch> {
  const keyed = { ...submission, key: batchKey(submission) };
  const { jobs } = await client.ask("jobs", { key: keyed.key, state: ["open"], limit: 1 });
  const [open] = jobs;
  if (open === undefined) return submitNew(client, keyed);
  if (!fresh) return resume(client, open, keyed);
  await client.ask("cancel", { job: open.id, reason: "a fresh one was asked for" });
  return submitNew(client, keyed);
}

async function submitNew(client: Client, submission: ParsedSubmission, doneBefore = 0): Promise<StartedBatch> {
  const { id } = await client.submit(submission);
  const count = submission.entries?.length ?? submission.count ?? 1;
  return {
    job: id,
    count,
    ...taskNames(submission),
    resumed: doneBefore > 0,
    doneBefore,
    remaining: count,
    endedBefore: new Set(),
  };
}

async function resume(client: Client, open: JobView, submission: ParsedSubmission): Promise<StartedBatch> {
  const wanted = submission.entries;
  const ended = await allEndedTasks(client, open.id);
  if (wanted === undefined) {
    // Numbers are part of the recipe, so the count is the same.
    return attach(client, open, submission, ended);
  }
  const had = await fetchEntries(client, open.id);
  const same = had.length === wanted.length && wanted.every((entry, i) => entryKey(entry) === entryKey(had[i] ?? ""));
  if (same) return attach(client, open, submission, ended);
  const remaining = remainingEntries(ended, had, wanted);
  await client.ask("cancel", { job: open.id, reason: "its batch goes on with other entries" });
  if (remaining.length > 0)
    return submitNew(client, { ...submission, entries: remaining }, wanted.length - remaining.length);
  const endedBefore = new Set(ended.map(({ index }) => index));
  const names = taskNames({ ...submission, entries: had });
  return {
    job: open.id,
    count: open.count,
    ...names,
    resumed: true,
    doneBefore: wanted.length,
    remaining: 0,
    endedBefore,
  };
}

async function attach(
  client: Client,
  open: JobView,
  submission: ParsedSubmission,
  done: readonly TaskView[],
): Promise<StartedBatch> {
  if (open.held) await client.ask("release", { job: open.id });
  const endedBefore = new Set(done.map(({ index }) => index));
  const differenceText = differences(open, submission);
  return {
    job: open.id,
    count: open.count,
    ...taskNames(submission),
    resumed: true,
    doneBefore: endedBefore.size,
    remaining: open.count - endedBefore.size,
    endedBefore,
    ...(differenceText === undefined ? {} : { differenceText }),
  };
}

/** Which ended tasks run again. */
export interface RerunSelection {
  readonly states: readonly TaskEnd[];
  readonly tasks?: Ranges;
}

/** Let ended tasks of a job run again. Undefined where there are none. */
export async function rerunTasks(
  client: Client,
  job: number,
  selection: RerunSelection,
): Promise<StartedBatch | undefined> {
  const view = await client.ask("job", { job });
  const runsAgain = ({ state, index }: TaskView): boolean =>
    selection.states.includes(state) && (selection.tasks === undefined || contains(selection.tasks, index));
  // Read before the rerun: some tasks may have ended again when it returns.
  const endedBefore = new Set(
    (await allEndedTasks(client, job)).filter((task) => !runsAgain(task)).map(({ index }) => index),
  );
  const { count } = await client.ask("rerun", { job, ...selection });
  if (count === 0) return undefined;
  const { array } = view.recipe;
  const labels = view.hasEntries ? { entries: await fetchEntries(client, job) } : {};
  const labelOf = taskLabels({ ...labels, recipe: array === undefined ? {} : { array } });
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
  };
}

/** Which of the options given now differ from those that the job was started with. */
function differences(open: JobView, given: ParsedSubmission): string | undefined {
  const { limits, needs } = open;
  const pairs: readonly [string, unknown, unknown][] = [
    ["--slots", needs.slots, given.needs?.slots ?? 1],
    ["--priority", open.priority, given.priority ?? 0],
    ["--retries", limits.retries, given.retries ?? 0],
    ["--max-running", limits.maxRunning, given.maxRunning],
    ["--max-fails", limits.maxFails, given.maxFails],
    ["--time-limit", limits.timeLimitMs, given.timeLimitMs],
    ["--pool", open.pool, given.pool ?? DEFAULT_POOL],
  ];
  const other = pairs.filter(([, before, now]) => before !== now).map(([name]) => name);
  return other.length === 0 ? undefined : `it was begun with other options: ${other.join(", ")}`;
}

const taskNames = (submission: ParsedSubmission): Pick<StartedBatch, "labelOf" | "commandOf"> => ({
  labelOf: taskLabels(submission),
  commandOf: (index) => commandLine(submission, index),
});

/** The part of a submission that the labels of its tasks depend on. */
interface LabelSource {
  readonly entries?: readonly Bytes[];
  readonly recipe: { readonly array?: readonly Stride[] } | ParsedSubmission["recipe"];
}

function taskLabels({ entries, recipe }: LabelSource): (index: number) => string {
  return (index) => {
    const entry = entries?.[index];
    if (entry !== undefined) return entryLabel(entry);
    const number = "array" in recipe && recipe.array !== undefined ? numberAt(recipe.array, index) : undefined;
    return String(number ?? index);
  };
}

async function allEndedTasks(client: Client, job: number): Promise<TaskView[]> {
  const found: TaskView[] = [];
  for (let from: number | undefined = 0; from !== undefined; ) {
    const page: OperationOutput<"tasks"> = await client.ask("tasks", { job, from });
    found.push(...page.tasks);
    from = page.next;
  }
  return found;
}

async function fetchEntries(client: Client, job: number): Promise<Bytes[]> {
  const found: Bytes[] = [];
  for (let from: number | undefined = 0; from !== undefined; ) {
    const page: OperationOutput<"entries"> = await client.ask("entries", { job, from, limit: 10_000 });
    found.push(...page.entries);
    from = page.next;
  }
  return found;
}

/** The wanted entries that have not succeeded in the earlier job. An entry that occurs twice must have succeeded twice. */
function remainingEntries(
  ended: readonly TaskView[],
  had: readonly Bytes[],
  wanted: readonly Bytes[],
): readonly Bytes[] {
  const done = new Map<string, number>();
  for (const { index, state } of ended) {
    const entry = had[index];
    if (state === "succeeded" && entry !== undefined) done.set(entryKey(entry), (done.get(entryKey(entry)) ?? 0) + 1);
  }
  return wanted.filter((entry) => {
    const count = done.get(entryKey(entry)) ?? 0;
    if (count > 0) done.set(entryKey(entry), count - 1);
    return count === 0;
  });
}

const entryKey = (entry: Bytes): string => Buffer.from(entry).toString("latin1");
