/**
 * Output beyond the cap, passed on to the clients that follow its job. A chunk stays in memory until every follower has
 * taken it; only then may its worker send more of that task (workers bound the bytes of one task). So a slow client
 * slows down only the tasks that it shows.
 *
 * Without a follower, chunks wait for a grace period: a client follows a job after submitting it, or reconnects. Then
 * they are dropped, so that no task waits for a client that is gone.
 */
import type { JobId } from "../model/ids.js";
import type { OutputChunk } from "../model/store.js";

const FOLLOWER_GRACE_MS = 10_000;

/** Reports to the worker that everything before `end` was taken. */
export type ReportTaken = (end: number) => void;

interface RelayedTask {
  /** Not taken by all followers yet, in order of offset. */
  readonly chunks: OutputChunk[];
  /** For the connection on which the worker last sent output. */
  report: ReportTaken;
}

interface Follower {
  readonly send: (chunk: OutputChunk) => void;
  /** By attempt: the offset up to which everything was taken. */
  readonly taken: Map<string, number>;
}

interface RelayedJob {
  readonly tasks: Map<string, RelayedTask>;
  readonly followers: Set<Follower>;
  grace: NodeJS.Timeout | undefined;
  /** No client came in time: new output is dropped. */
  abandoned: boolean;
}

type AttemptRef = Pick<OutputChunk, "index" | "attempt">;

export class OutputRelays {
  readonly #graceMs: number;
  readonly #jobs = new Map<JobId, RelayedJob>();

  constructor(graceMs = FOLLOWER_GRACE_MS) {
    this.#graceMs = graceMs;
  }

  /** Passes a chunk on. `report` is called when it was taken or dropped. */
  relay(chunk: OutputChunk, report: ReportTaken): void {
    const job = this.#job(chunk.job);
    if (job.abandoned) {
      report(endOf(chunk));
      return;
    }
    const key = attemptKey(chunk);
    const task = job.tasks.get(key) ?? { chunks: [], report };
    job.tasks.set(key, task);
    task.report = report;
    const last = task.chunks.at(-1);
    // After a reconnect the worker repeats output that was not reported as taken.
    if (last !== undefined && chunk.offset < endOf(last)) return;
    // The bytes are a view into the received frame.
    const kept = { ...chunk, bytes: chunk.bytes.slice() };
    task.chunks.push(kept);
    for (const { send } of job.followers) send(kept);
    if (job.followers.size === 0) this.#startGrace(job);
  }

  /** Sends all chunks. The follower calls the returned functions when it has taken something, and when it ends. */
  follow(
    id: JobId,
    send: (chunk: OutputChunk) => void,
  ): { readonly taken: (task: AttemptRef, end: number) => void; readonly end: () => void } {
    const job = this.#job(id);
    const follower: Follower = { send, taken: new Map() };
    job.followers.add(follower);
    job.abandoned = false;
    clearTimeout(job.grace);
    job.grace = undefined;
    for (const { chunks } of job.tasks.values()) for (const chunk of chunks) send(chunk);
    return {
      taken: (task, end) => {
        const key = attemptKey(task);
        if (!job.followers.has(follower) || !job.tasks.has(key)) return;
        follower.taken.set(key, end);
        this.#release(job, key);
      },
      end: () => {
        if (!job.followers.delete(follower)) return;
        if (job.followers.size > 0) for (const key of [...job.tasks.keys()]) this.#release(job, key);
        else if (job.tasks.size > 0) this.#startGrace(job);
        else if (this.#jobs.get(id) === job) this.#jobs.delete(id);
      },
    };
  }

  jobEnded(id: JobId): void {
    const job = this.#jobs.get(id);
    if (job === undefined || job.followers.size > 0) return;
    clearTimeout(job.grace);
    this.#jobs.delete(id);
  }

  stop(): void {
    for (const { grace } of this.#jobs.values()) clearTimeout(grace);
    this.#jobs.clear();
  }

  #job(id: JobId): RelayedJob {
    const job: RelayedJob = this.#jobs.get(id) ?? {
      tasks: new Map(),
      followers: new Set(),
      grace: undefined,
      abandoned: false,
    };
    this.#jobs.set(id, job);
    return job;
  }

  /** Drops chunks that all followers have taken, and reports this to the worker. */
  #release(job: RelayedJob, key: string): void {
    const task = job.tasks.get(key);
    if (task === undefined) return;
    const end = Math.min(...[...job.followers].map(({ taken }) => taken.get(key) ?? 0));
    let count = 0;
    while (count < task.chunks.length && endOf(task.chunks[count] as OutputChunk) <= end) count++;
    if (count === 0) return;
    task.chunks.splice(0, count);
    if (task.chunks.length === 0) {
      job.tasks.delete(key);
      for (const { taken } of job.followers) taken.delete(key);
    }
    task.report(end);
  }

  #startGrace(job: RelayedJob): void {
    job.grace ??= setTimeout(() => {
      job.grace = undefined;
      job.abandoned = true;
      for (const { chunks, report } of job.tasks.values()) {
        const last = chunks.at(-1);
        if (last !== undefined) report(endOf(last));
      }
      job.tasks.clear();
    }, this.#graceMs);
  }
}

const attemptKey = ({ index, attempt }: AttemptRef): string => `${index}.${attempt}`;

const endOf = ({ offset, bytes }: OutputChunk): number => offset + bytes.length;
