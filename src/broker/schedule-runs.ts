/** The effects of a change of a schedule, and of a scheduled time: which run, which cancels, and the next time. */
import { randomInt } from "node:crypto";
import { pack } from "msgpackr";
import { asLaboroError, badInput, LaboroError } from "../base/errors.js";
import type { JobId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import { jobSpec } from "../model/job-input.js";
import {
  MAX_JOB_BYTES,
  MISSED_AFTER_MS,
  type RunWrite,
  type Schedule,
  type ScheduleChange,
  type ScheduleRun,
  type ScheduleSpec,
  type ScheduleState,
} from "../model/schedule.js";
import { checkTimes, nextPoint } from "../model/schedule-times.js";
import type { Core } from "./core.js";
import { submitWrite } from "./operations/jobs.js";

/** Up to this delay a run is on time: the next time is counted from the scheduled one. Later, from now. */
const ON_TIME_MS = 1_000;

const newRevision = (): number => randomInt(1, 2 ** 48 - 1);

/** The row after a change. Its next time is the first one after `after`. */
function moved(
  spec: ScheduleSpec,
  state: ScheduleState,
  after: number,
  now = after,
): Pick<Schedule, "revision" | "nextAt" | "state"> {
  const { due: _, ...rest } = state;
  const due = state.paused ? undefined : nextPoint(spec, state.anchor, after);
  if (due === undefined) return { revision: newRevision(), state: rest };
  const passed = Math.min(spec.jitterMs, Math.max(0, Math.floor(now - due)));
  const nextAt = due + (spec.jitterMs > 0 ? randomInt(passed, spec.jitterMs + 1) : 0);
  return { revision: newRevision(), nextAt, state: { ...rest, due } };
}

/** The row after a change that keeps the next time. */
const kept = ({ nextAt }: Schedule, state: ScheduleState): Pick<Schedule, "revision" | "nextAt" | "state"> => ({
  revision: newRevision(),
  state,
  ...(nextAt === undefined ? {} : { nextAt }),
});

/** A new schedule, or a replacement of `found`: the history is kept, and the next time if the times are the same. */
export function replacement(
  found: Schedule | undefined,
  name: string,
  spec: ScheduleSpec,
  paused: boolean | undefined,
  now: number,
): ScheduleChange {
  checkJob(spec);
  const before = found?.state;
  const sameAsBefore = found !== undefined && sameTimes(found.spec, spec);
  // A schedule that has ended may be set again: programs do this at each start.
  if (!sameAsBefore) checkTimes(spec, now);
  const same = sameAsBefore && before?.paused === (paused ?? before?.paused);
  if (same && before !== undefined) {
    const next = { ...kept(found, { ...before, changed: now }), spec };
    return { name, expected: found.revision, next, writes: [] };
  }
  const state: ScheduleState = {
    created: now,
    runs: 0,
    skipped: 0,
    ...before,
    changed: now,
    paused: paused ?? before?.paused ?? false,
    anchor: before !== undefined && found?.spec.everyMs === spec.everyMs ? before.anchor : now,
  };
  // A scheduled time runs once, even if the clock was set back.
  const after = Math.max(now, state.last?.due ?? 0);
  return { name, expected: found?.revision ?? 0, next: { ...moved(spec, state, after), spec }, writes: [] };
}

const sameTimes = (a: ScheduleSpec, b: ScheduleSpec): boolean =>
  (["cron", "timeZone", "everyMs", "start", "end", "jitterMs"] as const).every((name) => a[name] === b[name]);

/** Refuses a job that could not be submitted. */
function checkJob({ job }: ScheduleSpec): void {
  for (const name of ["after", "at", "idempotencyKey", "resumes"] as const)
    if (job[name] !== undefined) throw badInput(`job.${name}: expected none: a schedule makes many jobs`);
  if (job.recipe.kind !== "call" && (job.recipe.files?.sent?.length ?? 0) > 0)
    throw badInput("job.recipe.files.sent: expected none: each job needs its own; name files that the workers have");
  jobSpec(job);
  const bytes = pack(job).length;
  if (bytes > MAX_JOB_BYTES)
    throw new LaboroError(
      "LABORO_BODY_TOO_LARGE",
      `the job of a schedule has ${bytes} bytes; at most ${MAX_JOB_BYTES} are stored: put its entries into a file`,
    );
}

/** Pauses or resumes it. Runs that are missed while it is paused are not repeated. */
export function pauseChange(found: Schedule, paused: boolean, now: number): ScheduleChange {
  const state = { ...found.state, paused, changed: now };
  const after = Math.max(now, state.last?.due ?? 0);
  const next = found.state.paused === paused ? kept(found, state) : moved(found.spec, state, after);
  return { name: found.name, expected: found.revision, next, writes: [] };
}

interface PlannedRun {
  readonly change: ScheduleChange;
  readonly run: ScheduleRun;
}

/** The due run, or why there is none, and the next time. */
export async function plannedRun(core: Core, found: Schedule, now: number): Promise<PlannedRun> {
  const { name, spec, state, nextAt = now } = found;
  const due = state.due ?? nextAt;
  const late = now - nextAt;
  const { run, writes } = await runOf(core, found, {
    due,
    now,
    missed: spec.missed === "skip" && late > MISSED_AFTER_MS,
  });
  // A point is not missed before its jitter has passed.
  const after = late > ON_TIME_MS ? Math.max(due, now - spec.jitterMs) : due;
  const next = movedOrEnded(spec, countedState(state, run), after, now);
  return { run, change: { name, expected: found.revision, due: nextAt, next, writes } };
}

/** A schedule whose times became unreadable, as by a removed time zone, ends. It must not stop the others. */
function movedOrEnded(...given: Required<Parameters<typeof moved>>): ReturnType<typeof moved> {
  try {
    return moved(...given);
  } catch {
    const { due: _, ...state } = given[1];
    return { revision: newRevision(), state };
  }
}

/** A run on request. The next time stays. */
export async function requestedRun(core: Core, found: Schedule, now: number): Promise<PlannedRun> {
  const { name, revision, state } = found;
  const { run, writes } = await runOf(core, found, { due: now, now, point: `manual-${revision}` });
  if (run.skipped === "overlap")
    throw new LaboroError(
      "LABORO_JOB_OPEN",
      `schedule ${name}: ${run.message}, and its overlap rule is ${found.spec.overlap}`,
    );
  if (run.skipped !== undefined) throw badInput(`schedule ${name}: ${run.message}`);
  return { run, change: { name, expected: revision, next: kept(found, countedState(state, run)), writes } };
}

function countedState(state: ScheduleState, run: ScheduleRun): ScheduleState {
  const made = run.skipped === undefined;
  return { ...state, last: run, runs: state.runs + (made ? 1 : 0), skipped: state.skipped + (made ? 0 : 1) };
}

interface RunTime {
  readonly due: number;
  readonly now: number;
  readonly point?: string;
  readonly missed?: boolean;
}

interface RunPlan {
  readonly run: ScheduleRun;
  readonly writes: readonly RunWrite[];
}

/** `point`: the scheduled time, or the base of a run on request. Part of the job's key. */
async function runOf(
  core: Core,
  found: Schedule,
  { due, now, point = new Date(due).toISOString(), missed = false }: RunTime,
): Promise<RunPlan> {
  const skip = (skipped: NonNullable<ScheduleRun["skipped"]>, message: string): RunPlan => ({
    run: { due, at: now, skipped, message },
    writes: [],
  });
  if (missed) return skip("missed", "no broker could start it in time");
  const { name, spec } = found;
  const open = spec.overlap === "allow" ? [] : await openJobs(core, found);
  const [last] = open;
  if (last !== undefined && spec.overlap === "skip") return skip("overlap", `job ${last.id} has not ended`);
  if (open.length > 1 && spec.overlap === "queue") return skip("overlap", `job ${last?.id} waits already`);
  try {
    const { spec: job, entries } = jobSpec({ ...spec.job, name: spec.job.name ?? name });
    const after = open.map(({ id }) => ({ job: id, any: true }));
    const idempotencyKey = `schedule:${name}:${point}`;
    if (job.limits.named !== undefined) await core.limits.requireKnown(job.limits.named);
    const submit = submitWrite(core, core.delays.withTime({ ...job, after, idempotencyKey }), entries);
    const cancels: RunWrite[] = open.map(({ id, count }) => ({
      op: "cancel",
      job: id,
      ranges: [{ first: 0, last: count - 1 }],
      reason: `replaced by the next run of schedule ${name}`,
    }));
    return { run: { due, at: now }, writes: [submit, ...(spec.overlap === "replace" ? cancels : [])] };
  } catch (cause) {
    // An older version accepted the job. It must not stop the other schedules.
    return skip("refused", asLaboroError(cause).message);
  }
}

/** The open jobs of the last two runs, the newer first. Another job that a run found by its key does not count. */
async function openJobs({ store }: Core, { name, lastJob, formerJob }: Schedule): Promise<readonly Job[]> {
  const ids = [lastJob, formerJob].filter((id): id is JobId => id !== undefined);
  const jobs = await Promise.all(ids.map((id) => store.job(id)));
  const isOwn = ({ idempotencyKey }: Job): boolean => idempotencyKey?.startsWith(`schedule:${name}:`) === true;
  return jobs.filter((job): job is Job => job !== undefined && job.ended === undefined && isOwn(job));
}
