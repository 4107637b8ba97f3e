/** The list of jobs: what is open first, then what ended last. */

import { shownCount, shownDuration } from "../../../base/format.js";
import { type Cell, type Column, table } from "../../lib/terminal/table.js";
import { colourOf, type Terminal } from "../../lib/terminal/terminal.js";
import type { JobView } from "../../lib/views.js";

const COLUMNS: readonly Column[] = [
  { title: "JOB", align: "right" },
  { title: "NAME", least: 6 },
  { title: "STATE" },
  { title: "DONE", align: "right" },
  { title: "FAILED", align: "right", drop: 2 },
  { title: "RUNNING", align: "right", drop: 3 },
  { title: "POOL", least: 6, drop: 5 },
  { title: "AGE", align: "right", drop: 1 },
  { title: "TOOK", align: "right", drop: 4 },
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
    { text: job.state, colour: colourOf(job.state) },
    `${shownCount(succeeded + failed + cancelled)}/${shownCount(job.count)}`,
    { text: failed === 0 ? "" : shownCount(failed), colour: "red" },
    running === 0 ? "" : shownCount(running),
    job.pool === "default" ? "" : job.pool,
    shownDuration(now - job.created),
    job.ended === undefined ? "" : shownDuration(job.ended - job.created),
  ];
}
