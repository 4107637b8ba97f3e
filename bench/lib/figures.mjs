/** Interleaved runs, and their statistics. */

export const median = (values) => {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

export const percentile = (values, share) => {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
};

/**
 * Every contestant `{ about, who, measure }` runs once a round, so that all see the same machine. `measure` gives its figures by name.
 * One row a figure: `{ about, who, figure, values }`. A contestant that fails loses its rows, and says so.
 */
export async function takeTurns(contestants, runs, progress) {
  const rows = new Map();
  const failed = new Set();
  for (let round = 0; round < runs; round++) {
    for (const contestant of contestants) {
      const { about, who, measure } = contestant;
      if (failed.has(contestant)) continue;
      try {
        const figures = await measure();
        for (const [figure, value] of Object.entries(figures)) {
          const key = JSON.stringify([about, who, figure]);
          if (!rows.has(key)) rows.set(key, { about, who, figure, values: [] });
          rows.get(key).values.push(value);
        }
        progress(
          `round ${round + 1}: ${about}, ${who}: ${Object.entries(figures)
            .map(([name, value]) => `${name} ${value.toPrecision(4)}`)
            .join(", ")}`,
        );
      } catch (cause) {
        failed.add(contestant);
        progress(`${about}, ${who} failed: ${cause.message}`);
      }
    }
  }
  return [...rows.values()];
}

/** The median over the rounds of ours divided by theirs. */
export function ratio(ours, theirs) {
  const rounds = Math.min(ours.values.length, theirs.values.length);
  return median(Array.from({ length: rounds }, (_, i) => ours.values[i] / theirs.values[i]));
}
