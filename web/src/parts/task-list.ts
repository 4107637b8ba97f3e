/** Tasks of a job in one state, loaded page by page while scrolling. Only the page in view is refreshed. */
import { type Answer, ask } from "../api.js";
import type { Child } from "../dom.js";
import { h, set } from "../dom.js";
import { count, duration } from "../format.js";
import { badge } from "./badge.js";
import { VirtualGrid } from "./virtual-grid.js";

export const LISTED_STATES = ["failed", "running", "succeeded", "cancelled"] as const;
export type ListedState = (typeof LISTED_STATES)[number];

interface Item {
  readonly index: number;
  readonly number: number;
  readonly state: string;
  readonly worker: string;
  readonly attempt: number;
  readonly took: string;
  readonly outcome: string;
}

interface TaskPage {
  readonly from: number;
  readonly items: readonly Item[];
  readonly next: number | undefined;
}

const PAGE = 100;

export class TaskList {
  readonly element: HTMLElement;
  readonly #job: number;
  readonly #grid: VirtualGrid<Item>;
  readonly #empty = h("p", { class: "empty" });
  readonly #requestRefresh: () => void;
  #state: ListedState;
  #pages: TaskPage[] = [];
  #open: number | undefined;

  constructor(job: number, state: ListedState, open: (number: number) => void, requestRefresh: () => void) {
    this.#job = job;
    this.#state = state;
    this.#requestRefresh = requestRefresh;
    this.#grid = new VirtualGrid<Item>({
      label: "Tasks",
      rowHeight: 30,
      columns: [
        { head: "Task", name: "task", cell: ({ number }) => count(number) },
        { head: "State", name: "state", cell: ({ state }): Child => badge(state) },
        { head: "Outcome", name: "outcome", cell: ({ outcome }) => outcome },
        { head: "Duration", name: "took", cell: ({ took }) => took },
        {
          head: "Worker",
          name: "worker",
          cell: ({ worker, attempt }) => (attempt > 1 ? `${worker}, attempt ${attempt}` : worker),
        },
      ],
      itemAt: (at) => this.#itemAt(at),
      keyOf: ({ index }) => index,
      onOpen: ({ number }) => open(number),
      onView: () => {
        if (this.#endInView()) this.#requestRefresh();
      },
    });
    this.element = h("div", { class: "task-list" }, this.#grid.element, this.#empty);
  }

  close(): void {
    this.#grid.close();
  }

  setState(state: ListedState): void {
    if (state === this.#state) return;
    this.#state = state;
    this.#pages = [];
    this.#grid.toTop();
  }

  async refresh(signal: AbortSignal, open: number | undefined): Promise<void> {
    this.#open = open;
    const pageNumber = this.#pageInView();
    const from =
      pageNumber < this.#pages.length ? (this.#pages[pageNumber]?.from ?? 0) : (this.#pages.at(-1)?.next ?? 0);
    await this.#loadPage(signal, Math.min(pageNumber, this.#pages.length), from);
    const last = this.#pages.at(-1);
    // Scrolled to the end of the loaded pages: load the next one.
    if (this.#endInView() && last?.next !== undefined) await this.#loadPage(signal, this.#pages.length, last.next);
  }

  async #loadPage(signal: AbortSignal, pageNumber: number, from: number): Promise<void> {
    const state = this.#state;
    const page = await this.#fetchPage(signal, state, from);
    if (state !== this.#state) return;
    const before = this.#pages[pageNumber];
    this.#pages[pageNumber] = page;
    // The pages after it have changed.
    if (before !== undefined && before.next !== page.next) this.#pages.length = pageNumber + 1;
    this.#update();
  }

  async #fetchPage(signal: AbortSignal, state: ListedState, from: number): Promise<TaskPage> {
    const input = { job: this.#job, from, limit: PAGE };
    if (state === "running") {
      const { tasks, next } = await ask("running", input, { signal, shared: true });
      return { from, items: tasks.map(runningItem), next };
    }
    const { tasks, next } = await ask("tasks", { ...input, state: [state] }, { signal, shared: true });
    return { from, items: tasks.map(endedItem), next };
  }

  #update(): void {
    const known = this.#pages.reduce((sum, { items }) => sum + items.length, 0);
    // Without an outcome there is more space for the worker. Handlers may report progress, which has its place.
    const outcomes = this.#pages.some(({ items }) => items.some(({ outcome }) => outcome !== ""));
    this.element.classList.toggle("of-running", this.#state === "running" && !outcomes);
    this.#grid.update(known, this.#open);
    set(this.#grid.element, "hidden", known === 0);
    set(this.#empty, "hidden", known > 0);
    this.#empty.textContent = this.#state === "running" ? "No task runs." : `No task has ${this.#state}.`;
  }

  #itemAt(at: number): Item | undefined {
    let left = at;
    for (const { items } of this.#pages) {
      if (left < items.length) return items[left];
      left -= items.length;
    }
    return undefined;
  }

  #pageInView(): number {
    let left = this.#grid.view.from;
    for (const [pageNumber, { items }] of this.#pages.entries()) {
      if (left < items.length) return pageNumber;
      left -= items.length;
    }
    return Math.max(0, this.#pages.length - 1);
  }

  #endInView(): boolean {
    const known = this.#pages.reduce((sum, { items }) => sum + items.length, 0);
    return this.#pages.at(-1)?.next !== undefined && this.#grid.view.to >= known;
  }
}

function endedItem(task: Answer<"tasks">["tasks"][number]): Item {
  const { index, number, state, worker, attempt, started, ended } = task;
  return { index, number, state, worker, attempt, took: duration(ended - started), outcome: describeOutcome(task) };
}

export function describeOutcome({
  error,
  timedOut,
  signal,
  code,
}: Omit<Answer<"tasks">["tasks"][number], "index" | "number">): string {
  if (error !== undefined) return error;
  if (timedOut === true) return "time limit";
  return signal ?? (code === undefined ? "" : `exit ${code}`);
}

function runningItem(task: Answer<"running">["tasks"][number]): Item {
  const { index, number, worker, attempt, startedAt, progress = "" } = task;
  const took = startedAt === undefined ? "" : duration(Date.now() - startedAt);
  return { index, number, state: "running", worker, attempt, took, outcome: progress };
}
