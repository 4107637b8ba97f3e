/**
 * Batches, one after the other, each a transaction on the writing connection. States of a batch:
 *
 *   trying       its statements are sent together; COMMIT is sent when all of them have answered
 *   committing   COMMIT is sent
 *   unconfirmed  the connection broke before the answer: the batch is tried again, and finds its own number if it was
 *                committed
 *
 * A batch has a number, which its transaction stores. It is rejected only if it is certain that nothing of it was
 * committed; until then it is tried again. The client may send a statement of a broken connection on the next one,
 * outside a transaction. So no statement has an effect without the setting of its own transaction (statements.ts).
 */
import { pause } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import type { Epoch } from "../../model/store.js";
import {
  type Client,
  type Connections,
  isAlreadyCommitted,
  isTimeout,
  isUnconfirmed,
  type Session,
  send,
  storeFailure,
  type Value,
} from "./connections.js";
import { MustRunSeparately } from "./stages.js";
import { OWN_EPOCH } from "./statements.js";

/** One message, so that the transaction and the setting that its statements need are begun on the same connection. */
const begin = (epoch: Epoch, slowMs: number): string =>
  `BEGIN; SELECT set_config('laboro.epoch', '${epoch}', true), set_config('statement_timeout', '${slowMs}', true)`;

/**
 * $1 the batch's number. A broker that was marked dead writes nothing more. The lock on its row lets a broker that
 * would mark it dead wait for this batch.
 */
export const BEGIN_BATCH = `
WITH alive AS MATERIALIZED (SELECT epoch FROM laboro.broker WHERE epoch = ${OWN_EPOCH} AND NOT dead FOR KEY SHARE),
former AS (DELETE FROM laboro.last_batch WHERE epoch = ${OWN_EPOCH} AND number = $1::bigint - 1),
made AS (INSERT INTO laboro.last_batch (epoch, number) SELECT epoch, $1::bigint FROM alive)
SELECT EXISTS (SELECT 1 FROM alive) AS alive,
  EXISTS (SELECT 1 FROM laboro.last_batch WHERE epoch = ${OWN_EPOCH} AND number = $1::bigint) AS known`;

/** Outside a transaction this is an error, where a plain COMMIT would seem to succeed. */
const COMMIT = "COMMIT AND CHAIN";
const FIRST_PAUSE_MS = 20;
const MAX_PAUSE_MS = 1_000;
/** A slow statement is cancelled and gets more time at the next try, so that a slow server completes it. */
const MAX_STATEMENT_TIMEOUT_MS = 600_000;
/** Without an answer for this long after the statement timeout the connection is given up. */
const NO_REPLY_MS = 3_000;

export interface TransactionWork<T> {
  /** Its statements have no timeout. */
  readonly noTimeout: boolean;
  /** Before the transaction: numbers that it needs. */
  prepare(client: Client): Promise<void>;
  /** Sends as much as possible before its first wait. `separately`: each write in its own statement. */
  run(session: Session, separately: boolean): Promise<T>;
}

interface BatchStatus {
  readonly alive: boolean;
  readonly known: boolean;
}

/** A batch whose COMMIT has no answer yet: what its caller gets if it was committed. */
interface UnconfirmedCommit<T> {
  readonly answer: T;
}

export class CommitQueue {
  readonly #connections: Connections;
  readonly #epoch: Epoch;
  #number = 1;
  #statementTimeoutMs: number;
  #last: Promise<unknown> = Promise.resolve();

  constructor(connections: Connections, epoch: Epoch) {
    this.#connections = connections;
    this.#epoch = epoch;
    this.#statementTimeoutMs = connections.statementTimeoutMs;
  }

  /** Runs when the earlier batches are done. */
  commit<T>(work: TransactionWork<T>): Promise<T> {
    const done = this.#last.then(() => this.#commit(work));
    this.#last = done.catch(() => {});
    return done;
  }

  async #commit<T>(work: TransactionWork<T>): Promise<T> {
    const deadline = performance.now() + this.#connections.retryForMs;
    const attempt = new CommitAttempt(work);
    for (let tries = 0; ; tries++) {
      try {
        const answer = await this.#try(attempt);
        this.#number++;
        this.#statementTimeoutMs = this.#connections.statementTimeoutMs;
        return answer;
      } catch (cause) {
        if (cause instanceof MustRunSeparately && !attempt.separately) {
          attempt.separately = true;
          continue;
        }
        const failure = storeFailure(cause, this.#connections.displayUrl);
        if (failure.code === "LABORO_LEASE_LOST" || this.#connections.closed) throw failure;
        const passing = failure.code === "LABORO_STORE_UNAVAILABLE";
        if (attempt.unconfirmed === undefined && (!passing || performance.now() > deadline)) throw failure;
        if (isTimeout(cause))
          this.#statementTimeoutMs = Math.min(MAX_STATEMENT_TIMEOUT_MS, this.#statementTimeoutMs * 2);
        this.#connections.replaceWriter();
        await pause(Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** tries));
      }
    }
  }

