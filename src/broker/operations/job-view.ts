/** A job in the API, lists of jobs, and removing ended ones. */
import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import { shellWord } from "../../base/format.js";
import type { State } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import { definedOnly } from "../../model/input.js";
import { type Counters, END_STATES, finishedCount, type Job, type Limits, NO_OUTPUT_CAP } from "../../model/job.js";
import { amount, haltRule, retry } from "../../model/job-input.js";
import { MAX_LIMITS_OF_JOB } from "../../model/limit.js";
import { ALL, type Bytes, outputFiles, type Recipe, sentFile } from "../../model/recipe.js";
import * as s from "../../model/schema.js";
import type { JobFilter } from "../../model/store-reads.js";
import { MAX_FILES, MAX_PATH, type TaskFiles } from "../../model/task-files.js";
import { numbersOf } from "../../model/task-numbers.js";
import { type Role, roleAllows } from "../access/tokens.js";
import type { Core } from "../core.js";
import { tasksAtPeers } from "../group/group-view.js";
import { openJobState } from "../stats/counters.js";
import { job, limit, nothing, operation, rangesOut, requireJob } from "./operation.js";

export const OPEN_STATES = ["held", "blocked", "delayed", "waiting", "running"] as const;
const SUMMARY = 200;
const MAX_NUMBERS = 10_000_000;
const MAX_DEPENDENTS = 100;

const stride = s.object({ first: s.number(), last: s.number(), step: s.number() });
const words = s.optional(s.list(s.argument(), 100_000));
const size = s.optional(s.count("bytes; the content itself is sent only with content=true"));

const recipeView = s.object({
  kind: s.choice("command", "script", "call"),
  summary: s.described(s.text(SUMMARY), "one line for people"),
  argv: words,
  placeholders: s.optional(s.flag()),
  shell: s.optional(s.flag()),
  several: s.optional(s.choice("joined", "repeated")),
  log: s.optional(s.text(4096)),
  ...outputFiles,
  array: s.optional(s.list(stride, 10_000)),
  dir: s.optional(s.argument()),
  env: s.optional(s.record(s.argument())),
  envNames: s.optional(s.described(s.list(s.text(65_536), 100_000), "instead of env, for the role read")),
  type: s.optional(s.text()),
  args: words,
  service: s.optional(s.text()),
  stdinBytes: size,
  contentBytes: size,
  bodyBytes: size,
  stdin: s.optional(s.bytes()),
  content: s.optional(s.bytes()),
  body: s.optional(s.bytes()),
  files: s.optional(
    s.object({
      count: s.count("how many files were sent with the job"),
      sent: s.optional(s.described(s.list(sentFile, MAX_FILES), "which: only with content=true")),
      use: s.optional(s.list(s.text(MAX_PATH), 100)),
      returns: s.optional(s.list(s.text(MAX_PATH), 100)),
    }),
  ),
});

/** A number, or all that a worker has. */
const amountOut: s.Schema<number | "all"> = {
  read: (value, what) => (value === "all" ? "all" : s.number().read(value, what)),
  json: amount.json,
};

