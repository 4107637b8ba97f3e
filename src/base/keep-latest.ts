/** For maps and sets that remember only so much: removes the entry that was added first where there are more than `most`. */
export function keepLatest<Key>(entries: Map<Key, unknown> | Set<Key>, most: number): void {
  const [oldest] = entries.keys();
  if (entries.size > most && oldest !== undefined) entries.delete(oldest);
}
