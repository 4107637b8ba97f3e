/**
 * A list of any length that renders only the rows in view. All rows have one height; arrow keys move a mark, Enter
 * opens the marked row. Screen readers get the number of rows and the positions of those rendered.
 */
import { type Child, h, set, setChildren } from "../dom.js";
import type { Selection } from "./selection.js";

interface GridColumn<Item> {
  readonly head: string;
  readonly name: string;
  readonly cell: (item: Item) => Child | readonly Child[];
}

interface GridOptions<Item> {
  readonly label: string;
  readonly columns: readonly GridColumn<Item>[];
  readonly rowHeight: number;
  /** Undefined while it is not known. */
  readonly itemAt: (index: number) => Item | undefined;
  readonly keyOf: (item: Item) => string | number;
  readonly onOpen: (item: Item) => void;
  /** Rows have a box in front, which Space changes for the marked row. */
  readonly selection?: Selection<string | number>;
  readonly selectionLabel?: (item: Item) => string;
  /** Other rows are in view. */
  readonly onView?: () => void;
}

interface Row<Item> {
  readonly element: HTMLElement;
  readonly cells: readonly HTMLElement[];
  item: Item | undefined;
  shown: string;
}

const OVERSCAN_ROWS = 6;
let grids = 0;

export class VirtualGrid<Item> {
  readonly element: HTMLElement;
  readonly #options: GridOptions<Item>;
  readonly #id = `grid-${++grids}`;
  readonly #scroller = h("div", { class: "grid-scroll", role: "presentation" });
  readonly #body = h("div", { class: "grid-body", role: "rowgroup" });
  readonly #rows = new Map<number, Row<Item>>();
  readonly #resizeObserver: ResizeObserver;
  #count = 0;
  #marked = -1;
  #openKey: string | number | undefined;

  constructor(options: GridOptions<Item>) {
    this.#options = withBoxes(options);
    const { label, columns } = this.#options;
    const heads = columns.map(({ head, name }) =>
      h(
        "div",
        { role: "columnheader", class: `cell cell-${name}` },
        name === BOX ? this.#options.selection?.boxOfAll(() => this.#knownKeys()) : head,
      ),
    );
    const head = h("div", { role: "row", class: "grid-row grid-head", "aria-rowindex": 1 }, ...heads);
    this.#scroller.append(this.#body);
    this.element = h(
      "div",
      { class: "grid", role: "grid", tabindex: 0, "aria-label": label, "aria-rowcount": 1 },
      h("div", { role: "rowgroup" }, head),
      this.#scroller,
    );
    this.#scroller.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.#resizeObserver = new ResizeObserver(() => this.#onScroll());
    this.#resizeObserver.observe(this.#scroller);
  }

  close(): void {
    this.#resizeObserver.disconnect();
  }