export const jobView = s.object({
  id: s.count(),
  name: s.text(),
  state: s.choice(...OPEN_STATES, ...END_STATES),
  count: s.count("how many tasks it has"),
  numbers: s.optional(
    s.described(s.list(stride, MAX_NUMBERS), "the numbers of its tasks, in order of index; 1, 2, 3 … if absent"),
  ),
  counters: s.object({
    succeeded: s.count(),
    failed: s.count(),
    cancelled: s.count(),
    running: s.count("started at a worker"),
    waiting: s.count("not started yet; prefetched ones are among them"),
  }),
  pool: s.text(),
  tags: s.list(s.text(), 100),
  service: s.optional(s.text()),
  needs: s.record(amountOut),
  priority: s.integer(-1000, 1000),
  key: s.optional(s.text()),
  keyForMs: s.optional(s.count()),
  batchKey: s.optional(s.text()),
  notBefore: s.optional(s.number("it starts no earlier than this; milliseconds since 1970")),
  delayMs: s.optional(s.count("the requested delay, if no time was given")),
  keepMs: s.optional(s.count("how long it is kept after its end; the broker's default if absent")),
  keepFailedMs: s.optional(s.count("the same for a job that did not succeed; keepMs if absent")),
  idempotencyKey: s.optional(s.described(s.text(), "of its submission; the SDK makes one")),
  resumes: s.optional(s.count("the job of the same batch whose remaining tasks it runs")),
  held: s.flag(),
  poolPaused: s.optional(s.flag("its pool is paused")),
  open: s.optional(s.flag("it takes more tasks, and does not end, until it is closed")),
  hasEntries: s.flag(),
  created: s.number("milliseconds since 1970"),
  ended: s.optional(s.number("milliseconds since 1970")),
  reason: s.optional(s.described(s.text(), "why it was cancelled")),
  cancels: s.described(rangesOut, "tasks with a cancel request"),
  recipe: recipeView,
  limits: s.object({
    retries: s.count(),
    retry: s.optional(retry),
    crashLimit: s.count(),
    maxFails: s.optional(s.count()),
    halt: s.optional(haltRule),
    maxRunning: s.optional(s.count()),
    named: s.optional(s.described(s.list(s.text(), MAX_LIMITS_OF_JOB), "the limits that its tasks count against")),
    timeLimitMs: s.optional(s.positive()),
    timeLimitPercent: s.optional(s.count()),
    timeRequestMs: s.optional(s.positive("a worker that ends sooner gets no task of the job")),
    outputCap: s.optional(s.count("output kept per task, in bytes; absent if all is kept")),
    relay: s.optional(s.flag("a client that follows the job gets all output")),
  }),
  after: s.list(s.object({ job: s.count(), any: s.flag(), each: s.optional(s.flag()) }), 1000),
  waitsFor: s.optional(s.described(s.list(s.count(), 1000), "the jobs of after that have not ended; absent if none")),
  dependents: s.optional(
    s.described(s.list(s.count(), MAX_DEPENDENTS), `open jobs that wait for it, the first ${MAX_DEPENDENTS}`),
  ),
});

export type JobView = s.ReadType<typeof jobView>;
type JobState = JobView["state"];

interface ViewOptions {
  /** The role of the caller. */
  readonly role: Role;
  /** With the bytes of the recipe. */
  readonly content?: boolean;
  /** How many of the job's tasks run at workers of other brokers. */
  readonly atPeers?: number | undefined;
}

export function viewOf(core: Core, job: Job, { role, content = false, atPeers = 0 }: ViewOptions): JobView {
  const { id, name, count, priority, held, hasEntries, created, reason, cancels, limits, resumes } = job;
  const numbers = numbersOf(job);
  const { pool, tags, needs, service } = job.requirement;
  const open = job.ended === undefined ? core.state.jobs.get(id) : undefined;
  // Dispatch may have newer counters than the store.
  const done = later(job.counters, open === undefined ? undefined : core.jobs.countersOf(id));
  const started = (open?.started ?? 0) + atPeers;
  const running = Math.min(started, count - finishedCount(done));
  const waiting = count - finishedCount(done) - running;
  return {
    id,
    name,
    state: job.ended?.state ?? stateOf(core.state, job, atPeers),
    count,
    ...(numbers === undefined ? {} : { numbers }),
    counters: { ...done, running, waiting },
    pool,
    tags,
    ...(service === undefined ? {} : { service }),
    needs: Object.fromEntries(Object.entries(needs).map(([name, amount]) => [name, amount === ALL ? "all" : amount])),
    priority,
    ...timesOf(job),
    ...(job.idempotencyKey === undefined ? {} : { idempotencyKey: job.idempotencyKey }),
    ...(resumes === undefined ? {} : { resumes }),
    held: open?.held ?? held,
    ...(open?.paused === true ? { poolPaused: true } : {}),
    ...(job.open === true ? { open: true } : {}),
    hasEntries,
    created,
    ...(job.ended === undefined ? {} : { ended: job.ended.at }),
    ...(reason === undefined ? {} : { reason }),
    cancels,
    recipe: viewOfRecipe(job.recipe, content, maySeeEnvironment(role)),
    limits: viewOfLimits(limits),
    after: job.after,
    ...related(core.state, id),
  };
}

function related(state: State, id: JobId): Pick<JobView, "waitsFor" | "dependents"> {
  const known = state.jobs.get(id);
  const waitsFor = [...(known?.blockedBy ?? []), ...(known?.each.keys() ?? [])];
  const dependents = Array.from(state.waitingFor.get(id) ?? [], (one) => one.id).slice(0, MAX_DEPENDENTS);
  return { ...(waitsFor.length > 0 ? { waitsFor } : {}), ...(dependents.length > 0 ? { dependents } : {}) };
}

