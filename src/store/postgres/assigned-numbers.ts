/**
 * Numbers that the database assigns before a batch begins: of jobs, and of workers in results. They are committed
 * separately. The number of a refused batch is not used again.
 */
import { JobId } from "../../model/ids.js";
import type { Write } from "../../model/store.js";
import { type Client, send } from "./connections.js";
import type { WriteOf } from "./stages.js";
import { textArray, validText } from "./statements.js";

export const NEXT_JOBS = "SELECT nextval('laboro.job_number') AS id FROM generate_series(1, $1::int)";
const ADD_WORKERS = "INSERT INTO laboro.worker (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING";
const FIND_WORKERS = "SELECT id, name FROM laboro.worker WHERE name = ANY($1::text[])";

/** A submission keeps its number, however often its batch is given. */
export class SubmissionNumbers {
  readonly assigned = new Map<WriteOf<"submit">, JobId>();

  async assign(client: Client, writes: readonly Write[]): Promise<void> {
    const unnumbered: WriteOf<"submit">[] = [];
    for (const write of writes) {
      if (write.op !== "submit" || this.assigned.has(write)) continue;
      if (write.id === undefined) unnumbered.push(write);
      else this.assigned.set(write, write.id);
    }
    if (unnumbered.length === 0) return;
    const rows = await send<{ id: number }>(client, NEXT_JOBS, [unnumbered.length]);
    rows.forEach(({ id }, i) => {
      const write = unnumbered[i];
      if (write !== undefined) this.assigned.set(write, JobId(id));
    });
  }
}

export class WorkerNumbers {
  readonly known = new Map<string, number>();

  async load(client: Client, writes: readonly Write[]): Promise<void> {
    const unknown = new Set<string>();
    for (const write of writes) {
      const results = write.op === "settle" ? write.results : write.op === "replace" ? write.earlierAttempts : [];
      for (const { worker } of results) if (!this.known.has(worker)) unknown.add(worker);
    }
    if (unknown.size === 0) return;
    const names = textArray([...unknown]);
    const [, rows] = await Promise.all([
      send(client, ADD_WORKERS, [names]),
      send<{ id: number; name: string }>(client, FIND_WORKERS, [names]),
    ]);
    const numbers = new Map(rows.map(({ id, name }) => [name, id]));
    for (const name of unknown) this.known.set(name, numbers.get(validText(name)) ?? 0);
  }
}
