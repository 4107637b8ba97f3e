/**
 * Finds changes of other brokers by polling: rows contain the transaction that last changed them, and changes invisible
 * to one poll are found by the next. NOTIFY triggers a poll, one for many changes. Its payload contains the numbers of
 * removed jobs, and whether limits may have room.
 *
 * Jobs that transactions of applications have submitted by laboro.submit. One broker takes each of them and creates the
 * job.
 */
import { asLaboroError, type ErrorCode } from "../../base/errors.js";
import { JobId } from "../../model/ids.js";
import type { Epoch } from "../../model/store.js";
import { type Group, SCHEDULE_BUCKET, type Submissions, type TransactionSubmission } from "../../model/store-group.js";
import { type Client, type Connections, inTransaction, send } from "./connections.js";
import { numberArray } from "./statements.js";

type HintListener = Parameters<Group["listen"]>[0];

/** $1 the oldest transaction that was under way at the last poll, $2 this broker. */
export const CHANGES = `
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS seen, c.job, c.bucket, c.changed
FROM (SELECT 1) AS one LEFT JOIN (
  SELECT job, NULL AS bucket, changed_xid::text AS changed FROM laboro.job_state
    WHERE changed_xid >= $1::xid8 AND changed_by <> $2::bigint
  UNION ALL
  SELECT NULL, bucket, max(changed_xid)::text FROM laboro.key_value
    WHERE changed_xid >= $1::xid8 AND changed_by <> $2::bigint GROUP BY bucket
  UNION ALL
  SELECT NULL, '${SCHEDULE_BUCKET}', max(changed_xid)::text FROM laboro.schedule
    WHERE changed_xid >= $1::xid8 AND changed_by <> $2::bigint
  HAVING count(*) > 0) AS c ON true`;
const CHANNEL = "laboro";
/** Notifications of laboro.submit. */
const SUBMIT_CHANNEL = "laboro_submit";
/** In the payload: limits may have room again. */
const LIMITS = "limits";
const NOTIFY = "SELECT pg_notify('laboro', $1::text)";
/** Changes within this time are notified once: transactions with a NOTIFY wait for each other. */
const NOTIFY_DELAY_MS = 20;
/** The payload has to be shorter than 8,000 bytes. */
const MAX_REMOVED = 400;

interface Row {
  readonly seen: string;
  readonly job: number | null;
  readonly bucket: string | null;
  readonly changed: string | null;
}