const TIMES = ["key", "keyForMs", "batchKey", "notBefore", "delayMs", "keepMs", "keepFailedMs"] as const;

const timesOf = (job: Job): Partial<Pick<JobView, (typeof TIMES)[number]>> =>
  Object.fromEntries(TIMES.flatMap((name) => (job[name] === undefined ? [] : [[name, job[name]]])));

function viewOfLimits({ outputCap, ...limits }: Limits): JobView["limits"] {
  return outputCap === NO_OUTPUT_CAP ? limits : { ...limits, outputCap };
}

const later = (stored: Counters, current: Counters | undefined): Counters =>
  current !== undefined && finishedCount(current) > finishedCount(stored) ? current : stored;

function stateOf(state: State, { id, held, delayed }: Job, atPeers: number): (typeof OPEN_STATES)[number] {
  const open = state.jobs.get(id) ?? { held, delayed: delayed === true, blockedBy: new Set<JobId>(), started: 0 };
  return openJobState({ ...open, started: open.started + atPeers });
}

/** Environment variables often hold passwords. */
export const maySeeEnvironment = (role: Role): boolean => roleAllows(role, "client");

function viewOfRecipe(recipe: Recipe, content: boolean, environment: boolean): JobView["recipe"] {
  const view: Record<string, unknown> = { summary: summaryOf(recipe) };
  for (const [name, value] of Object.entries(recipe) as [string, unknown][]) {
    if (name === "files") view.files = filesView(value as TaskFiles, content);
    else if (name === "env" && !environment) view.envNames = Object.keys(value as object);
    else if (!(value instanceof Uint8Array) || name === "dir") view[name] = value;
    else if (content) view[name] = value;
    else view[`${name}Bytes`] = value.length;
  }
  return view as JobView["recipe"];
}

const filesView = ({ sent = [], ...patterns }: TaskFiles, content: boolean): object => ({
  ...{ count: sent.length, ...patterns },
  ...(content ? { sent } : {}),
});

export function summaryOf(recipe: Recipe): string {
  const line = oneLine(recipe).replaceAll(/\s+/g, " ").trim();
  return line.length > SUMMARY ? `${line.slice(0, SUMMARY - 1)}…` : line || recipe.kind;
}

function oneLine(recipe: Recipe): string {
  switch (recipe.kind) {
    case "command":
      return recipe.shell === true ? textOf(recipe.argv.at(-1) ?? "") : recipe.argv.map(quoted).join(" ");
    case "script":
      return [`script${recipe.type}`, ...(recipe.args ?? []).map(quoted)].join(" ");
    case "call":
      return `call ${recipe.service}`;
  }
}

const textOf = (one: Bytes): string => (typeof one === "string" ? one : Buffer.from(one).toString());

const quoted = (one: Bytes): string => shellWord(textOf(one).slice(0, SUMMARY));

const PAGE = 1_000;
/** Jobs removed in one commit. */
const REMOVED_AT_ONCE = 100;
/** Jobs read for one page, if few of them have the state that is asked for. */
const MAX_SCANNED = 20_000;

const listInput = s.object({
  before: s.optional(s.mapped(job, (id) => id)),
  limit: limit(PAGE, 100),
  state: s.optional(s.described(s.list(s.choice("open", ...OPEN_STATES, ...END_STATES), 8), "in one of these states")),
  name: s.optional(s.described(s.text(), "its name; * stands for any text")),
  pool: s.optional(s.text()),
  key: s.optional(s.text()),
  batchKey: s.optional(s.text()),
  idempotencyKey: s.optional(s.described(s.text(), "the job that was submitted with this one")),
  createdFrom: s.optional(s.number("milliseconds since 1970")),
  createdBefore: s.optional(s.number("milliseconds since 1970")),
});

