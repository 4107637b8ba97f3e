/**
 * A batch has an identity: what it runs, where, and its name; not its entries. When the same batch is asked for again while an
 * earlier one of that identity is not finished, it goes on instead of beginning anew, and tasks are matched by their entry: one
 * that succeeded is not run again, whatever its index was.
 */
import { createHash } from "node:crypto";
import type { Client } from "../../../client/client.js";
import type { TaskEnd } from "../../../model/outcome.js";
import { contains, type Ranges } from "../../../model/ranges.js";
import { type Bytes, DEFAULT_POOL, numberAt, type Stride } from "../../../model/recipe.js";
import type { OwnSubmission } from "../submission/options.js";
import type { JobView, OperationOutput, TaskView } from "../views.js";
import { commandLine } from "./command-line.js";
import { shownEntry } from "./output-printer.js";

export interface Begun {
  readonly job: number;
  /** How many tasks the job has. */
  readonly count: number;
  /** What a task is called: its entry, its number of the array, or its index. */
  readonly labelOf: (index: number) => string;
  /** What it runs, as it could be typed. */
  readonly commandOf: (index: number) => string;
  /** Words for a person, where the job was begun with other options than were given now. */
  readonly differs?: string;
  readonly resumed: boolean;
  /** How much of what was asked for was done before, and how much is left. */
  readonly before: number;
  readonly left: number;
  /** Tasks of the job that ended in an earlier run. */
  readonly ended: ReadonlySet<number>;
}

