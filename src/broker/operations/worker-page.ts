/** Pages of a sorted list of workers, with the tasks that they run. */
import { claimsOf, STARTED, type WorkerState } from "../../dispatch/state.js";
import { JobId, WorkerId } from "../../model/ids.js";
import * as s from "../../model/schema.js";
import { taskNumber } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { index, limit, number, operation } from "./operation.js";
import { viewOfWorker, type WorkerView, workerView } from "./workers.js";

const PAGE = 500;
/** Tasks listed of one worker; `tasks` has their number. */
const RUNNING = 20;

const runningTask = s.object({
  job: s.count(),
  index,
  number,
  name: s.described(s.text(), "of the job"),
  attempt: s.count(),
  startedAt: s.optional(s.number("milliseconds since 1970; absent if the start was not reported")),
  entry: s.optional(s.described(s.textOrBytes(), "only if one worker is requested by its id")),
});

const row = s.object({
  ...workerView.shape,
  position: s.count("from 0: its position in the order in which workers are used next"),
  running: s.described(s.list(runningTask, RUNNING), `the tasks that it runs, longest first; ${RUNNING} at most`),
});

const STATES = ["connected", "disconnected", "draining", "suspended", "banned", "busy", "idle"] as const;

const input = s.object({
  from: s.withDefault(s.count("skip this many"), 0),
  limit: limit(PAGE, 100),
  order: s.withDefault(
    s.described(
      s.choice("lastUsed", "name", "busy", "problems"),
      "least recently used first, those of other brokers last; by name; most slots in use first; those with problems first",
    ),
    "lastUsed",
  ),
  find: s.optional(s.described(s.text(), "part of its name, address, protocol, pool, a tag or a service")),
  state: s.optional(s.choice(...STATES)),
  id: s.optional(s.described(s.text(), "only this worker, with the entries of its tasks")),
});

export const workerPage = operation({
  name: "workerPage",
  role: "read",
  method: "GET",
  path: "/workers/page",
  summary: "Workers, sorted, a page at a time, with the tasks that they run",
  input,
  output: s.object({
    workers: s.list(row, PAGE),
    total: s.count("how many there are"),
    matching: s.count("how many of them match"),
  }),
  perform: async (core, given) => {
    const all = [...localRows(core), ...(await peerRows(core))].sort((a, b) => a.lastUse - b.lastUse);
    const positions = new Map(all.map((one, position) => [one, position]));
    const { id } = given;
    const find = given.find?.toLowerCase();
    const wanted = all.filter((one) => (id ?? one.id) === one.id && isIn(one, given.state) && hasText(one, find));
    const ordered = given.order === "lastUsed" ? wanted : wanted.sort(ORDERS[given.order]);
    const page = ordered.slice(given.from, given.from + given.limit);
    const workers = page.map((one) => ({
      ...one.view(),
      position: positions.get(one) ?? 0,
      running: one.running(),
    }));
    return {
      workers: id === undefined ? workers : await Promise.all(workers.map((one) => withEntries(core, one))),
      total: all.length,
      matching: wanted.length,
    };
  },
});

/** What the list is sorted and filtered by; the rest is made only for the workers of the page. */
interface WorkerRow {
  readonly id: string;
  readonly searchTexts: readonly string[];
  readonly name: string;
  readonly connected: boolean;
  readonly draining: boolean;
  readonly standing: WorkerView["standing"];
  readonly used: number;
  readonly lastUse: number;
  view(): WorkerView;
  running(): Running[];
}

type Running = s.ReadType<typeof runningTask>;

function localRows(core: Core): WorkerRow[] {
  return Array.from(core.state.workers.values(), (one) => {
    const { id, name, protocol, pool, address = "", tags, services, total } = one.profile;
    return {
      id,
      searchTexts: [name, protocol, pool, address, ...tags, ...services],
      name,
      connected: one.connected,
      draining: one.draining,
      standing: one.standing,
      used: total.slots - (one.free.slots ?? 0),
      lastUse: one.lastUse,
      view: () => viewOfWorker(core, one),
      running: () => runningAt(one),
    };
  });
}

/** Workers at other brokers of the group; their order of use and their tasks are not known here. */
async function peerRows(core: Core): Promise<WorkerRow[]> {
  const { peers } = core;
  if (peers === undefined) return [];
  const found: WorkerRow[] = [];
  for (const { peer, answer } of await peers.askAll<{ workers: WorkerView[] }>("peer.workers", {})) {
    for (const view of answer.workers) {
      if (core.state.workers.has(WorkerId(view.id))) continue;
      const { id, name, protocol, pool, address = "", tags, services, connected, draining } = view;
      const { standing, total, free } = view;
      found.push({
        id,
        searchTexts: [name, protocol, pool, address, ...tags, ...services],
        name,
        connected,
        draining,
        standing,
        used: (total.slots ?? 0) - (free.slots ?? 0),
        lastUse: Number.MAX_SAFE_INTEGER,
        view: () => ({ ...view, broker: peer.name }),
        running: () => [],
      });
    }
  }
  return found;
}

const isIn = (one: WorkerRow, state: (typeof STATES)[number] | undefined): boolean => {
  switch (state) {
    case undefined:
      return true;
    case "connected":
      return one.connected;
    case "disconnected":
      return !one.connected;
    case "draining":
      return one.draining;
    case "busy":
      return one.connected && one.used > 0;
    case "idle":
      return one.connected && one.used === 0;
    default:
      return one.standing === state;
  }
};

const hasText = ({ searchTexts }: WorkerRow, text: string | undefined): boolean =>
  text === undefined || searchTexts.some((one) => one.toLowerCase().includes(text));

const byName = (a: WorkerRow, b: WorkerRow): number => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);

const problemRank = ({ standing, connected, draining }: WorkerRow): number =>
  standing === "banned" ? 0 : standing === "suspended" ? 1 : connected ? (draining ? 3 : 4) : 2;

const ORDERS: Readonly<Record<"name" | "busy" | "problems", (a: WorkerRow, b: WorkerRow) => number>> = {
  name: byName,
  busy: (a, b) => b.used - a.used || byName(a, b),
  problems: (a, b) => problemRank(a) - problemRank(b) || byName(a, b),
};

function runningAt(worker: WorkerState): Running[] {
  const found: Running[] = [];
  for (const { job, first, tasks, attempt, startedAt } of claimsOf(worker)) {
    for (let at = 0; at < tasks.length && found.length < PAGE; at++) {
      if (tasks[at] !== STARTED) continue;
      const since = startedAt?.get(first + at);
      const started = since === undefined ? {} : { startedAt: since };
      const index = first + at;
      const number = taskNumber(job.job, index);
      found.push({ job: job.id, index, number, name: job.job.name, attempt, ...started });
    }
  }
  const longestFirst = found.sort((a, b) => (a.startedAt ?? 0) - (b.startedAt ?? 0));
  return longestFirst.slice(0, RUNNING);
}

async function withEntries<Row extends { readonly running: readonly Running[] }>(core: Core, row: Row): Promise<Row> {
  const running = row.running.map(async (one): Promise<Running> => {
    const job = JobId(one.job);
    if (core.state.jobs.get(job)?.job.hasEntries !== true) return one;
    const [entry] = await core.store.entries(job, { first: one.index, last: one.index });
    return entry === undefined ? one : { ...one, entry };
  });
  return { ...row, running: await Promise.all(running) };
}
