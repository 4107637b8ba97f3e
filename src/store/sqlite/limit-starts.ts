/** The recent starts of each limit with a rate. They are stored so that a restart of the broker does not exceed the rate. */
import { LIMIT_BUCKET, type LimitStart, type Rate, ruleFrom, startTime } from "../../model/limit.js";
import type { Database, Statement } from "./database.js";

const RULE = `SELECT value FROM key_value WHERE bucket = '${LIMIT_BUCKET}' AND key = ?`;
const ADD = `INSERT INTO limit_start (name, at, count) VALUES (?, ?, ?)
  ON CONFLICT (name, at) DO UPDATE SET count = count + excluded.count`;
const FORGET = "DELETE FROM limit_start WHERE name = ? AND at <= ?";

export class LimitStarts {
  readonly #rule: Statement;
  readonly #add: Statement;
  readonly #forget: Statement;
  readonly #all: Statement;

  constructor(db: Database) {
    this.#rule = db.prepare(RULE);
    this.#add = db.prepare(ADD);
    this.#forget = db.prepare(FORGET);
    this.#all = db.prepare("SELECT name, at, count FROM limit_start ORDER BY at");
  }

  add(names: readonly string[], count: number, now: number): void {
    for (const name of names) {
      const rate = this.#rateOf(name);
      if (rate === undefined) continue;
      this.#forget.run(name, now - rate.intervalMs);
      this.#add.run(name, startTime(rate, now), count);
    }
  }

  all(): LimitStart[] {
    return this.#all.all();
  }

  #rateOf(name: string): Rate | undefined {
    const row: { value: string } | undefined = this.#rule.get(name);
    return row === undefined ? undefined : ruleFrom(row.value).rate;
  }
}
