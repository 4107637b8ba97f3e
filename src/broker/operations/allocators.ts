/** Operations on allocators. Each change is one conditional write of the allocator's row. */
import { isLoopback } from "../../base/addresses.js";
import { LaboroError } from "../../base/errors.js";
import {
  ALLOCATION_STATES,
  type Allocator,
  allocatorInput,
  allocatorName,
  isLive,
  LOG_KINDS,
  MANAGERS,
} from "../../model/allocation.js";
import * as s from "../../model/schema.js";
import { workersOf } from "../alloc/allocation-workers.js";
import type { Core } from "../core.js";
import { nothing, operation } from "./operation.js";

const time = (what: string) => s.number(`${what}, in milliseconds since 1970`);
const MAX_ALLOCATIONS = 20_000;

const { before, dir: _, ...asked } = allocatorInput.shape;

const allocationView = s.object({
  number: s.count(),
  state: s.choice(...ALLOCATION_STATES),
  id: s.optional(s.described(s.text(), "of the batch system")),
  asked: time("when it was recorded"),
  started: s.optional(s.number()),
  joined: s.optional(time("when its first worker joined")),
  ended: s.optional(s.number()),
  reason: s.optional(s.described(s.text(4096), "why it waits in the queue, or how it ended")),
  failed: s.optional(s.flag()),
  output: s.described(s.text(), "the file with the output of its job script"),
  workers: s.described(s.list(s.text(), 1_000), "the names of its workers that are connected"),
});

const allocatorView = s.object({
  name: s.text(),
  state: s.described(
    s.choice("active", "waiting", "paused", "removing"),
    "waiting: nothing is requested until `notBefore`, after a failure",
  ),
  status: s.described(s.text(4096), "what it does about waiting work, in words"),
  ...asked,
  dir: s.described(s.text(), "with the scripts and the output of its allocations"),
  before,
  created: time("when it was added"),
  changed: time("when it was last changed"),
  failures: s.count("failures in a row"),
  notBefore: s.optional(time("nothing is requested before this")),
  pausedBy: s.optional(s.choice("user", "failures")),
  warning: s.optional(s.described(s.text(), "why nodes may not reach the broker")),
  problem: s.optional(s.object({ kind: s.text(), at: s.number(), text: s.text(4096) })),
  counts: s.object({ queued: s.count(), running: s.count() }),
  allocations: s.described(s.list(allocationView, MAX_ALLOCATIONS), "live ones, and the last that have ended"),
});

async function viewOf(core: Core, allocator: Allocator): Promise<s.ReadType<typeof allocatorView>> {
  const { filesOf, plan, rules } = await core.allocators.parts();
  const { name, spec, state } = allocator;
  const files = filesOf(allocator);
  const { halted } = core.state;
  const { created, changed, failures, notBefore, paused, problem, removing } = state;
  const now = Date.now();
  const workers = await workersOf(core, name);
  const waits = notBefore !== undefined && notBefore > now;
  return {
    ...{ name, ...spec, created, changed, failures },
    state: removing ? "removing" : paused ? "paused" : waits ? "waiting" : "active",
    status:
      halted === undefined
        ? plan.statusText(allocator, rules, now)
        : `asks for nothing: the broker assigns nothing: ${halted}`,
    ...(waits ? { notBefore } : {}),
    ...(paused === undefined ? {} : { pausedBy: paused.by }),
    ...(problem === undefined ? {} : { problem: { kind: problem.kind, at: problem.at, text: problem.text } }),
    ...(spec.forward === undefined && isLoopback(new URL(core.allocators.joinUrl()).hostname)
      ? { warning: "the broker listens on this machine only: workers on other nodes cannot reach it" }
      : {}),
    counts: countsOf(allocator),
    allocations: state.allocations.map(({ unneeded: _, cancelling: __, useful: ___, ...one }) => ({
      ...one,
      output: files.of(one.number).output,
      workers: workers.get(one.number)?.names ?? [],
    })),
  };
}

export function countsOf({ state: { allocations } }: Allocator): { queued: number; running: number } {
  const live = allocations.filter(isLive).length;
  const running = allocations.filter(({ state }) => state === "running").length;
  return { queued: live - running, running };
}

