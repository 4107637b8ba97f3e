/** Lists of jobs, and removing ended ones. */

import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import type { JobId } from "../../model/ids.js";
import { definedOnly } from "../../model/input.js";
import { END_STATES } from "../../model/job.js";
import * as s from "../../model/schema.js";
import type { JobFilter } from "../../model/store.js";
import type { Core } from "../core.js";
import { tasksAtPeers } from "../group/group-view.js";
import { type JobState, type JobView, jobView, OPEN_STATES, viewOf } from "./job-view.js";
import { operation } from "./operation.js";
import { job, limit, nothing, requireJob } from "./shared-fields.js";

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
