/** Workers as a long list is looked at: in an order, some at a time, with what they run. */
import { claimsOf, STARTED, type WorkerState } from "../../dispatch/state.js";
import * as s from "../../model/schema.js";
import { index, limit } from "./members.js";
import { operation } from "./operation.js";
import { viewOfWorker, workerView } from "./workers.js";

const PAGE = 500;
/** Tasks listed of one worker; `tasks` has how many there are. */
const RUNNING = 20;

const runningTask = s.object({
  job: s.count(),
  index,
  name: s.described(s.text(), "of the job"),
  attempt: s.count(),
  startedAt: s.optional(s.described(s.number(), "milliseconds since 1970; absent where the start was not heard")),
});

const row = s.object({
  ...workerView.shape,
  place: s.described(s.count(), "from 0: the order in which they are used next"),
  running: s.described(s.list(runningTask, RUNNING), `what it runs, longest first; ${RUNNING} at most`),
});

const STATES = ["connected", "away", "draining", "suspended", "banned", "busy", "idle"] as const;

const input = s.object({
  from: s.withDefault(s.described(s.count(), "leave out so many"), 0),
  limit: limit(PAGE, 100),
  order: s.withDefault(
    s.described(
      s.choice("use", "name", "busy", "trouble"),
      "least recently used first; by name; most slots in use first; those with trouble first",
    ),
    "use",
  ),
  find: s.optional(s.described(s.text(), "part of its name, address, protocol, pool, a tag or a service")),
  state: s.optional(s.choice(...STATES)),
});

export const workerPage = operation({
  name: "workerPage",
  role: "read",
  method: "GET",
  path: "/workers/page",
  summary: "Workers in an order, a page at a time, with what they run",
  input,
  output: s.object({
    workers: s.list(row, PAGE),
    total: s.described(s.count(), "how many there are"),
    matching: s.described(s.count(), "how many of them were asked for"),
  }),
  perform: (core, given) => {
    const byUse = [...core.state.workers.values()].sort((a, b) => a.lastUse - b.lastUse);
    const places = new Map(byUse.map((one, place) => [one, place]));
    const wanted = byUse.filter((one) => isIn(one, given.state) && hasText(one, given.find?.toLowerCase()));
    const ordered = given.order === "use" ? wanted : wanted.sort(ORDERS[given.order]);
    const shown = ordered.slice(given.from, given.from + given.limit);
    return {
      workers: shown.map((one) => ({
        ...viewOfWorker(core, one),
        place: places.get(one) ?? 0,
        running: runningAt(one),
      })),
      total: byUse.length,
      matching: wanted.length,
    };
  },
});

const usedSlots = ({ profile, free }: WorkerState): number => profile.total.slots - (free.slots ?? 0);

const isIn = (one: WorkerState, state: (typeof STATES)[number] | undefined): boolean => {
  switch (state) {
    case undefined:
      return true;
    case "connected":
      return one.connected;
    case "away":
      return !one.connected;
    case "draining":
      return one.draining;
    case "busy":
      return one.connected && usedSlots(one) > 0;
    case "idle":
      return one.connected && usedSlots(one) === 0;
    default:
      return one.standing === state;
  }
};

function hasText({ profile }: WorkerState, text: string | undefined): boolean {
  if (text === undefined) return true;
  const { name, protocol, pool, address = "", tags, services } = profile;
  return [name, protocol, pool, address, ...tags, ...services].some((one) => one.toLowerCase().includes(text));
}

const byName = (a: WorkerState, b: WorkerState): number =>
  a.profile.name < b.profile.name ? -1 : a.profile.name > b.profile.name ? 1 : 0;

const trouble = ({ standing, connected, draining }: WorkerState): number =>
  standing === "banned" ? 0 : standing === "suspended" ? 1 : connected ? (draining ? 3 : 4) : 2;

const ORDERS: Readonly<Record<"name" | "busy" | "trouble", (a: WorkerState, b: WorkerState) => number>> = {
  name: byName,
  busy: (a, b) => usedSlots(b) - usedSlots(a) || byName(a, b),
  trouble: (a, b) => trouble(a) - trouble(b) || byName(a, b),
};

function runningAt(worker: WorkerState): s.ReadBy<typeof runningTask>[] {
  const found: s.ReadBy<typeof runningTask>[] = [];
  for (const { job, first, tasks, attempt, startedAt } of claimsOf(worker)) {
    for (let at = 0; at < tasks.length && found.length < PAGE; at++) {
      if (tasks[at] !== STARTED) continue;
      const since = startedAt?.get(first + at);
      const started = since === undefined ? {} : { startedAt: since };
      found.push({ job: job.id, index: first + at, name: job.job.name, attempt, ...started });
    }
  }
  const longestFirst = found.sort((a, b) => (a.startedAt ?? 0) - (b.startedAt ?? 0));
  return longestFirst.slice(0, RUNNING);
}
