/** The writes of a broker as one transaction: locks, output, then stage after stage. */
import { LaboroError } from "../../base/errors.js";
import type { JobId } from "../../model/ids.js";
import type { Write, WriteResult } from "../../model/store.js";
import { withOwnBytes } from "../small-output.js";
import { numberArray } from "./arrays.js";
import { JobNumbers, type WorkerNumbers } from "./assigned-numbers.js";
import type { TransactionWork } from "./commit-queue.js";
import type { Client, Session, Value } from "./connections.js";
import type { EntryCache } from "./entry-cache.js";
import { isLimitedLease } from "./limit-rows.js";
import { lockRows } from "./locks.js";
import { cancel, hold, remove } from "./operations/cancel.js";
import { adopt, claim } from "./operations/claim.js";
import { edit } from "./operations/edit.js";
import { totalsOf } from "./operations/end-jobs.js";
import { lease } from "./operations/lease.js";
import { APPEND, outputOf } from "./operations/output.js";
import { promote } from "./operations/promote.js";
import { put } from "./operations/put.js";
import { release } from "./operations/release.js";
import { replace } from "./operations/replace.js";
import { rerun } from "./operations/rerun.js";
import { schedule } from "./operations/schedule.js";
import { settle } from "./operations/settle.js";
import { submit } from "./operations/submit.js";
import type { BatchContext } from "./stages.js";
import { type IndexedWrite, type SingleOp, type Stage, StageProgress, stagesOf } from "./stages.js";

export class WriteBatch implements TransactionWork<readonly WriteResult[]> {
  readonly noTimeout: boolean;
  readonly #writes: readonly Write[];
  readonly #now: number;
  readonly #workers: WorkerNumbers;
  readonly #entries: EntryCache;
  readonly #numbers = new JobNumbers();
  readonly #output: readonly Value[] | undefined;

  constructor(writes: readonly Write[], now: number, workers: WorkerNumbers, entries: EntryCache) {
    this.#writes = writes.map(copied);
    this.#now = now;
    this.#workers = workers;
    this.#entries = entries;
    this.#output = outputOf(writes);
    this.noTimeout = writes.some(({ op }) => op === "rerun" || op === "remove");
  }

  async prepare(client: Client): Promise<void> {
    await this.#workers.load(client, this.#writes);
    await this.#numbers.assign(client, this.#writes);
  }

  async run(session: Session, separately: boolean): Promise<readonly WriteResult[]> {
    const writeResults: (WriteResult | undefined)[] = this.#writes.map(({ op }) =>
      op === "output" ? { op } : undefined,
    );
    const batch: BatchContext = {
      session,
      now: this.#now,
      writeResults,
      workerNumbers: this.#workers.known,
      jobNumbers: this.#numbers.assigned,
      entries: this.#entries,
    };
    const pending: Promise<unknown>[] = [lockRows(session, this.#writes)];
    if (this.#output !== undefined) {
      const submitted = numberArray([...this.#numbers.assigned.values()]);
      pending.push(session.send(APPEND, [...this.#output, submitted]));
    }
    for (const stage of stagesOf(this.#writes, separately)) {
      // Claims before it may still have to read the job's entries.
      if (stage.singles.some(({ write }) => write.op === "remove")) await Promise.all(pending);
      const done = runStage(batch, stage);
      pending.push(done);
      // Only operations whose statements depend on each other have to be awaited; all others are pipelined.
      const dependent = stage.singles.some(({ write }) => AWAITED.has(write.op)) || stage.leases.some(isLimitedLease);
      if (stage.replacing || dependent) await Promise.all(pending);
    }
    await Promise.all(pending);
    return writeResults.map((result) => {
      if (result === undefined) throw new LaboroError("LABORO_INTERNAL", "a write got no result");
      return result;
    });
  }
}

/** A batch may wait, and be tried again, while the buffers that it came in are used for something else. */
function copied(write: Write): Write {
  if (write.op === "settle") return { ...write, results: withOwnBytes(write.results) };
  return write.op === "replace" ? { ...write, earlierAttempts: withOwnBytes(write.earlierAttempts) } : write;
}

/** Their statements depend on what the one before found. */
const AWAITED: ReadonlySet<Write["op"]> = new Set(["edit", "rerun", "release", "schedule", "promote"]);

async function runStage(batch: BatchContext, stage: Stage): Promise<void> {
  const { submits, settles, replaces, claims, leases, singles } = stage;
  const stageProgress = new StageProgress();
  const pending: Promise<void>[] = [];
  const begin = <T>(list: readonly T[], operation: () => Promise<void>): void => {
    if (list.length > 0) pending.push(operation());
  };
  begin(submits, () => submit(batch, submits));
  begin(settles, () => settle(batch, stageProgress, settles));
  begin(replaces, () => replace(batch, stageProgress, replaces));
  begin(claims, () => claim(batch, claims));
  begin(leases, () => lease(batch, leases));
  begin(singles, () => runSingle(batch, stageProgress, singles));
  const counted = new Set<JobId>();
  for (const { write } of [...settles, ...replaces]) counted.add(write.job);
  for (const { write } of singles) if (write.op === "cancel") counted.add(write.job);
  const [totals] = await Promise.all([totalsOf(batch, counted), ...pending]);
  const released = singles.some(({ write }) => write.op === "release");
  for (const [at, progress] of stageProgress.progress(released ? await totalsOf(batch, stageProgress.jobs) : totals)) {
    const result = batch.writeResults[at];
    if (result !== undefined) batch.writeResults[at] = { ...result, progress } as WriteResult;
  }
}

function runSingle(
  batch: BatchContext,
  stageProgress: StageProgress,
  solo: readonly IndexedWrite<SingleOp>[],
): Promise<void> {
  const releases = solo.flatMap(({ at, write }) => (write.op === "release" ? [{ at, write }] : []));
  if (releases.length > 0) return release(batch, stageProgress, releases);
  const [one] = solo;
  if (one === undefined) return Promise.resolve();
  const { at, write } = one;
  switch (write.op) {
    case "adopt":
      return adopt(batch, { at, write });
    case "hold":
      return hold(batch, { at, write });
    case "cancel":
      return cancel(batch, stageProgress, { at, write });
    case "edit":
      return edit(batch, { at, write });
    case "rerun":
      return rerun(batch, { at, write });
    case "remove":
      return remove(batch, { at, write });
    case "promote":
      return promote(batch, { at, write });
    case "put":
      return put(batch, { at, write });
    case "schedule":
      return schedule(batch, { at, write });
    default:
      return Promise.resolve();
  }
}
