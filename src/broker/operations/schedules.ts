/** Operations on schedules. Each change is one write to the store that names the revision it is based on. */
import { asLaboroError, LaboroError } from "../../base/errors.js";
import { jobSpec } from "../../model/job-input.js";
import { DEFAULT_POOL } from "../../model/recipe.js";
import {
  scheduleEdit as editFields,
  MISSED,
  OVERLAPS,
  type Schedule,
  type ScheduleSpec,
  scheduleInput,
  scheduleName,
} from "../../model/schedule.js";
import * as s from "../../model/schema.js";
import { summaryOf } from "./job-view.js";
import { limit, nothing, operation } from "./operation.js";

const PAGE = 1_000;
const UPCOMING = 5;
const time = (what: string) => s.number(`${what}, in milliseconds since 1970`);

const scheduleView = s.object({
  name: s.text(),
  state: s.described(s.choice("active", "paused", "ended"), "ended: no point in time is left"),
  cron: s.optional(s.text()),
  timeZone: s.optional(s.text()),
  everyMs: s.optional(s.count()),
  start: s.optional(time("no run before this")),
  end: s.optional(time("no run after this")),
  jitterMs: s.count(),
  overlap: s.choice(...OVERLAPS),
  missed: s.choice(...MISSED),
  created: time("when it was added"),
  changed: time("when it was last changed"),
  due: s.optional(time("the next point in time")),
  nextAt: s.optional(time("when its run is started: jitter is included")),
  upcoming: s.optional(s.described(s.list(s.number(), 100), "the next points in time")),
  runs: s.count("how many it has had"),
  skipped: s.count("points in time without a run"),
  last: s.optional(
    s.object({
      due: time("the point in time"),
      at: time("when it was started or skipped"),
      skipped: s.optional(s.choice("overlap", "missed", "refused")),
      message: s.optional(s.described(s.text(65_536), "why it was skipped")),
    }),
  ),
  lastJob: s.optional(s.count("the job of the last run")),
  job: s.described(
    s.object({ name: s.text(), summary: s.text(), count: s.count(), pool: s.text(), priority: s.integer(-1000, 1000) }),
    "what each run submits",
  ),
});

type ScheduleView = s.ReadType<typeof scheduleView>;

function viewOf({ name, nextAt, spec, state, lastJob }: Schedule): ScheduleView {
  const { job: given, ...rules } = spec;
  const { anchor: _, paused, ...past } = state;
  return {
    name,
    state: paused ? "paused" : nextAt === undefined ? "ended" : "active",
    ...rules,
    ...past,
    ...(nextAt === undefined ? {} : { nextAt }),
    ...(lastJob === undefined ? {} : { lastJob }),
    job: jobView({ ...given, name: given.name ?? name }),
  };
}

function jobView(given: ScheduleSpec["job"] & { readonly name: string }): ScheduleView["job"] {
  try {
    const { name, recipe, count, requirement, priority } = jobSpec(given).spec;
    return { name, summary: summaryOf(recipe), count, pool: requirement.pool, priority };
  } catch (cause) {
    // An older version accepted this job. It must not prevent the listing of the others.
    const summary = `cannot be submitted: ${asLaboroError(cause).message}`;
    return { name: given.name, summary, count: 0, pool: given.pool ?? DEFAULT_POOL, priority: given.priority ?? 0 };
  }
}

export const schedules = operation({
  name: "schedules",
  role: "read",
  method: "GET",
  path: "/schedules",
  summary: "Schedules, by name",
  input: s.object({ after: s.optional(s.described(s.text(64), "those after this name")), limit: limit(PAGE, 100) }),
  output: s.object({
    schedules: s.list(scheduleView, PAGE),
    next: s.optional(s.described(s.text(64), "give this as after for the next page")),
  }),
  perform: async (core, { after, limit: most }) => {
    const which = { limit: most + 1, ...(after === undefined ? {} : { after }) };
    const found = (await core.store.schedules(which)).schedules;
    const page = found.slice(0, most);
    const last = page.at(-1);
    const more = found.length > most && last !== undefined ? { next: last.name } : {};
    return { schedules: page.map(viewOf), ...more };
  },
});

export const schedule = operation({
  name: "schedule",
  role: "read",
  method: "GET",
  path: "/schedules/{schedule}",
  summary: "One schedule, with its next points in time",
  input: s.object({ schedule: scheduleName }),
  output: scheduleView,
  perform: async (core, given) => {
    const found = await core.schedules.find(given.schedule);
    const { nextPoints } = await import("../../model/schedule-times.js");
    const { due, anchor } = found.state;
    const upcoming = due === undefined ? [] : [due, ...nextPoints(found.spec, anchor, due, UPCOMING - 1)];
    return { ...viewOf(found), upcoming };
  },
});

const set = s.object({
  schedule: scheduleName,
  ifExists: s.withDefault(
    s.described(s.choice("replace", "refuse"), "what to do if a schedule has this name already"),
    "replace",
  ),
  ...scheduleInput.shape,
});

