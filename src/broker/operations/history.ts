/** Time series for charts. */
import * as s from "../../model/schema.js";
import { HISTORY_FIELDS, type HistoryField, type HistoryPoint, TICK_MS } from "../stats/history.js";
import { operation } from "./operation.js";

const MOST = 2_000;
const MINUTE_MS = 60_000;

const column = (what: string) => s.described(s.list(s.number(), MOST), what);

const COLUMNS = {
  succeeded: column("tasks, in the interval of a point"),
  failed: column("tasks"),
  cancelled: column("tasks"),
  assigned: column("tasks"),
  requestsCompleted: column("requests, failed ones included"),
  requestsFailed: column("requests"),
  waitP50: column("median of the milliseconds from when a task could be assigned until it was"),
  waitP95: column("95th percentile of the same"),
  oldestWait: column("milliseconds that the oldest waiting task had waited"),
  latencyP50: column("median of the milliseconds from a request to its answer"),
  latencyP95: column("95th percentile of the same"),
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
  summary: "Time series: the last hour in steps of 5 s, or the last day in minutes",
  input: s.object({
    span: s.withDefault(s.described(s.choice("hour", "day"), "hour: of this broker only, since its start"), "hour"),
  }),
  output: s.object({
    stepMs: s.count("the interval of a point; points are missing while no broker ran"),
    at: column("the end of each interval, in milliseconds since 1970"),
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
  Object.fromEntries(HISTORY_FIELDS.map((name) => [name, points.map((point) => point[name])])) as Record<
    HistoryField,
    number[]
  >;
