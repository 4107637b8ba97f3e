/**
 * Jobs that transactions of applications have submitted by laboro.submit. One broker takes each of them and creates the
 * job.
 */
import { asLaboroError, type ErrorCode } from "../../base/errors.js";
import { JobId } from "../../model/ids.js";
import type { Submissions, TransactionSubmission } from "../../model/store-group.js";
import { type Client, type Connections, send } from "./connections.js";
import { numberArray } from "./statements.js";

/** $1 one of them, or null for any. */
const WAITING_SUBMISSION = "SELECT id FROM laboro.submission WHERE $1::bigint IS NULL OR id = $1::bigint LIMIT 1";
/** $1 limit, $2 except these. Submissions that another broker is taking are skipped. */
const TAKE_SUBMISSIONS =
  "SELECT id, task, to_json(inputs) AS inputs, options FROM laboro.submission WHERE id <> ALL($2::bigint[]) ORDER BY id LIMIT $1::int FOR UPDATE SKIP LOCKED";
const DELETE_SUBMISSIONS = "DELETE FROM laboro.submission WHERE id = ANY($1::bigint[])";

const AT_ONCE = 200;
/** To try again does not help. */
const FINAL: ReadonlySet<ErrorCode> = new Set(["LABORO_BAD_INPUT", "LABORO_NO_SUCH_JOB"]);

interface Row {
  readonly id: number;
  readonly task: string;
  readonly inputs: readonly string[];
  readonly options: Readonly<Record<string, unknown>>;
}

export class PostgresSubmissions implements Submissions {
  readonly #connections: Connections;
  readonly #log: (line: string) => void;
  /** They stay in the table for the operator, and must not hold up those after them. */
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
    return this.#client.begin(async (sql) => {
      const rows = await send<Row>(sql, TAKE_SUBMISSIONS, [AT_ONCE, numberArray([...this.#refused])]);
      const made: number[] = [];
      const making: Promise<void>[] = [];
      for (const { id, ...row } of rows) {
        // What it comes after, or the job whose key it takes, may be among those before it.
        const { after, key } = row.options;
        if ((after as readonly unknown[] | undefined)?.length !== 0 || key !== undefined) await Promise.all(making);
        const refused = (cause: unknown): void => {
          const { code, message } = asLaboroError(cause);
          if (FINAL.has(code)) this.#refused.add(id);
          // A client was faster: the job with this key is there.
          if (code === "LABORO_KEY_IN_USE") made.push(id);
          this.#log(`job ${id}, submitted by a transaction, cannot be made: ${message}`);
        };
        making.push(submit({ ...row, id: JobId(id) }).then(() => void made.push(id), refused));
      }
      await Promise.all(making);
      // The job of a row that is not deleted, for a lost connection, is found by its key: it is not made twice.
      if (made.length > 0) await send(sql, DELETE_SUBMISSIONS, [numberArray(made)]);
      return rows.length === AT_ONCE && (made.length > 0 || rows.every(({ id }) => this.#refused.has(id)));
    });
  }

  async close(): Promise<void> {
    await this.#client?.end({ timeout: 1 });
  }
}