const noAllocator = (name: string): LaboroError =>
  new LaboroError("LABORO_NO_SUCH_ALLOCATOR", `there is no allocator ${name}`);

async function requireView(core: Core, name: string): Promise<s.ReadType<typeof allocatorView>> {
  const found = await core.allocators.find(name);
  if (found === undefined) throw noAllocator(name);
  return viewOf(core, found);
}

export const allocators = operation({
  name: "allocators",
  role: "read",
  method: "GET",
  path: "/allocators",
  summary: "Allocators, by name, with their allocations",
  input: nothing,
  output: s.object({ allocators: s.list(allocatorView, 10_000) }),
  perform: async (core) => ({
    allocators: await Promise.all((await core.allocators.list()).map((one) => viewOf(core, one))),
  }),
});

const named = s.object({ allocator: allocatorName });

export const allocator = operation({
  name: "allocator",
  role: "read",
  method: "GET",
  path: "/allocators/{allocator}",
  summary: "One allocator, with its allocations and their workers",
  input: named,
  output: allocatorView,
  perform: (core, given) => requireView(core, given.allocator),
});

export const allocatorLog = operation({
  name: "allocatorLog",
  role: "read",
  method: "GET",
  path: "/allocators/{allocator}/log",
  summary: "What an allocator has done and why, oldest first",
  input: named,
  output: s.object({
    lines: s.list(
      s.object({ at: s.number(), kind: s.choice(...LOG_KINDS), text: s.text(4096), allocation: s.optional(s.count()) }),
      1_000,
    ),
  }),
  perform: async (core, given) => {
    const found = await core.allocators.find(given.allocator);
    if (found === undefined) throw noAllocator(given.allocator);
    return { lines: found.state.log };
  },
});

const set = s.object({
  allocator: allocatorName,
  ifExists: s.withDefault(
    s.described(s.choice("replace", "refuse"), "what to do if an allocator has this name already"),
    "replace",
  ),
  ...allocatorInput.shape,
});

export const allocatorSet = operation({
  name: "allocatorSet",
  role: "admin",
  method: "POST",
  path: "/allocators/{allocator}",
  summary: "Add an allocator, or replace the one of this name; its allocations stay",
  input: set,
  output: allocatorView,
  perform: async (core, { allocator: name, ifExists, ...given }) => {
    const { decide, defaultDirectory } = await core.allocators.parts();
    await core.allocators.change(name, (found, now, number) => {
      if (found !== undefined && ifExists === "refuse")
        throw new LaboroError("LABORO_ALLOCATOR_EXISTS", `there is an allocator ${name} already; replace or remove it`);
      // Its live allocations are found by their directory.
      const dir = found?.state.allocations.some(isLive) ? found.spec.dir : (given.dir ?? defaultDirectory());
      const spec = { ...given, dir };
      const before = found?.state ?? decide.newState(now, number);
      const { removing: __, paused, notBefore: ___, problem: ____, detected: _____, ...state } = before;
      const next = { ...state, changed: now, failures: 0, ...(paused?.by === "user" ? { paused } : {}) };
      decide.addLine(next, now, "saved", `at most ${given.maxWorkers} workers, ${given.backlog} in the queue`);
      return { spec, state: next };
    });
    core.allocators.look();
    return requireView(core, name);
  },
});

const changing = (
  which: "Pause" | "Resume",
  summary: string,
  change: (found: Allocator, now: number, addLine: typeof import("../alloc/decide.js").addLine) => void,
) =>
  operation({
    name: `allocator${which}`,
    role: "admin",
    method: "POST",
    path: `/allocators/{allocator}/${which.toLowerCase()}`,
    summary,
    input: named,
    output: allocatorView,
    perform: async (core, { allocator: name }) => {
      const { decide } = await core.allocators.parts();
      await core.allocators.change(name, (found, now) => {
        if (found === undefined) throw noAllocator(name);
        change(found, now, decide.addLine);
        found.state.changed = now;
        return found;
      });
      core.allocators.look();
      return requireView(core, name);
    },
  });

export const allocatorPause = changing(
  "Pause",
  "Request no more allocations and cancel the queued ones; running allocations continue",
  ({ state }, now, addLine) => {
    if (state.paused?.by !== "user") addLine(state, now, "paused", "an operator asked for it");
    state.paused = { at: now, by: "user" };
  },
);

