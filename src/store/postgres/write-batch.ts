/** The writes of a broker as one transaction: what is taken hold of first, output, then stage after stage. */
import { LaboroError } from "../../base/errors.js";
import type { JobId } from "../../model/ids.js";
import type { Answer, Write } from "../../model/store.js";
import { numbers } from "./arrays.js";
import type { Batch } from "./batch.js";
import type { Work } from "./commits.js";
import type { Client, Session, Value } from "./connections.js";
import type { EntryCache } from "./entry-cache.js";
import { Ledger } from "./ledger.js";
import { takeHold } from "./locks.js";
import { JobNumbers, type WorkerNumbers } from "./numbers.js";
import { adopt } from "./operations/adopt.js";
import { cancel } from "./operations/cancel.js";
import { claim } from "./operations/claim.js";
import { totalsOf } from "./operations/end.js";
import { hold } from "./operations/hold.js";
import { keep } from "./operations/keep.js";
import { lease } from "./operations/lease.js";
import { APPEND, outputOf } from "./operations/output.js";
import { release } from "./operations/release.js";
import { remove } from "./operations/remove.js";
import { replace } from "./operations/replace.js";
import { rerun } from "./operations/rerun.js";
import { settle } from "./operations/settle.js";
import { submit } from "./operations/submit.js";
import { type Placed, type Solo, type Stage, stagesOf } from "./stages.js";

export class WriteBatch implements Work<readonly Answer[]> {
  readonly patient: boolean;
  readonly #writes: readonly Write[];
  readonly #now: number;
  readonly #workers: WorkerNumbers;
  readonly #entries: EntryCache;
  readonly #numbers = new JobNumbers();
  readonly #output: readonly Value[] | undefined;

  constructor(writes: readonly Write[], now: number, workers: WorkerNumbers, entries: EntryCache) {
    this.#writes = writes;
    this.#now = now;
    this.#workers = workers;
    this.#entries = entries;
    this.#output = outputOf(writes);
    this.patient = writes.some(({ op }) => op === "rerun" || op === "remove");
  }

  async prepare(client: Client): Promise<void> {
    await this.#workers.learn(client, this.#writes);
    await this.#numbers.give(client, this.#writes);
  }

  async run(session: Session, apart: boolean): Promise<readonly Answer[]> {
    const answers: (Answer | undefined)[] = this.#writes.map(({ op }) => (op === "output" ? { op } : undefined));
    const batch: Batch = {
      session,
      now: this.#now,
      answers,
      workers: this.#workers.known,
      numbers: this.#numbers.given,
      entries: this.#entries,
    };
    const under: Promise<unknown>[] = [takeHold(session, this.#writes)];
    if (this.#output !== undefined) {
      const submitted = numbers([...this.#numbers.given.values()]);
      under.push(session.send(APPEND, [...this.#output, submitted]));
    }
    for (const stage of stagesOf(this.#writes, apart)) {
      const done = runStage(batch, stage);
      under.push(done);
      // Only what asks as it goes along has to be waited for; all else follows without.
      if (stage.solo.some(({ write }) => AWAITED.has(write.op))) await Promise.all(under);
    }
    await Promise.all(under);
    return answers.map((answer) => {
      if (answer === undefined) throw new LaboroError("LABORO_INTERNAL", "a write was given no answer");
      return answer;
    });
  }
}

/** Their statements depend on what the one before found. */
const AWAITED: ReadonlySet<Write["op"]> = new Set(["rerun", "release"]);

async function runStage(batch: Batch, stage: Stage): Promise<void> {
  const { submits, settles, replaces, claims, leases, solo } = stage;
  const ledger = new Ledger();
  const under: Promise<void>[] = [];
  const begin = <T>(list: readonly T[], operation: () => Promise<void>): void => {
    if (list.length > 0) under.push(operation());
  };
  begin(submits, () => submit(batch, submits));
  begin(settles, () => settle(batch, ledger, settles));
  begin(replaces, () => replace(batch, ledger, replaces));
  begin(claims, () => claim(batch, claims));
  for (const one of leases) under.push(lease(batch, one));
  begin(solo, () => runSolo(batch, ledger, solo));
  const counted = new Set<JobId>();
  for (const { write } of [...settles, ...replaces]) counted.add(write.job);
  for (const { write } of solo) if (write.op === "cancel") counted.add(write.job);
  const [totals] = await Promise.all([totalsOf(batch, counted), ...under]);
  const released = solo.some(({ write }) => write.op === "release");
  for (const [at, progress] of ledger.progress(released ? await totalsOf(batch, ledger.jobs) : totals)) {
    const answer = batch.answers[at];
    if (answer !== undefined) batch.answers[at] = { ...answer, progress } as Answer;
  }
}

function runSolo(batch: Batch, ledger: Ledger, solo: readonly Placed<Solo>[]): Promise<void> {
  const releases = solo.flatMap(({ at, write }) => (write.op === "release" ? [{ at, write }] : []));
  if (releases.length > 0) return release(batch, ledger, releases);
  const [one] = solo;
  if (one === undefined) return Promise.resolve();
  const { at, write } = one;
  switch (write.op) {
    case "adopt":
      return adopt(batch, { at, write });
    case "hold":
      return hold(batch, { at, write });
    case "cancel":
      return cancel(batch, ledger, { at, write });
    case "rerun":
      return rerun(batch, { at, write });
    case "remove":
      return remove(batch, { at, write });
    case "keep":
      return keep(batch, { at, write });
    default:
      return Promise.resolve();
  }
}
