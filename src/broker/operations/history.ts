/** How things were. */
import * as s from "../../model/schema.js";
import { HISTORY_FIELDS, type HistoryField, type HistoryPoint, TICK_MS } from "../stats/history.js";
import { operation } from "./operation.js";

const MOST = 2_000;
const MINUTE_MS = 60_000;

const column = (what: string) => s.described(s.list(s.number(), MOST), what);

const COLUMNS = {
  succeeded: column("tasks, in the time of a point"),
  failed: column("tasks"),
  cancelled: column("tasks"),
  assigned: column("tasks"),
  requestsCompleted: column("requests, refusals included"),
  requestsFailed: column("requests"),
  waitP50: column("milliseconds from when a task could be handed out until it was; half of them waited no longer"),
  waitP95: column("milliseconds; 95 of 100 waited no longer"),
  oldestWait: column("milliseconds for which the work that waited longest had waited"),
  latencyP50: column("milliseconds from a request to its answer"),
  latencyP95: column("milliseconds"),
  slots: column("of connected workers"),
  slotsUsed: column("of these"),
  tasksWaiting: column("of open jobs"),
  tasksRunning: column("at workers"),
  workers: column("connected"),
} as const satisfies Readonly<Record<HistoryField, unknown>>;

export const history = operation({
  name: "history",
  role: "read",
  method: "GET",
  path: "/history",
  summary: "How things were: the last hour in steps of 5 s, or the last day in minutes",
  input: s.object({
    span: s.withDefault(s.described(s.choice("hour", "day"), "the hour is this broker's own, since its start"), "hour"),
  }),
  output: s.object({
    stepMs: s.described(s.count(), "the time of a point; where there was no broker, there is none"),
    at: column("the end of each point's time, in milliseconds since 1970"),
    ...COLUMNS,
  }),
  perform: async (core, { span }) => {
    const points = span === "hour" ? core.history.recent() : await core.history.minutes();
    return {
      stepMs: span === "hour" ? TICK_MS : MINUTE_MS,
      at: points.map(({ at }) => at),
      ...columnsOf(points),
    };
  },
});

const columnsOf = (points: readonly HistoryPoint[]) =>
  Object.fromEntries(HISTORY_FIELDS.map((name) => [name, points.map((point) => point[name])])) as Record<HistoryField, number[]>;
