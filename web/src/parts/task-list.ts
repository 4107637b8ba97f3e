/** Tasks of a job of one kind, page by page as they are scrolled to. Only the page in view is looked at again. */
import { type Answer, ask } from "../api.js";
import type { Child } from "../dom.js";
import { h, set } from "../dom.js";
import { count, duration } from "../format.js";
import { badge } from "./badge.js";
import { VirtualGrid } from "./virtual-grid.js";

export const SHOWN = ["failed", "running", "succeeded", "cancelled"] as const;
export type Shown = (typeof SHOWN)[number];

interface Item {
  readonly index: number;
  readonly state: string;
  readonly worker: string;
  readonly attempt: number;
  readonly took: string;
  readonly how: string;
}

interface Page {
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
  readonly #hurry: () => void;
  #shown: Shown;
  #pages: Page[] = [];
  #open: number | undefined;

  constructor(job: number, shown: Shown, open: (index: number) => void, hurry: () => void) {
    this.#job = job;
    this.#shown = shown;
    this.#hurry = hurry;
    this.#grid = new VirtualGrid<Item>({
      label: "Tasks",
      rowHeight: 30,
      columns: [
        { head: "Task", name: "task", cell: ({ index }) => count(index) },
        { head: "State", name: "state", cell: ({ state }): Child => badge(state) },
        { head: "How", name: "how", cell: ({ how }) => how },
        { head: "Took", name: "took", cell: ({ took }) => took },
        {
          head: "Worker",
          name: "worker",
          cell: ({ worker, attempt }) => (attempt > 1 ? `${worker}, attempt ${attempt}` : worker),
        },
      ],
      itemAt: (at) => this.#itemAt(at),
      keyOf: ({ index }) => index,
      onOpen: ({ index }) => open(index),
      onView: () => {
        if (this.#endInView()) this.#hurry();
      },
    });
    this.element = h("div", { class: "task-list" }, this.#grid.element, this.#empty);
  }

  close(): void {
    this.#grid.close();
  }

  show(shown: Shown): void {
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#pages = [];
    this.#grid.toTop();
  }

  async look(signal: AbortSignal, open: number | undefined): Promise<void> {
    this.#open = open;
    const place = this.#pageInView();
    const from = place < this.#pages.length ? (this.#pages[place]?.from ?? 0) : (this.#pages.at(-1)?.next ?? 0);
    await this.#read(signal, Math.min(place, this.#pages.length), from);
    const last = this.#pages.at(-1);
    // Scrolled to the end of what is known: what comes next, too.
    if (this.#endInView() && last?.next !== undefined) await this.#read(signal, this.#pages.length, last.next);
  }

  async #read(signal: AbortSignal, place: number, from: number): Promise<void> {
    const shown = this.#shown;
    const page = await this.#ask(signal, shown, from);
    if (shown !== this.#shown) return;
    const before = this.#pages[place];
    this.#pages[place] = page;
    // What came after it is another page now.
    if (before !== undefined && before.next !== page.next) this.#pages.length = place + 1;
    this.#update();
  }

  async #ask(signal: AbortSignal, shown: Shown, from: number): Promise<Page> {
    const question = { job: this.#job, from, limit: PAGE };
    if (shown === "running") {
      const { tasks, next } = await ask("running", question, { signal, shared: true });
      return { from, items: tasks.map(runningItem), next };
    }
    const { tasks, next } = await ask("tasks", { ...question, state: [shown] }, { signal, shared: true });
    return { from, items: tasks.map(endedItem), next };
  }

  #update(): void {
    const known = this.#pages.reduce((sum, { items }) => sum + items.length, 0);
    this.element.classList.toggle("of-running", this.#shown === "running");
    this.#grid.update(known, this.#open);
    set(this.#grid.element, "hidden", known === 0);
    set(this.#empty, "hidden", known > 0);
    this.#empty.textContent = this.#shown === "running" ? "No task is at a worker." : `No task has ${this.#shown}.`;
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
    for (const [place, { items }] of this.#pages.entries()) {
      if (left < items.length) return place;
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
  const { index, state, worker, attempt, started, ended } = task;
  return { index, state, worker, attempt, took: duration(ended - started), how: howEnded(task) };
}

export function howEnded({ error, timedOut, signal, code }: Omit<Answer<"tasks">["tasks"][number], "index">): string {
  if (error !== undefined) return error;
  if (timedOut === true) return "time limit";
  return signal ?? (code === undefined ? "" : `exit ${code}`);
}

function runningItem({ index, started, worker, attempt, startedAt }: Answer<"running">["tasks"][number]): Item {
  const took = startedAt === undefined ? "" : duration(Date.now() - startedAt);
  return { index, state: started ? "running" : "next", worker, attempt, took, how: "" };
}
