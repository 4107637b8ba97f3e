/**
 * A cache of entries, in their stored chunks. Claims need a job's entries in order, so with the recent chunks cached, a
 * chunk is read once and not for each of its thousand tasks. Entries never change.
 *
 * Numbers that the database assigns before a batch begins: of jobs, and of workers in results. They are committed
 * separately. The number of a refused batch is not used again.
 */
import { JobId } from "../../model/ids.js";
import type { Entries } from "../../model/job.js";
import type { Range } from "../../model/ranges.js";
import type { EntryChunk, Write } from "../../model/store.js";
import { entriesWithin } from "../rows.js";
import { type Client, type Session, send } from "./connections.js";
import type { WriteOf } from "./stages.js";
import { textArray, validText } from "./statements.js";

/** $1 job, $2 first and $3 last task. */
export const ENTRIES = `
SELECT first, last, bytes FROM laboro.entry_chunk
WHERE job = $1::bigint AND first <= $3::int
  AND first >= (SELECT max(first) FROM laboro.entry_chunk WHERE job = $1::bigint AND first <= $2::int)
ORDER BY first`;

const MAX_BYTES = 16 * 1024 * 1024;
const MAX_CHUNKS = 2_000;

export class EntryCache {
  /** The job used last at the end; its chunks in any order. */
  readonly #jobs = new Map<JobId, readonly EntryChunk[]>();
  #bytes = 0;
  #count = 0;

  async read(job: JobId, range: Range, session: Session): Promise<Entries> {
    const known = this.#covering(job, range);
    if (known !== undefined) return entriesWithin(known, range);
    const rows = await session.send<EntryChunk>(ENTRIES, [job, range.first, range.last]);
    this.add(job, rows);
    return entriesWithin(rows, range);
  }

  add(job: JobId, chunks: readonly EntryChunk[]): void {
    const others = (this.#jobs.get(job) ?? []).filter(({ first }) => chunks.every((chunk) => chunk.first !== first));
    this.delete(job);
    // Of a large job, the chunks that were read last are kept.
    const kept = [...others, ...chunks].slice(-MAX_CHUNKS / 2);
    this.#jobs.set(job, kept);
    for (const { bytes } of kept) this.#bytes += bytes.length;
    this.#count += kept.length;
    for (const oldest of this.#jobs.keys()) {
      if (this.#bytes <= MAX_BYTES && this.#count <= MAX_CHUNKS) return;
      this.delete(oldest);
    }
  }

  delete(job: JobId): void {
    const chunks = this.#jobs.get(job) ?? [];
    this.#jobs.delete(job);
    for (const { bytes } of chunks) this.#bytes -= bytes.length;
    this.#count -= chunks.length;
  }

  /** In order, if they are all there. */
  #covering(job: JobId, range: Range): EntryChunk[] | undefined {
    const chunks = this.#jobs.get(job);
    if (chunks === undefined) return undefined;
    const found = chunks.filter(({ first, last }) => first <= range.last && last >= range.first);
    found.sort((a, b) => a.first - b.first);
    let next = range.first;
    for (const { first, last } of found) {
      if (first > next) return undefined;
      next = last + 1;
    }
    if (next <= range.last) return undefined;
    this.#jobs.delete(job);
    this.#jobs.set(job, chunks);
    return found;
  }
}

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