export const scheduleSet = operation({
  name: "scheduleSet",
  role: "client",
  method: "POST",
  path: "/schedules/{schedule}",
  summary:
    "Add a schedule, or replace the one of this name; its past runs stay, and its next one if its times are the same",
  input: set,
  output: scheduleView,
  bodyLimit: 2 * 1024 * 1024,
  perform: async (core, { schedule: name, ifExists, paused, ...given }) => {
    const { replacement } = await import("../schedule-runs.js");
    await core.limits.requireKnown(given.job.limits ?? []);
    const spec: ScheduleSpec = { overlap: "allow", missed: "once", jitterMs: 0, ...given };
    await core.schedules.change(name, (found, now) => {
      if (found !== undefined && ifExists === "refuse")
        throw new LaboroError(
          "LABORO_SCHEDULE_EXISTS",
          `there is a schedule ${name} already; change it with edit, or replace it`,
        );
      return { change: replacement(found, name, spec, paused, now) };
    });
    core.events.add({ kind: "schedule-set", schedule: name });
    return viewOf(await core.schedules.find(name));
  },
});

export const scheduleEdit = operation({
  name: "scheduleEdit",
  role: "client",
  method: "POST",
  path: "/schedules/{schedule}/edit",
  summary: "Change a schedule; what is absent stays, except that cron and everyMs replace each other",
  input: s.object({
    schedule: scheduleName,
    ...editFields.shape,
    unset: s.optional(s.described(s.list(s.choice("start", "end"), 2), "fields to remove")),
  }),
  output: scheduleView,
  bodyLimit: 2 * 1024 * 1024,
  perform: async (core, { schedule: name, paused, unset = [], ...given }) => {
    const { replacement } = await import("../schedule-runs.js");
    await core.limits.requireKnown(given.job?.limits ?? []);
    await core.schedules.change(name, (found, now) => {
      if (found === undefined) throw noSchedule(name);
      const { cron, everyMs, timeZone, start, end, ...before } = found.spec;
      const times =
        given.everyMs !== undefined
          ? {}
          : { ...defined({ cron, timeZone }), ...(given.cron === undefined ? defined({ everyMs }) : {}) };
      const bounds = {
        ...(unset.includes("start") ? {} : defined({ start })),
        ...(unset.includes("end") ? {} : defined({ end })),
      };
      const spec: ScheduleSpec = { ...before, ...times, ...bounds, ...given };
      return { change: replacement(found, name, spec, paused, now) };
    });
    core.events.add({ kind: "schedule-set", schedule: name });
    return viewOf(await core.schedules.find(name));
  },
});

/** Without the members that are undefined. */
function defined<T extends object>(given: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

const noSchedule = (name: string): LaboroError =>
  new LaboroError("LABORO_NO_SUCH_SCHEDULE", `there is no schedule ${name}`);

const pauseOrResume = (paused: boolean) =>
  operation({
    name: paused ? "schedulePause" : "scheduleResume",
    role: "client",
    method: "POST",
    path: `/schedules/{schedule}/${paused ? "pause" : "resume"}`,
    summary: paused ? "Start no more runs of a schedule" : "Resume a schedule at its next point in time",
    input: s.object({ schedule: scheduleName }),
    output: scheduleView,
    perform: async (core, { schedule: name }) => {
      const { pauseChange } = await import("../schedule-runs.js");
      await core.schedules.change(name, (found, now) => {
        if (found === undefined) throw noSchedule(name);
        return { change: pauseChange(found, paused, now) };
      });
      core.events.add({ kind: paused ? "schedule-paused" : "schedule-resumed", schedule: name });
      return viewOf(await core.schedules.find(name));
    },
  });

export const schedulePause = pauseOrResume(true);
export const scheduleResume = pauseOrResume(false);

export const scheduleRun = operation({
  name: "scheduleRun",
  role: "client",
  method: "POST",
  path: "/schedules/{schedule}/run",
  summary: "Start a run now; the next point in time stays",
  input: s.object({ schedule: scheduleName }),
  output: s.object({ job: s.count() }),
  perform: async (core, { schedule: name }) => {
    const { requestedRun } = await import("../schedule-runs.js");
    const { job, run } = await core.schedules.change(name, (found, now) => {
      if (found === undefined) throw noSchedule(name);
      return requestedRun(core, found, now);
    });
    if (job === undefined) throw new LaboroError("LABORO_INTERNAL", `the run of schedule ${name} has no job`);
    core.schedules.report(name, run, job);
    return { job };
  },
});

export const scheduleRemove = operation({
  name: "scheduleRemove",
  role: "client",
  method: "DELETE",
  path: "/schedules/{schedule}",
  summary: "Remove a schedule; the jobs of its runs stay",
  input: s.object({ schedule: scheduleName }),
  output: nothing,
  perform: async (core, { schedule: name }) => {
    await core.schedules.change(name, (found) => {
      if (found === undefined) throw noSchedule(name);
      return { change: { name, expected: found.revision, writes: [] } };
    });
    core.events.add({ kind: "schedule-removed", schedule: name });
    return {};
  },
});