export const jobs = operation({
  name: "jobs",
  role: "read",
  method: "GET",
  path: "/jobs",
  summary: "Jobs, newest first",
  input: listInput,
  output: s.object({
    jobs: s.list(jobView, PAGE),
    next: s.optional(s.count("give this as before for the next page; absent on the last one")),
  }),
  perform: async (core, given, { role }) => {
    const found: JobView[] = [];
    const atPeers = await tasksAtPeers(core);
    let before = given.before;
    let scanned = 0;
    for (;;) {
      const page = await core.store.jobs({
        limit: given.limit - found.length,
        filter: filterOf(given),
        ...(before === undefined ? {} : { before }),
      });
      const views = page.jobs.map((one) => viewOf(core, one, { role, atPeers: atPeers.get(one.id) }));
      found.push(...views.filter(({ state }) => isWanted(state, given.state)));
      scanned += page.jobs.length;
      before = page.next;
      if (before === undefined) return { jobs: found };
      if (found.length >= given.limit || scanned >= MAX_SCANNED) return { jobs: found, next: before };
    }
  },
});

/** The store knows only whether a job is open or how it ended; the state of an open job is known in dispatch. */
function filterOf(given: s.ReadType<typeof listInput>): JobFilter {
  const { state, name, pool, key, batchKey, idempotencyKey, createdFrom, createdBefore } = given;
  const ended = END_STATES.filter((one) => state?.includes(one));
  const wantsOpen = state?.some((one) => one === "open" || OPEN_STATES.some((live) => live === one)) === true;
  return {
    ...(state === undefined ? {} : { states: wantsOpen ? [...ended, "open"] : ended }),
    ...definedOnly({ name, pool, key, batchKey, idempotencyKey, createdFrom, createdBefore }),
  };
}

function isWanted(state: JobState, wanted: readonly string[] | undefined): boolean {
  if (wanted === undefined || wanted.includes(state)) return true;
  return wanted.includes("open") && OPEN_STATES.some((one) => one === state);
}

export const remove = operation({
  name: "remove",
  role: "client",
  method: "DELETE",
  path: "/jobs/{job}",
  summary: "Remove an ended job with its results and output",
  input: s.object({ job }),
  output: nothing,
  perform: (core, given) =>
    core.jobs.withLock(given.job, async () => {
      const found = await requireJob(core, given.job);
      if (found.ended !== undefined && (await removeJobs(core, [given.job])).length > 0) return {};
      throw new LaboroError("LABORO_JOB_OPEN", `job ${given.job} has not ended: cancel it first`);
    }),
});

const cleanInput = s.object({
  olderThanMs: s.optional(s.count("ended at least this long ago")),
  states: s.withDefault(s.list(s.choice(...END_STATES), 3), [...END_STATES]),
  keep: s.withDefault(s.count("keep this many of the newest"), 0),
});

export const clean = operation({
  name: "clean",
  role: "admin",
  method: "POST",
  path: "/clean",
  summary: "Remove ended jobs",
  input: cleanInput,
  output: s.object({ removed: s.count(), jobs: s.described(s.list(s.count(), 1_000_000), "those that were removed") }),
  perform: async (core, given) => {
    const removed = await removeJobs(core, await endedJobs(core, given));
    return { removed: removed.length, jobs: removed };
  },
});

/** Returns those that existed and had ended. */
export async function removeJobs(core: Core, jobs: readonly JobId[]): Promise<readonly JobId[]> {
  const removed = new Set<JobId>();
  for (let left: readonly JobId[] = jobs; left.length > 0; ) {
    const ids = left.slice(0, REMOVED_AT_ONCE);
    const results = await Promise.all(ids.map((id) => core.commit({ op: "remove", job: id })));
    const large = ids.filter((id, at) => {
      const result = results[at];
      if (result?.op !== "remove") return false;
      if (result.removed) removed.add(id);
      return result.more === true;
    });
    left = [...large, ...left.slice(REMOVED_AT_ONCE)];
  }
  return jobs.filter((id) => removed.has(id));
}

/** Newest first. */
export async function endedJobs(core: Core, given: s.ReadType<typeof cleanInput>): Promise<JobId[]> {
  const { olderThanMs, states, keep } = given;
  const filter = { states, ...(olderThanMs === undefined ? {} : { endedBefore: now() - olderThanMs }) };
  const found: JobId[] = [];
  let before: JobId | undefined;
  do {
    const page = await core.store.jobs({ limit: PAGE, filter, ...(before === undefined ? {} : { before }) });
    found.push(...page.jobs.map(({ id }) => id));
    before = page.next;
  } while (before !== undefined);
  return found.slice(keep);
}
