/** Starts the work for up to `limit` items ahead, and yields the results in order. */
export async function* prefetch<Item, Result>(
  items: AsyncIterable<Item>,
  limit: number,
  start: (item: Item) => Promise<Result>,
): AsyncGenerator<readonly [Item, Result]> {
  const pending: { readonly item: Item; readonly result: Promise<Result> }[] = [];
  for await (const item of items) {
    const result = start(item);
    // It is awaited below; until then a rejection must not count as unhandled.
    result.catch(() => {});
    pending.push({ item, result });
    if (pending.length < limit) continue;
    const first = pending.shift();
    if (first !== undefined) yield [first.item, await first.result];
  }
  for (const { item, result } of pending) yield [item, await result];
}
