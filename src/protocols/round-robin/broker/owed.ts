/**
 * INCREMENTs that are still to come for messages whose slot is free already, because they were answered or given up. Each is waited for
 * only so long: not every worker sends them.
 */
export class OwedIncrements {
  readonly #now: () => number;
  #until: number[] = [];

  constructor(now: () => number) {
    this.#now = now;
  }

  /** `most` is how many a worker can owe: as many as it has slots. */
  add(ms: number, most: number): void {
    this.#until.push(this.#now() + ms);
    if (this.#until.length > Math.max(1, most)) this.#until.shift();
  }

  /** True where the INCREMENT that came is one of these. */
  take(): boolean {
    const now = this.#now();
    this.#until = this.#until.filter((until) => until > now);
    return this.#until.shift() !== undefined;
  }
}