/** Bytes in a recipe enter the hash as bytes, so that a changed script is another batch. */
export function identityOf(submission: OwnSubmission): string {
  const text = JSON.stringify([submission.recipe, submission.name ?? ""], (_key, value: unknown) =>
    value instanceof Uint8Array ? `bytes:${Buffer.from(value).toString("base64")}` : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}

export async function begin(client: Client, submission: OwnSubmission, fresh: boolean): Promise<Begun> {
  const keyed = { ...submission, key: identityOf(submission) };
  const { jobs } = await client.ask("jobs", { key: keyed.key, state: ["open"], limit: 1 });
  const [open] = jobs;
  if (open === undefined) return anew(client, keyed);
  if (!fresh) return goOn(client, open, keyed);
  await client.ask("cancel", { job: open.id, reason: "a fresh one was asked for" });
  return anew(client, keyed);
}

async function anew(client: Client, submission: OwnSubmission, before = 0): Promise<Begun> {
  const { id } = await client.submit(submission);
  const count = submission.entries?.length ?? submission.count ?? 1;
  return { job: id, count, ...namesOf(submission), resumed: before > 0, before, left: count, ended: new Set() };
}

async function goOn(client: Client, open: JobView, submission: OwnSubmission): Promise<Begun> {
  const wanted = submission.entries;
  const ended = await endedTasks(client, open.id);
  if (wanted === undefined) {
    // Numbers are part of the recipe, so the count is the same.
    return attach(client, open, submission, ended);
  }
  const had = await entriesOf(client, open.id);
  const same = had.length === wanted.length && wanted.every((entry, i) => textOf(entry) === textOf(had[i] ?? ""));
  if (same) return attach(client, open, submission, ended);
  const left = notYetDone(ended, had, wanted);
  await client.ask("cancel", { job: open.id, reason: "its batch goes on with other entries" });
  if (left.length > 0) return anew(client, { ...submission, entries: left }, wanted.length - left.length);
  const all = new Set(ended.map(({ index }) => index));
  const names = namesOf({ ...submission, entries: had });
  return { job: open.id, count: open.count, ...names, resumed: true, before: wanted.length, left: 0, ended: all };
}

async function attach(
  client: Client,
  open: JobView,
  submission: OwnSubmission,
  done: readonly TaskView[],
): Promise<Begun> {
  if (open.held) await client.ask("release", { job: open.id });
  const ended = new Set(done.map(({ index }) => index));
  const left = open.count - ended.size;
  const differs = differences(open, submission);
  const found = {
    job: open.id,
    count: open.count,
    ...namesOf(submission),
    resumed: true,
    before: ended.size,
    left,
    ended,
  };
  return differs === undefined ? found : { ...found, differs };
}

/** Which ended tasks run again. */
export interface Again {
  readonly ends: readonly TaskEnd[];
  readonly tasks?: Ranges;
}

/** Let ended tasks of a job run again. */
export async function again(client: Client, job: number, wish: Again): Promise<Begun> {
  const view = await client.ask("job", { job });
  const goes = ({ state, index }: TaskView): boolean =>
    wish.ends.includes(state) && (wish.tasks === undefined || contains(wish.tasks, index));
  // Looked at before: some may have ended again by the time that the answer comes.
  const ended = new Set((await endedTasks(client, job)).filter((task) => !goes(task)).map(({ index }) => index));
  await client.ask("rerun", { job, ...wish });
  const { array } = view.recipe;
  const labels = view.hasEntries ? { entries: await entriesOf(client, job) } : {};
  const labelOf = labelsOf({ ...labels, recipe: array === undefined ? {} : { array } });
  const commandOf = (): string => view.recipe.summary;
  return {
    job,
    count: view.count,
    labelOf,
    commandOf,
    resumed: false,
    before: ended.size,
    left: view.count - ended.size,
    ended,
  };
}

/** What of the options that were given now is not what the job was begun with. */
function differences(open: JobView, given: OwnSubmission): string | undefined {
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
  const other = pairs.filter(([, begun, now]) => begun !== now).map(([name]) => name);
  return other.length === 0 ? undefined : `it was begun with other options: ${other.join(", ")}`;
}

const namesOf = (submission: OwnSubmission): Pick<Begun, "labelOf" | "commandOf"> => ({
  labelOf: labelsOf(submission),
  commandOf: (index) => commandLine(submission, index),
});

/** As much of a submission as its tasks are called by. */
interface Labelled {
  readonly entries?: readonly Bytes[];
  readonly recipe: { readonly array?: readonly Stride[] } | OwnSubmission["recipe"];
}

function labelsOf({ entries, recipe }: Labelled): (index: number) => string {
  return (index) => {
    const entry = entries?.[index];
    if (entry !== undefined) return shownEntry(entry);
    const number = "array" in recipe && recipe.array !== undefined ? numberAt(recipe.array, index) : undefined;
    return String(number ?? index);
  };
}

async function endedTasks(client: Client, job: number): Promise<TaskView[]> {
  const found: TaskView[] = [];
  for (let from: number | undefined = 0; from !== undefined; ) {
    const page: OperationOutput<"tasks"> = await client.ask("tasks", { job, from });
    found.push(...page.tasks);
    from = page.next;
  }
  return found;
}

async function entriesOf(client: Client, job: number): Promise<Bytes[]> {
  const found: Bytes[] = [];
  for (let from: number | undefined = 0; from !== undefined; ) {
    const page: OperationOutput<"entries"> = await client.ask("entries", { job, from, limit: 10_000 });
    found.push(...page.entries);
    from = page.next;
  }
  return found;
}

/** Of these entries, those that have not succeeded in the earlier job; one that stands twice must have succeeded twice. */
function notYetDone(ended: readonly TaskView[], had: readonly Bytes[], wanted: readonly Bytes[]): readonly Bytes[] {
  const done = new Map<string, number>();
  for (const { index, state } of ended) {
    const entry = had[index];
    if (state === "succeeded" && entry !== undefined) done.set(textOf(entry), (done.get(textOf(entry)) ?? 0) + 1);
  }
  return wanted.filter((entry) => {
    const count = done.get(textOf(entry)) ?? 0;
    if (count > 0) done.set(textOf(entry), count - 1);
    return count === 0;
  });
}

const textOf = (entry: Bytes): string => Buffer.from(entry).toString("latin1");