  /** The rows that are in view, or nearly. */
  get view(): { readonly from: number; readonly to: number } {
    const { rowHeight } = this.#options;
    const top = Math.floor(this.#scroller.scrollTop / rowHeight);
    const many = Math.ceil((this.#scroller.clientHeight || 400) / rowHeight);
    return { from: Math.max(0, top - OVERSCAN_ROWS), to: Math.min(this.#count, top + many + OVERSCAN_ROWS) };
  }

  /** Sets the number of rows, and updates the rows in view. */
  update(count: number, openKey?: string | number): void {
    this.#count = count;
    this.#openKey = openKey;
    this.#body.style.height = `${count * this.#options.rowHeight}px`;
    set(this.element, "aria-rowcount", count + 1);
    if (this.#marked >= count) this.#marked = count - 1;
    this.#render();
  }

  toTop(): void {
    this.#scroller.scrollTop = 0;
    this.#marked = -1;
  }

  /** Of the rows whose items are known, a thousand at most. */
  #knownKeys(): (string | number)[] {
    const keys: (string | number)[] = [];
    for (let at = 0; at < Math.min(this.#count, 1_000); at++) {
      const item = this.#options.itemAt(at);
      if (item !== undefined) keys.push(this.#options.keyOf(item));
    }
    return keys;
  }

  #onScroll(): void {
    this.#render();
    this.#options.onView?.();
  }

  #render(): void {
    const { from, to } = this.view;
    for (const [index, { element }] of this.#rows) {
      if (index >= from && index < to) continue;
      element.remove();
      this.#rows.delete(index);
    }
    for (let index = from; index < to; index++) this.#show(index);
    const marked = this.#rows.has(this.#marked) ? `${this.#id}-${this.#marked}` : undefined;
    set(this.element, "aria-activedescendant", marked);
  }

  #show(index: number): void {
    const row = this.#rows.get(index) ?? this.#make(index);
    const item = this.#options.itemAt(index);
    const key = item === undefined ? undefined : this.#options.keyOf(item);
    set(row.element, "aria-selected", index === this.#marked || (key !== undefined && key === this.#openKey));
    row.element.classList.toggle("marked", index === this.#marked);
    row.element.classList.toggle("open", key !== undefined && key === this.#openKey);
    row.item = item;
    this.#options.columns.forEach(({ cell }, at) => {
      const element = row.cells[at];
      if (element === undefined) return;
      const content = item === undefined ? (at === 0 ? "…" : "") : cell(item);
      if (typeof content === "string" || typeof content === "number") {
        if (element.textContent !== String(content)) element.textContent = String(content);
      } else if (Array.isArray(content)) setChildren(element, ...(content as readonly Child[]));
      // Inserted again, a box would lose the focus.
      else if (content instanceof Node && element.firstChild === content) return;
      else setChildren(element, content as Child);
    });
  }

  #make(index: number): Row<Item> {
    const cells = this.#options.columns.map(({ name }) => h("div", { role: "gridcell", class: `cell cell-${name}` }));
    const element = h(
      "div",
      { role: "row", class: "grid-row", id: `${this.#id}-${index}`, "aria-rowindex": index + 2 },
      ...cells,
    );
    element.style.top = `${index * this.#options.rowHeight}px`;
    element.addEventListener("click", (event) => {
      if (event.target instanceof Element && event.target.closest("a, button, input, .cell-box") !== null) return;
      this.#mark(index);
      this.#open(index);
    });
    const row: Row<Item> = { element, cells, item: undefined, shown: "" };
    this.#rows.set(index, row);
    this.#body.append(element);
    return row;
  }

  #key(event: KeyboardEvent): void {
    if (event.target !== this.element) return;
    const page = Math.max(1, Math.floor(this.#scroller.clientHeight / this.#options.rowHeight) - 1);
    const steps: Readonly<Record<string, number>> = {
      ArrowDown: this.#marked + 1,
      ArrowUp: this.#marked - 1,
      PageDown: this.#marked + page,
      PageUp: this.#marked - page,
      Home: 0,
      End: this.#count - 1,
    };
    const to = steps[event.key];
    const marked = this.#options.itemAt(this.#marked);
    if (to !== undefined) this.#mark(Math.max(0, Math.min(this.#count - 1, to)));
    else if (event.key === "Enter") this.#open(this.#marked);
    else if (event.key === " " && marked !== undefined) this.#options.selection?.toggle(this.#options.keyOf(marked));
    else return;
    event.preventDefault();
  }

  #mark(index: number): void {
    this.#marked = index;
    const { rowHeight } = this.#options;
    const top = index * rowHeight;
    const height = this.#scroller.clientHeight;
    if (top < this.#scroller.scrollTop) this.#scroller.scrollTop = top;
    else if (top + rowHeight > this.#scroller.scrollTop + height) this.#scroller.scrollTop = top + rowHeight - height;
    this.#render();
  }

  #open(index: number): void {
    const item = this.#options.itemAt(index);
    if (item !== undefined) this.#options.onOpen(item);
  }
}

const BOX = "box";

function withBoxes<Item>(options: GridOptions<Item>): GridOptions<Item> {
  const { selection, selectionLabel, keyOf, columns } = options;
  if (selection === undefined) return options;
  const cell = (item: Item): Child => selection.box(keyOf(item), selectionLabel?.(item) ?? String(keyOf(item)));
  return { ...options, columns: [{ head: "", name: BOX, cell }, ...columns] };
}
