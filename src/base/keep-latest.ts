/** For bounded maps and sets: removes the oldest entry if there are more than `most`. */
export function keepLatest<Key>(entries: Map<Key, unknown> | Set<Key>, most: number): void {
  const [oldest] = entries.keys();
  if (entries.size > most && oldest !== undefined) entries.delete(oldest);
}