export const allocatorResume = changing(
  "Resume",
  "Request allocations again at once, after a pause or failures",
  ({ state }, now, addLine) => {
    addLine(state, now, "resumed", "an operator asked for it");
    for (const field of ["paused", "notBefore", "problem"] as const) delete state[field];
    state.failures = 0;
    state.troubles = 0;
  },
);

export const allocatorRemove = operation({
  name: "allocatorRemove",
  role: "admin",
  method: "DELETE",
  path: "/allocators/{allocator}",
  summary: "Remove an allocator when its queued allocations are cancelled; those that run end by themselves",
  input: s.object({
    allocator: allocatorName,
    cancelRunning: s.withDefault(s.flag("also cancel running allocations"), false),
  }),
  output: nothing,
  perform: async (core, { allocator: name, cancelRunning }) => {
    await core.allocators.change(name, (found, now) => {
      if (found === undefined) throw noAllocator(name);
      found.state.removing = cancelRunning ? "all" : "queued";
      found.state.changed = now;
      return found;
    });
    await core.allocators.remove(name);
    core.allocators.look();
    return {};
  },
});

export const allocatorDryRun = operation({
  name: "allocatorDryRun",
  role: "admin",
  method: "POST",
  path: "/allocators/{allocator}/dry-run",
  summary:
    "What an allocator would request now, without doing it: the command, the job script, the batch system's opinion",
  input: s.object({
    allocator: allocatorName,
    spec: s.optional(s.described(allocatorInput, "an allocator that is not saved")),
  }),
  output: s.object({
    manager: s.choice(...MANAGERS),
    asks: s.count("how many allocations it would request"),
    status: s.described(s.text(4096), "why not more"),
    unfit: s.list(s.object({ job: s.count(), tasks: s.count(), reason: s.text(4096) }), 1_000),
    command: s.list(s.text(4096), 200),
    script: s.text(100_000),
    accepted: s.flag("by the batch system"),
    answer: s.described(s.anyText(4096), "the batch system's answer"),
  }),
  perform: async (core, { allocator: name, spec: given }) => {
    const { decide, defaultDirectory, demand, filesOf, plan, rules, script, watches } = await core.allocators.parts();
    const rows = await core.allocators.list();
    const found = rows.find((one) => one.name === name);
    if (given === undefined && found === undefined) throw noAllocator(name);
    const now = Date.now();
    const shown: Allocator = {
      name,
      spec: given === undefined ? (found as Allocator).spec : { ...given, dir: given.dir ?? defaultDirectory() },
      state: found?.state ?? decide.newState(now),
    };
    const waiting = await core.allocators.demand();
    const unfit = waiting.flatMap(({ job, tasks, ...needs }) => {
      const reason = demand.whyUnfit(demand.offerOf(shown), needs);
      return reason === undefined ? [] : [{ job: Number(job), tasks, reason }];
    });
    const all = structuredClone([...rows.filter((one) => one.name !== name), shown]);
    const asks = plan.plan(all, waiting, rules, now).get(name) ?? 0;
    const number = shown.state.next;
    const { manager } = watches[shown.spec.manager];
    const files = filesOf(shown);
    const text = script.scriptText(shown.spec, files, name, number, manager.script);
    // The batch system reads the script, which is beside those of allocations.
    const trial = filesOf({ ...shown, name: `.dry-run-${name}` });
    trial.write(number, text, core.allocators.joinUrl());
    const request = script.requestFor(shown.spec, trial, name, number);
    const opinion = await manager.test(request).then(
      (answer) => ({ accepted: true, answer }),
      (cause: Error) => ({ accepted: false, answer: cause.message }),
    );
    trial.remove(number);
    return {
      ...{ manager: shown.spec.manager, asks, unfit: unfit.slice(0, 1_000), ...opinion },
      status:
        asks > 0 ? `asks for ${asks}` : waiting.length === 0 ? "nothing waits" : plan.statusText(shown, rules, now),
      command: manager.command(script.requestFor(shown.spec, files, name, number)),
      script: text,
    };
  },
});
