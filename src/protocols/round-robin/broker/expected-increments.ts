/**
 * INCREMENTs that are still to come for messages whose slot is free already, because they were answered or given up. Each is waited for
 * only so long: not every worker sends them.
 */
export class ExpectedIncrements {
  readonly #now: () => number;
  #deadlines: number[] = [];

  constructor(now: () => number) {
    this.#now = now;
  }

  /** `most` is how many can still come from a worker: as many as it has slots. */
  add(ms: number, most: number): void {
    this.#deadlines.push(this.#now() + ms);
    if (this.#deadlines.length > Math.max(1, most)) this.#deadlines.shift();
  }

  /** True where the INCREMENT that came is one of these. */
  take(): boolean {
    const now = this.#now();
    this.#deadlines = this.#deadlines.filter((until) => until > now);
    return this.#deadlines.shift() !== undefined;
  }
}