export class ChangeFeed {
  readonly #connections: Connections;
  readonly #epoch: Epoch;
  readonly #log: (line: string) => void;
  #seen: string;
  /** Changes that were reported already and may be found again, with the transaction of each. */
  #reported = new Map<string, string>();
  #listener: HintListener | undefined;
  #listenClient: Client | undefined;
  #polling = false;
  #pollAgain = false;
  #removed: JobId[] = [];
  #limits = false;
  #notifyTimer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(connections: Connections, epoch: Epoch, seen: string, log: (line: string) => void) {
    this.#connections = connections;
    this.#epoch = epoch;
    this.#seen = seen;
    this.#log = log;
  }

  listen(listener: HintListener): void {
    this.#listener = listener;
    if (this.#listenClient !== undefined) return;
    this.#listenClient = this.#connections.client(1);
    const poll = (): void => void this.#poll();
    const onNotify = (payload: string): void => {
      for (const word of payload.split(" ").filter(Boolean))
        listener(word === LIMITS ? { limits: true } : { job: JobId(Number(word)) });
      poll();
    };
    // The client listens again when its connection is back, and polls for missed changes.
    const submitted = (): void => listener({ submitted: true });
    Promise.all([
      this.#listenClient.listen(CHANNEL, onNotify, poll),
      this.#listenClient.listen(SUBMIT_CHANNEL, submitted, submitted),
    ]).catch((cause: unknown) => this.#log(`not listening for changes: ${cause}`));
  }

  /** This broker has changed something that concerns others. */
  notify(removed: readonly JobId[] = [], limits = false): void {
    if (this.#stopped) return;
    this.#removed.push(...removed);
    this.#limits ||= limits;
    this.#notifyTimer ??= setTimeout(() => {
      this.#notifyTimer = undefined;
      const gone = this.#removed.splice(0).slice(0, MAX_REMOVED).join(" ");
      const payload = this.#limits ? `${LIMITS} ${gone}` : gone;
      this.#limits = false;
      // A removed job that is not in the payload is found by brokers that compare all jobs.
      this.#connections
        .read(NOTIFY, [payload])
        .catch((cause: unknown) => this.#log(`other brokers were not notified of a change: ${cause}`));
    }, NOTIFY_DELAY_MS);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#notifyTimer);
    await this.#listenClient?.end({ timeout: 1 });
  }

  async #poll(): Promise<void> {
    if (this.#polling) {
      this.#pollAgain = true;
      return;
    }
    this.#polling = true;
    try {
      do {
        this.#pollAgain = false;
        if (this.#stopped) return;
        this.#report(await this.#connections.read<Row>(CHANGES, [this.#seen, this.#epoch]));
      } while (this.#pollAgain);
    } catch (cause) {
      if (!this.#stopped) this.#log(`cannot read the changes of other brokers: ${cause}`);
    } finally {
      this.#polling = false;
    }
  }

  #report(rows: readonly Row[]): void {
    const reported = new Map<string, string>();
    for (const { job, bucket, changed, seen } of rows) {
      this.#seen = seen;
      if (changed === null) continue;
      const key = job === null ? `bucket ${bucket}` : `job ${job}`;
      reported.set(key, changed);
      if (this.#reported.get(key) === changed) continue;
      this.#listener?.(job === null ? { bucket: bucket ?? "" } : { job: JobId(job) });
    }
    this.#reported = reported;
  }
}

/** $1 one of them, or null for any. */
const WAITING_SUBMISSION = "SELECT id FROM laboro.submission WHERE $1::bigint IS NULL OR id = $1::bigint LIMIT 1";
/** $1 limit, $2 except these. Submissions that another broker is taking are skipped. */
const TAKE_SUBMISSIONS = `
SELECT id, task, to_json(inputs) AS inputs, options FROM laboro.submission
WHERE id <> ALL($2::bigint[]) ORDER BY id LIMIT $1::int FOR UPDATE SKIP LOCKED`;
const DELETE_SUBMISSIONS = "DELETE FROM laboro.submission WHERE id = ANY($1::bigint[])";

const AT_ONCE = 200;
/** A retry does not help. */
const FINAL: ReadonlySet<ErrorCode> = new Set(["LABORO_BAD_INPUT", "LABORO_NO_SUCH_JOB"]);

interface SubmissionRow {
  readonly id: number;
  readonly task: string;
  readonly inputs: readonly string[];
  readonly options: Readonly<Record<string, unknown>>;
}

export class PostgresSubmissions implements Submissions {
  readonly #connections: Connections;
  readonly #log: (line: string) => void;
  /** Refused submissions stay in the table for the operator, and do not delay later ones. */
  readonly #refused = new Set<number>();
  #client: Client | undefined;

  constructor(connections: Connections, log: (line: string) => void) {
    this.#connections = connections;
    this.#log = log;
  }

  async waits(id?: JobId): Promise<boolean> {
    return (await this.#connections.read(WAITING_SUBMISSION, [id ?? null])).length > 0;
  }

  async take(submit: (one: TransactionSubmission) => Promise<void>): Promise<boolean> {
    if (!(await this.waits())) return false;
    this.#client ??= this.#connections.client(1);
    const client = this.#client;
    // Without their locks the rows may be read by two brokers. These find each other's jobs by their numbers and keys.
    return inTransaction(client, () => this.#takeLocked(client, submit));
  }

  async #takeLocked(client: Client, submit: (one: TransactionSubmission) => Promise<void>): Promise<boolean> {
    const rows = await send<SubmissionRow>(client, TAKE_SUBMISSIONS, [AT_ONCE, numberArray([...this.#refused])]);
    const made: number[] = [];
    const making: Promise<void>[] = [];
    for (const { id, ...row } of rows) {
      // Its dependencies, or the job whose key it takes, may be among the submissions before it.
      const { after, key } = row.options;
      if ((after as readonly unknown[] | undefined)?.length !== 0 || key !== undefined) await Promise.all(making);
      const refused = (cause: unknown): void => {
        const { code, message } = asLaboroError(cause);
        if (FINAL.has(code)) this.#refused.add(id);
        // A client was faster: a job with this key exists.
        if (code === "LABORO_KEY_IN_USE") made.push(id);
        this.#log(`job ${id}, submitted by a transaction, cannot be made: ${message}`);
      };
      making.push(submit({ ...row, id: JobId(id) }).then(() => void made.push(id), refused));
    }
    await Promise.all(making);
    // If the connection is lost before the rows are deleted, their jobs are found by their keys and not created twice.
    if (made.length > 0) await send(client, DELETE_SUBMISSIONS, [numberArray(made)]);
    return rows.length === AT_ONCE && (made.length > 0 || rows.every(({ id }) => this.#refused.has(id)));
  }

  async close(): Promise<void> {
    await this.#client?.end({ timeout: 1 });
  }
}
