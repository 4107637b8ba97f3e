/** A map of a job's tasks: one cell per task, or for several. A cell with a failed task shows the failure. */
import type { Answer } from "../api.js";
import { h, set, setChildren, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { colour, onThemeChange } from "../theme.js";

type MapAnswer = Answer<"taskMap">;

const TALLEST = 216;
const MAX_CELL = 16;
const SMALLEST_CELL = 3;
/** Tasks that are shown when a cell with several is opened: one cell each. */
const ZOOM_TASKS = 15_000;

interface MapActions {
  openTask(index: number): void;
  /** The number that users see. */
  numberOf(index: number): number;
  /** Undefined for the whole job. */
  showRange(window: { readonly first: number; readonly last: number } | undefined): void;
}

export class TaskMap {
  readonly element: HTMLElement;
  readonly #actions: MapActions;
  readonly #canvas = h("canvas", { class: "map-canvas", tabindex: 0, role: "img", "aria-label": "Tasks" });
  readonly #markedLabel = h("p", { class: "map-where muted", "aria-live": "polite" });
  readonly #window = h("div", { class: "map-window" });
  readonly #resizeObserver: ResizeObserver;
  readonly #removeThemeListener: () => void;
  #answer: MapAnswer | undefined;
  #cellStates = new Uint8Array(0);
  #size = MAX_CELL;
  #columns = 1;
  #marked = -1;
  #open = -1;

  constructor(actions: MapActions) {
    this.#actions = actions;
    this.element = h(
      "div",
      { class: "map" },
      h("div", { class: "map-head" }, this.#window, this.#markedLabel),
      this.#canvas,
    );
    this.#canvas.addEventListener("pointermove", (event) => this.#mark(this.#cellAt(event)));
    this.#canvas.addEventListener("pointerleave", () => this.#mark(-1));
    this.#canvas.addEventListener("click", (event) => this.#openCell(this.#cellAt(event)));
    this.#canvas.addEventListener("keydown", (event) => this.#key(event));
    this.#resizeObserver = new ResizeObserver(() => this.#draw());
    this.#resizeObserver.observe(this.element);
    this.#removeThemeListener = onThemeChange(() => this.#draw());
  }

  close(): void {
    this.#resizeObserver.disconnect();
    this.#removeThemeListener();
  }

  /** As many cells as fit. */
  get cellCount(): number {
    const width = this.element.clientWidth || 1_000;
    return Math.max(100, Math.min(20_000, Math.floor(width / SMALLEST_CELL) * Math.floor(TALLEST / SMALLEST_CELL)));
  }

  update(answer: MapAnswer, open: number | undefined): void {
    this.#answer = answer;
    const { first, last, tasksPerCell, runs } = answer;
    this.#cellStates = new Uint8Array(Math.ceil((last - first + 1) / tasksPerCell));
    for (let at = 0, cell = 0; at < runs.length; at += 2) {
      const many = runs[at + 1] ?? 0;
      this.#cellStates.fill(runs[at] ?? 0, cell, cell + many);
      cell += many;
    }
    this.#open = open === undefined || open < first || open > last ? -1 : Math.floor((open - first) / tasksPerCell);
    this.#showWindow();
    set(this.#canvas, "aria-label", this.#describe());
    this.#draw();
    this.#showMarked();
  }

  #showWindow(): void {
    const answer = this.#answer;
    if (answer === undefined) return;
    const { first, last, count: all, tasksPerCell } = answer;
    const part = first > 0 || last < all - 1;
    const size = last - first + 1;
    const step = (from: number) => ({ first: Math.max(0, from), last: Math.min(all, Math.max(0, from) + size) - 1 });
    const button = (label: string, act: () => void, disabled = false) =>
      h("button", { class: "button small", disabled, onclick: act }, label);
    const text = part ? `tasks ${this.#number(first)} to ${this.#number(last)} of ${count(all)}` : plural(all, "task");
    const key = `${text} ${tasksPerCell}`;
    if (this.#window.dataset.shown === key) return;
    this.#window.dataset.shown = key;
    setChildren(
      this.#window,
      h("span", {}, tasksPerCell > 1 ? `${text}, ${count(tasksPerCell)} per cell` : text),
      part && button("Earlier", () => this.#actions.showRange(step(first - size)), first === 0),
      part && button("Later", () => this.#actions.showRange(step(last + 1)), last >= all - 1),
      part && button("All", () => this.#actions.showRange(undefined)),
    );
  }

  #describe(): string {
    const { states, tasksPerCell } = this.#answer ?? { states: [], tasksPerCell: 1 };
    const counts = states.map(() => 0);
    for (const kind of this.#cellStates) counts[kind] = (counts[kind] ?? 0) + 1;
    const parts = states.flatMap((state, at) => ((counts[at] ?? 0) > 0 ? [`${count(counts[at] ?? 0)} ${state}`] : []));
    return `Task map: ${tasksPerCell > 1 ? "cells" : "tasks"} ${parts.join(", ")}. Arrow keys move, Enter opens`;
  }

  #draw(): void {
    const width = this.element.clientWidth;
    const cells = this.#cellStates.length;
    if (width === 0 || cells === 0 || this.#answer === undefined) return;
    this.#size = cellSize(width, cells);
    this.#columns = Math.max(1, Math.floor(width / this.#size));
    const height = Math.ceil(cells / this.#columns) * this.#size;
    const scale = window.devicePixelRatio || 1;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    this.#canvas.style.height = `${height}px`;
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    context.scale(scale, scale);
    const fills = this.#answer.states.map((state) => colour(`cell-${state}`));
    const gap = this.#size > 3 ? 1 : 0;
    for (let cell = 0; cell < cells; cell++) {
      context.fillStyle = fills[this.#cellStates[cell] ?? 0] ?? "";
      context.fillRect(this.#left(cell), this.#top(cell), this.#size - gap, this.#size - gap);
    }
    this.#frame(context, this.#open, colour("text"));
    this.#frame(context, this.#marked, colour("accent"));
  }

  #frame(context: CanvasRenderingContext2D, cell: number, stroke: string): void {
    if (cell < 0) return;
    context.strokeStyle = stroke;
    context.lineWidth = 2;
    context.strokeRect(this.#left(cell), this.#top(cell), this.#size, this.#size);
  }

  #left(cell: number): number {
    return (cell % this.#columns) * this.#size;
  }

  #top(cell: number): number {
    return Math.floor(cell / this.#columns) * this.#size;
  }

  #cellAt(event: PointerEvent | MouseEvent): number {
    const box = this.#canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.#size);
    const cell = Math.floor((event.clientY - box.top) / this.#size) * this.#columns + column;
    return column < this.#columns && cell >= 0 && cell < this.#cellStates.length ? cell : -1;
  }

  #mark(cell: number): void {
    if (cell === this.#marked) return;
    this.#marked = cell;
    this.#draw();
    this.#showMarked();
  }

  #showMarked(): void {
    const span = this.#tasksOf(this.#marked);
    if (span === undefined) {
      setText(this.#markedLabel, "\u00a0");
      return;
    }
    const state = this.#answer?.states[this.#cellStates[this.#marked] ?? 0] ?? "";
    const one = span.first === span.last;
    setText(
      this.#markedLabel,
      one
        ? `task ${this.#number(span.first)}: ${state}`
        : `tasks ${this.#number(span.first)} to ${this.#number(span.last)}: ${state}`,
    );
  }

  #number(index: number): string {
    return count(this.#actions.numberOf(index));
  }

  #tasksOf(cell: number): { first: number; last: number } | undefined {
    if (cell < 0 || this.#answer === undefined) return undefined;
    const first = this.#answer.first + cell * this.#answer.tasksPerCell;
    return { first, last: Math.min(this.#answer.last, first + this.#answer.tasksPerCell - 1) };
  }

  #openCell(cell: number): void {
    const span = this.#tasksOf(cell);
    if (span === undefined || this.#answer === undefined) return;
    if (this.#answer.tasksPerCell === 1) this.#actions.openTask(span.first);
    else {
      const first = Math.max(0, Math.min(this.#answer.count - ZOOM_TASKS, span.first - Math.floor(ZOOM_TASKS / 2)));
      this.#actions.showRange({ first, last: Math.min(this.#answer.count, first + ZOOM_TASKS) - 1 });
    }
  }

  #key(event: KeyboardEvent): void {
    const steps: Readonly<Record<string, number>> = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: this.#columns,
      ArrowUp: -this.#columns,
    };
    const step = steps[event.key];
    if (step !== undefined) this.#mark(Math.max(0, Math.min(this.#cellStates.length - 1, this.#marked + step)));
    else if (event.key === "Enter") this.#openCell(this.#marked);
    else return;
    event.preventDefault();
  }
}

/** The largest size at which all cells fit. */
function cellSize(width: number, cells: number): number {
  for (let size = MAX_CELL; size > 1; size--) {
    if (Math.ceil(cells / Math.floor(width / size)) * size <= TALLEST) return size;
  }
  return 1;
}

/** The colours of the map. */
export function mapLegend(): HTMLElement {
  const names = ["succeeded", "failed", "cancelled", "running", "prefetched", "waiting"];
  const list = h("ul", { class: "map-legend" });
  for (const name of names) list.append(h("li", {}, h("i", { class: `swatch swatch-cell-${name}` }), name));
  return list;
}
