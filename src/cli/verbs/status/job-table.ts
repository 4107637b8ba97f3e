/** The list of jobs: open ones first, then those that ended last. */

import { formatCount, shortDuration } from "../../../base/format.js";
import { type Cell, type Column, table } from "../../lib/terminal/table.js";
import { stateColour, type Terminal } from "../../lib/terminal/terminal.js";
import type { JobView } from "../../lib/views.js";

const COLUMNS: readonly Column[] = [
  { title: "JOB", align: "right" },
  { title: "NAME", minWidth: 6 },
  { title: "STATE" },
  { title: "DONE", align: "right" },
  { title: "FAILED", align: "right", dropPriority: 2 },
  { title: "RUNNING", align: "right", dropPriority: 3 },
  { title: "POOL", minWidth: 6, dropPriority: 5 },
  { title: "AGE", align: "right", dropPriority: 1 },
  { title: "ELAPSED", align: "right", dropPriority: 4 },
];

export function jobTable(jobs: readonly JobView[], terminal: Terminal, now = Date.now()): string[] {
  return table(
    COLUMNS,
    jobs.map((job) => rowOf(job, now)),
    terminal,
  );
}

function rowOf(job: JobView, now: number): Cell[] {
  const { succeeded, failed, cancelled, running } = job.counters;
  return [
    String(job.id),
    job.name,
    { text: job.state, colour: stateColour(job.state) },
    `${formatCount(succeeded + failed + cancelled)}/${formatCount(job.count)}`,
    { text: failed === 0 ? "" : formatCount(failed), colour: "red" },
    running === 0 ? "" : formatCount(running),
    job.pool === "default" ? "" : job.pool,
    shortDuration(now - job.created),
    job.ended === undefined ? "" : shortDuration(job.ended - job.created),
  ];
}
