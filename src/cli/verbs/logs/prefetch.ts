/** Starts the work for items before their turn comes, and gives what came of it in their order. */
export async function* ahead<Item, Made>(
  items: AsyncIterable<Item>,
  most: number,
  start: (item: Item) => Promise<Made>,
): AsyncGenerator<readonly [Item, Made]> {
  const begun: { readonly item: Item; readonly made: Promise<Made> }[] = [];
  for await (const item of items) {
    const made = start(item);
    // It is awaited in its turn; until then a failure of it is nobody's.
    made.catch(() => {});
    begun.push({ item, made });
    if (begun.length < most) continue;
    const first = begun.shift();
    if (first !== undefined) yield [first.item, await first.made];
  }
  for (const { item, made } of begun) yield [item, await made];
}
