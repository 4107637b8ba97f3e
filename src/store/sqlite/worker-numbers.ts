/** Results name their worker by number; the names are kept once. */
import type { Database, Statement } from "./database.js";

const INSERT = "INSERT INTO worker (name) VALUES (?) ON CONFLICT (name) DO UPDATE SET name = name RETURNING id";

export class WorkerNumbers {
  readonly #insert: Statement;
  readonly #numbers = new Map<string, number>();

  constructor(db: Database) {
    this.#insert = db.prepare(INSERT);
  }

  numberOf(name: string): number {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    const row: { id: number } = this.#insert.get(name);
    this.#numbers.set(name, row.id);
    return row.id;
  }

  /** After a rollback: numbers given in the lost transaction were never stored. */
  clear(): void {
    this.#numbers.clear();
  }
}
