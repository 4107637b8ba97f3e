/** Tables of moderate length: each row is made once and then updated. */
import { type Child, h, set, setChildren, updateRows } from "../dom.js";

export interface Column<Item> {
  readonly head: Child;
  /** Numbers are aligned to the right. */
  readonly number?: true;
  /** Hidden on a narrow page. */
  readonly minor?: true;
  readonly wide?: true;
  /** Called once per row. */
  readonly make?: (item: Item) => Child;
  /** Called at every update with the cell. */
  readonly show: (cell: HTMLElement, item: Item) => void;
}

export class Table<Item> {
  readonly element: HTMLElement;
  readonly #body = h("tbody");
  readonly #empty: HTMLElement;
  readonly #table: HTMLTableElement;
  readonly #columns: readonly Column<Item>[];
  readonly #keyOf: (item: Item) => string | number;
  items: readonly Item[] = [];

  constructor(
    caption: string,
    columns: readonly Column<Item>[],
    keyOf: (item: Item) => string | number,
    empty: string,
  ) {
    this.#columns = columns;
    this.#keyOf = keyOf;
    const heads = columns.map((one) => h("th", { scope: "col", class: classOf(one) }, one.head));
    this.#table = h(
      "table",
      {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, ...heads)),
      this.#body,
    );
    this.#empty = h("p", { class: "empty" }, empty);
    this.element = h("div", { class: "table" }, this.#table, this.#empty);
  }

  update(items: readonly Item[], empty?: string): void {
    this.items = items;
    updateRows(
      this.#body,
      items,
      this.#keyOf,
      () => this.#row(),
      (row, item) => this.#show(row, item),
    );
    set(this.#table, "hidden", items.length === 0);
    set(this.#empty, "hidden", items.length > 0);
    if (empty !== undefined) setChildren(this.#empty, empty);
  }

  #row(): HTMLTableRowElement {
    return h("tr", {}, ...this.#columns.map((one) => h("td", { class: classOf(one) })));
  }

  #show(row: HTMLTableRowElement, item: Item): void {
    this.#columns.forEach((column, at) => {
      const cell = row.cells[at];
      if (cell === undefined) return;
      if (column.make !== undefined && cell.childNodes.length === 0) setChildren(cell, column.make(item));
      column.show(cell, item);
    });
  }
}

const classOf = <Item>({ number, minor, wide }: Column<Item>): string | undefined => {
  const names = [number === true && "number", minor === true && "minor", wide === true && "wide"].filter(Boolean);
  return names.length === 0 ? undefined : names.join(" ");
};
