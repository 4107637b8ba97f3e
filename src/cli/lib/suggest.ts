/** "Did you mean …?": finds the known names that are closest to a mistyped one. */

/** The candidates with the smallest edit distance to the word, if it is small enough for a typing mistake. */
export function nearest(word: string, candidates: Iterable<string>): readonly string[] {
  const most = word.length < 4 ? 1 : word.length < 8 ? 2 : 3;
  let best = most;
  let found: string[] = [];
  for (const candidate of new Set(candidates)) {
    const edits = candidate.startsWith(word) ? 1 : distance(word, candidate);
    if (edits > best) continue;
    if (edits < best) found = [];
    best = edits;
    found.push(candidate);
  }
  return found;
}

/** "; did you mean …?", or an empty string. */
export function suggestion(word: string, candidates: Iterable<string>): string {
  const found = nearest(word, candidates).slice(0, 3);
  return found.length === 0 ? "" : `; did you mean ${found.join(" or ")}?`;
}

/** The edit distance, with insertions, deletions, substitutions and transpositions. */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + same);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        least = Math.min(least, (before[j - 2] ?? 0) + 1);
      row.push(least);
    }
    before = last;
    last = row;
  }
  return last[b.length] ?? 0;
}
