/** Starts the work for items before their turn comes, and gives what came of it in their order. */
export async function* prefetch<Item, Made>(
  items: AsyncIterable<Item>,
  most: number,
  start: (item: Item) => Promise<Made>,
): AsyncGenerator<readonly [Item, Made]> {
  const pending: { readonly item: Item; readonly made: Promise<Made> }[] = [];
  for await (const item of items) {
    const made = start(item);
    // It is awaited in its turn; until then a failure of it is nobody's.
    made.catch(() => {});
    pending.push({ item, made });
    if (pending.length < most) continue;
    const first = pending.shift();
    if (first !== undefined) yield [first.item, await first.made];
  }
  for (const { item, made } of pending) yield [item, await made];
}
