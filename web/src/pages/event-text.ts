/** Events as text. */
import type { Answer } from "../api.js";
import { plural } from "../format.js";
import { address } from "../route.js";

type OverviewEvent = Answer<"overview">["recentEvents"][number];

interface EventText {
  readonly text: string;
  readonly href?: string;
  readonly bad: boolean;
}

export function eventText(event: OverviewEvent): EventText {
  const { kind, job, name = "", worker } = event;
  const href =
    job !== undefined
      ? address(["jobs", job])
      : worker !== undefined
        ? address(["workers"], { find: name })
        : event.schedule !== undefined
          ? address(["schedules"])
          : event.allocator !== undefined
            ? address(["allocators"])
            : undefined;
  const bad =
    kind === "broker-halted" || (kind === "job-ended" && event.state === "failed") || kind === "worker-disconnected";
  return { text: describe(event), bad, ...(href === undefined || kind === "job-removed" ? {} : { href }) };
}

function describe({
  kind,
  job,
  name,
  count: many = 0,
  state,
  counters,
  message,
  schedule,
  reason,
  pool,
}: OverviewEvent): string {
  switch (kind) {
    case "job-added":
      return `job ${job} ${name}: ${plural(many, "task")} submitted`;
    case "job-edited":
      return `job ${job} ${name} was changed: ${plural(many, "task")}`;
    case "job-held":
      return `job ${job} is held`;
    case "job-released":
      return `job ${job} is released`;
    case "job-due":
      return `job ${job}: its time has come`;
    case "job-cancelled":
      return `job ${job}: tasks were cancelled`;
    case "job-rerun":
      return `job ${job}: ${plural(many, "task")} again`;
    case "job-removed":
      return `job ${job} was removed`;
    case "job-ended":
      return `job ${job} has ${state}${counters === undefined || counters.failed === 0 ? "" : `, ${plural(counters.failed, "task")} failed`}`;
    case "worker-joined":
      return `${name} has joined`;
    case "worker-disconnected":
      return `${name} is disconnected`;
    case "worker-left":
      return `${name} has left`;
    case "worker-undrained":
      return `${name} gets tasks again`;
    case "pool-paused":
      return `pool ${pool} is paused`;
    case "pool-resumed":
      return `pool ${pool} continues`;
    case "worker-draining":
      return `${name} is draining`;
    case "schedule-set":
      return `schedule ${schedule} is saved`;
    case "schedule-removed":
      return `schedule ${schedule} is removed`;
    case "schedule-paused":
      return `schedule ${schedule} is paused`;
    case "schedule-resumed":
      return `schedule ${schedule} is resumed`;
    case "schedule-run":
      return `schedule ${schedule} has started job ${job}`;
    case "schedule-skipped":
      return `schedule ${schedule} has skipped a run: ${reason}`;
    case "allocator-log":
      return `allocation ${message}`;
    case "broker-halted":
      return `dispatch is halted: ${message}`;
    case "broker-resumed":
      return "dispatch resumed";
    default:
      return kind;
  }
}
