/** The runs of a schedule whose jobs have its name, held against its points in time. */
import type { Client } from "../../src/entries/client.js";

export interface ScheduleRuns {
  readonly runs: number;
  /** Points that have more than one run. */
  readonly twice: number;
  /** Runs that do not follow the run before, though that was made in time. */
  readonly unexplained: readonly { readonly point: number; readonly created: number }[];
  /** Runs that were made before their point. */
  readonly early: readonly { readonly point: number; readonly created: number }[];
}

/** A point may be left out only where the run before it came after it. */
export async function runsOf(client: Client, name: string, everyMs: number): Promise<ScheduleRuns> {
  const { jobs } = await client.jobs({ name, limit: 1_000 });
  const runs = jobs.map(({ idempotencyKey = "", created }) => ({
    point: Date.parse(idempotencyKey.replace(`schedule:${name}:`, "")),
    created,
  }));
  runs.sort((a, b) => a.point - b.point);
  const unexplained = runs.slice(1).filter(({ point }, i) => {
    const before = runs[i];
    const next = before === undefined ? 0 : before.point + everyMs;
    return before !== undefined && point !== next && before.created < next;
  });
  return {
    runs: runs.length,
    twice: runs.length - new Set(runs.map(({ point }) => point)).size,
    unexplained,
    early: runs.filter(({ point, created }) => created < point - 50),
  };
}
