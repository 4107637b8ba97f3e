/** Adds jobs in a transaction of the application, where brokers keep their jobs in the same PostgreSQL database. */
import { badInput } from "../base/errors.js";
import type { Submission } from "../model/job-input.js";
import { encodeInput, type TaskDefinition } from "../model/task-definition.js";

/**
 * Sends a statement in the application's transaction: `(text, values) => client.query(text, values)` with pg,
 * `(text, values) => tx.unsafe(text, values)` with postgres.
 */
export type Query = (sql: string, parameters: string[]) => PromiseLike<unknown>;

/** Options of a job that a transaction adds. */
export interface TransactionOptions
  extends Pick<
    Submission,
    | ("name" | "pool" | "tags" | "priority" | "retries" | "retry" | "delayMs" | "keepMs" | "keepFailedMs")
    | (
        | "crashLimit"
        | "maxFails"
        | "maxRunning"
        | "limits"
        | "timeLimitMs"
        | "held"
        | "at"
        | "key"
        | "keyForMs"
        | "ifExists"
        | "needs"
      )
  > {
  /** Jobs to come after, also of the same transaction: the success, or with `any` the end of each is needed. */
  readonly after?: readonly (number | { readonly job: number; readonly any?: boolean })[];
}

// As text: some libraries would encode the text of a JSON parameter once more.
const SUBMIT = `SELECT laboro.submit_many($1::text,
  ARRAY(SELECT CASE i WHEN '' THEN NULL ELSE i::jsonb END FROM json_array_elements_text($2::text::json) AS i),
  $3::text::jsonb) AS job`;

/**
 * Adds a job with a task for each input. Returns its number, by which `client.job(number, task)` finds it. The job
 * exists if and only if the transaction commits. An input that the task's schema refuses, or a bad option, fails this
 * call. If another job has the key, its number is returned.
 */
export async function addInTransaction<Input>(
  query: Query,
  task: TaskDefinition<Input, unknown, unknown>,
  inputs: readonly NoInfer<Input>[],
  options: TransactionOptions = {},
): Promise<number> {
  if (!Array.isArray(inputs)) throw badInput(`addInTransaction: expected an array of inputs, got ${typeof inputs}`);
  const texts: string[] = [];
  for (const input of inputs) {
    const text = await encodeInput(task, input);
    if (typeof text !== "string") throw badInput(`task ${task.name}: bytes cannot be added by a transaction`);
    texts.push(text);
  }
  const answer = await query(SUBMIT, [task.name, JSON.stringify(texts), JSON.stringify(options)]);
  const rows = Array.isArray(answer) ? answer : (answer as { readonly rows?: unknown } | undefined)?.rows;
  const job = Number((rows as readonly { readonly job?: unknown }[] | undefined)?.[0]?.job);
  if (Number.isSafeInteger(job)) return job;
  throw badInput("query: expected the rows of the answer, or an object that has them as rows");
}