  async #try<T>(attempt: CommitAttempt<T>): Promise<T> {
    const client = this.#connections.writer;
    const slowMs = attempt.work.noTimeout ? MAX_STATEMENT_TIMEOUT_MS : this.#statementTimeoutMs;
    const silence = setTimeout(() => {
      this.#statementTimeoutMs = Math.min(MAX_STATEMENT_TIMEOUT_MS, this.#statementTimeoutMs * 2);
      this.#connections.replaceWriter();
    }, slowMs + NO_REPLY_MS);
    try {
      await attempt.work.prepare(client);
      return await attempt.run(client, begin(this.#epoch, slowMs), this.#number);
    } finally {
      clearTimeout(silence);
    }
  }
}

class CommitAttempt<T> {
  readonly work: TransactionWork<T>;
  separately = false;
  unconfirmed: UnconfirmedCommit<T> | undefined;
  #committed = false;

  constructor(work: TransactionWork<T>) {
    this.work = work;
  }

  async run(client: Client, beginning: string, number: number): Promise<T> {
    const pipeline = new Pipeline(client);
    const begun = pipeline.begin(beginning);
    const marked = pipeline.send<BatchStatus>(BEGIN_BATCH, [number]);
    const answering = this.work.run(pipeline, this.separately);
    answering.catch(() => {});
    try {
      await begun;
      const early = this.#committedBefore((await marked)[0]);
      if (early !== undefined) return early.answer;
      const answer = await answering;
      await this.#commit(client, answer);
      return answer;
    } catch (cause) {
      if (this.unconfirmed !== undefined && isAlreadyCommitted(cause)) return this.unconfirmed.answer;
      throw cause;
    } finally {
      await pipeline.end(this.#committed);
    }
  }

  /** The answer of an earlier try that was committed before another broker marked this one dead. */
  #committedBefore(mark: BatchStatus | undefined): UnconfirmedCommit<T> | undefined {
    if (mark?.alive === true) {
      // Its number is free: none of the earlier tries was committed.
      this.unconfirmed = undefined;
      return undefined;
    }
    if (mark?.known === true && this.unconfirmed !== undefined) return this.unconfirmed;
    throw new LaboroError(
      "LABORO_LEASE_LOST",
      "the lease of this broker has ended and others may have taken over its tasks: it must open the store again",
    );
  }

  async #commit(client: Client, answer: T): Promise<void> {
    this.unconfirmed = { answer };
    try {
      await client.unsafe(COMMIT).execute();
      this.#committed = true;
    } catch (cause) {
      if (!isUnconfirmed(cause)) this.unconfirmed = undefined;
      throw cause;
    }
  }
}

/** The statements of one try: sent at once and in order, as long as it lasts. */
class Pipeline implements Session {
  readonly #client: Client;
  readonly #sent: Promise<unknown>[] = [];
  #ended = false;

  constructor(client: Client) {
    this.#client = client;
  }

  begin(beginning: string): Promise<unknown> {
    return this.#track(this.#client.unsafe(beginning).execute());
  }

  send<Row extends object>(statement: string, values: readonly Value[] = []): Promise<readonly Row[]> {
    // An operation may not know yet that another has failed. Its statements would become part of the next try.
    if (this.#ended) return Promise.reject(new LaboroError("LABORO_INTERNAL", "the batch has been given up"));
    return this.#track(send<Row>(this.#client, statement, values));
  }

  /**
   * Waits for all answers before the connection is used again, and ends its transaction. After a commit that is the
   * chained, empty one: rolling it back would count as a failure in the server's statistics.
   */
  async end(committed: boolean): Promise<void> {
    this.#ended = true;
    await Promise.allSettled(this.#sent);
    const ended = this.#client.unsafe(committed ? "COMMIT" : "ROLLBACK").execute();
    ended.catch(() => {});
  }

  #track<P extends Promise<unknown>>(sent: P): P {
    // The sender gets the failure through its own promise.
    sent.catch(() => {});
    this.#sent.push(sent);
    return sent;
  }
}
