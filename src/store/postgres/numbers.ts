/**
 * Numbers that the database gives before a batch begins: of jobs, and of the workers that results name. They are committed by themselves; a number
 * whose batch is refused is given to nobody.
 */
import { JobId } from "../../model/ids.js";
import type { Write } from "../../model/store.js";
import { plain, texts } from "./arrays.js";
import { type Client, send } from "./connections.js";
import type { Op } from "./stages.js";

export const NEXT_JOBS = "SELECT nextval('laboro.job_number') AS id FROM generate_series(1, $1::int)";
export const ADD_WORKERS = "INSERT INTO laboro.worker (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING";
export const FIND_WORKERS = "SELECT id, name FROM laboro.worker WHERE name = ANY($1::text[])";

/** A submission keeps its number, however often its batch is given. */
export class JobNumbers {
  readonly given = new Map<Op<"submit">, JobId>();

  async give(client: Client, writes: readonly Write[]): Promise<void> {
    const wanting: Op<"submit">[] = [];
    for (const write of writes) {
      if (write.op !== "submit" || this.given.has(write)) continue;
      if (write.id === undefined) wanting.push(write);
      else this.given.set(write, write.id);
    }
    if (wanting.length === 0) return;
    const rows = await send<{ id: number }>(client, NEXT_JOBS, [wanting.length]);
    rows.forEach(({ id }, i) => {
      const write = wanting[i];
      if (write !== undefined) this.given.set(write, JobId(id));
    });
  }
}

export class WorkerNumbers {
  readonly known = new Map<string, number>();

  async learn(client: Client, writes: readonly Write[]): Promise<void> {
    const unknown = new Set<string>();
    for (const write of writes) {
      const results = write.op === "settle" ? write.results : write.op === "replace" ? write.earlier : [];
      for (const { worker } of results) if (!this.known.has(worker)) unknown.add(worker);
    }
    if (unknown.size === 0) return;
    const names = texts([...unknown]);
    const [, rows] = await Promise.all([
      send(client, ADD_WORKERS, [names]),
      send<{ id: number; name: string }>(client, FIND_WORKERS, [names]),
    ]);
    const numbers = new Map(rows.map(({ id, name }) => [name, id]));
    for (const name of unknown) this.known.set(name, numbers.get(plain(name)) ?? 0);
  }
}
