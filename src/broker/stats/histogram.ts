/**
 * A histogram of durations, in buckets that double: up to 1 ms, 2, 4, 8 …, and a last one without a bound. Adding takes a few machine
 * instructions, so it can be done for every task.
 */
export const BUCKETS = 28;

/** The longest time in this bucket, in milliseconds. */
export const boundOf = (bucket: number): number => 2 ** bucket;

export class Histogram {
  /** One more than there are bounds: the last has no bound. */
  readonly counts = new Float64Array(BUCKETS + 1);
  count = 0;
  sum = 0;

  add(ms: number, times = 1): void {
    const whole = Math.ceil(ms);
    const bucket = whole <= 1 ? 0 : whole > boundOf(BUCKETS - 1) ? BUCKETS : 32 - Math.clz32(whole - 1);
    this.counts[bucket] = (this.counts[bucket] ?? 0) + times;
    this.count += times;
    this.sum += Math.max(0, ms) * times;
  }

  /** What was added since `before` was copied. */
  since(before: Histogram): Histogram {
    const delta = new Histogram();
    this.counts.forEach((count, at) => {
      delta.counts[at] = count - (before.counts[at] ?? 0);
    });
    delta.count = this.count - before.count;
    delta.sum = this.sum - before.sum;
    return delta;
  }

  copy(): Histogram {
    return this.since(new Histogram());
  }

  /** The quantile in milliseconds, interpolated within a bucket; 0 if the histogram is empty. */
  quantile(part: number): number {
    let left = this.count * part;
    if (this.count === 0) return 0;
    for (const [at, count] of this.counts.entries()) {
      if (count > 0 && left <= count) {
        const from = at === 0 ? 0 : boundOf(at - 1);
        const to = at >= BUCKETS ? 2 * boundOf(BUCKETS - 1) : boundOf(at);
        return from + (to - from) * (left / count);
      }
      left -= count;
    }
    return boundOf(BUCKETS);
  }
}
