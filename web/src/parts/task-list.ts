/** Tasks of a job in one state, loaded page by page while scrolling. Only the page in view is refreshed. */
import { type Answer, ask, decodeText } from "../api.js";
import { h, set } from "../dom.js";
import { count, duration, plural, size } from "../format.js";
import { isAllowed, type PageContext } from "../page-context.js";
import { type BulkAction, Selection } from "./selection.js";
import { VirtualGrid } from "./virtual-grid.js";

export const LISTED_STATES = ["failed", "running", "waiting", "succeeded", "cancelled"] as const;
export type ListedState = (typeof LISTED_STATES)[number];

interface Item {
  readonly index: number;
  readonly number: number;
  readonly entry: string;
  readonly worker: string;
  readonly attempt: string;
  readonly took: string;
  readonly outcome: string;
  readonly used: string;
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
  readonly #selection: Selection<number>;
  #entry = "";
  #state: ListedState;
  #pages: TaskPage[] = [];
  #open: number | undefined;

  constructor(job: number, state: ListedState, context: PageContext, open: (number: number) => void) {
    this.#job = job;
    this.#state = state;
    this.#requestRefresh = () => context.refresh();
    this.#selection = new Selection<number>(context, "task", actionsOn(job));
    this.#grid = new VirtualGrid<Item>({
      label: "Tasks",
      rowHeight: 30,
      columns: [
        { head: "Task", name: "task", cell: ({ number }) => count(number) },
        { head: "Entry", name: "entry", cell: ({ entry }) => entry },
        { head: "Outcome", name: "outcome", cell: ({ outcome }) => outcome },
        { head: "Duration", name: "took", cell: ({ took }) => took },
        { head: "CPU, memory", name: "used", cell: ({ used }) => used },
        { head: "Attempt", name: "attempt", cell: ({ attempt }) => attempt },
        { head: "Worker", name: "worker", cell: ({ worker }) => worker },
      ],
      itemAt: (at) => this.#itemAt(at),
      keyOf: ({ index }) => index,
      onOpen: ({ number }) => open(number),
      onView: () => {
        if (this.#endInView()) this.#requestRefresh();
      },
      ...(isAllowed(context, "cancel") ? { selection: this.#selection } : {}),
      selectionLabel: ({ number }) => `task ${number}`,
    });
    this.element = h("div", { class: "task-list" }, this.#selection.element, this.#grid.element, this.#empty);
  }

  close(): void {
    this.#grid.close();
  }

  /** Tasks in this state, with this text in their entry; `*` is any text. */
  show(state: ListedState, entry: string): void {
    if (state === this.#state && entry === this.#entry) return;
    this.#state = state;
    this.#entry = entry;
    this.#pages = [];
    this.#selection.clear();
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
    const [state, entry] = [this.#state, this.#entry];
    const page = await this.#fetchPage(signal, from);
    if (state !== this.#state || entry !== this.#entry) return;
    const before = this.#pages[pageNumber];
    this.#pages[pageNumber] = page;
    // The pages after it have changed.
    if (before !== undefined && before.next !== page.next) this.#pages.length = pageNumber + 1;
    this.#update();
  }

  async #fetchPage(signal: AbortSignal, from: number): Promise<TaskPage> {
    const [state, entry] = [this.#state, this.#entry];
    const glob = entry === "" ? {} : { entry: entry.includes("*") ? entry : `*${entry}*` };
    const input = { job: this.#job, from, limit: PAGE, entries: true, ...glob };
    const shared = { signal, shared: true };
    if (state === "running") {
      const { tasks, next } = await ask("running", input, shared);
      return { from, items: tasks.map(runningItem), next };
    }
    if (state === "waiting") {
      const { tasks, next } = await ask("waiting", input, shared);
      return { from, items: tasks.map(waitingItem), next };
    }
    if (state === "cancelled") {
      const { tasks, next } = await ask("cancelled", input, shared);
      return { from, items: tasks.map(cancelledItem), next };
    }
    const { tasks, next } = await ask("tasks", { ...input, state: [state] }, shared);
    return { from, items: tasks.map(endedItem), next };
  }

  #update(): void {
    const items = this.#pages.flatMap((page) => page.items);
    // Columns without content leave their space to the others.
    for (const name of ["entry", "outcome", "used", "worker", "took", "attempt"] as const)
      this.element.classList.toggle(`no-${name}`, !items.some((item) => item[name] !== ""));
    this.#grid.update(items.length, this.#open);
    set(this.#grid.element, "hidden", items.length === 0);
    set(this.#empty, "hidden", items.length > 0);
    const what = this.#entry === "" ? "" : " with such an entry";
    this.#empty.textContent =
      this.#state === "running" || this.#state === "waiting"
        ? `No task${what} ${this.#state === "running" ? "runs" : "waits"}.`
        : `No task${what} has ${this.#state === "cancelled" ? "been cancelled" : this.#state}.`;
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

function actionsOn(job: number): BulkAction<number>[] {
  const ranges = (indices: readonly number[]) => indices.map((index) => ({ first: index, last: index }));
  return [
    {
      label: "Rerun",
      text: "Those that have ended will run again. Their results so far become earlier attempts.",
      perform: async (indices) => {
        const { count: many } = await ask("rerun", { job, states: [...ENDS], tasks: ranges(indices) });
        return many === 0 ? "nothing to run again" : `${plural(many, "task")} of job ${job} will run again`;
      },
    },
    {
      label: "Cancel",
      text: "Those that wait will not run, and those at workers will be stopped. Ended tasks do not change.",
      destructive: true,
      perform: async (indices) => {
        await ask("cancel", { job, tasks: ranges(indices) });
        return `${plural(indices.length, "task")} of job ${job} ${indices.length === 1 ? "is" : "are"} cancelled`;
      },
    },
  ];
}

const ENDS = ["succeeded", "failed", "cancelled"] as const;

const entryText = (entry: Answer<"tasks">["tasks"][number]["entry"]): string =>
  entry === undefined ? "" : decodeText(entry);
const attemptText = (attempt: number): string => (attempt > 1 ? count(attempt) : "");

function endedItem(task: Answer<"tasks">["tasks"][number]): Item {
  const { index, number, worker, attempt, started, ended, cpuMs, peakMemory } = task;
  const used = [cpuMs !== undefined && duration(cpuMs), peakMemory !== undefined && size(peakMemory)];
  return {
    ...{ index, number, worker, entry: entryText(task.entry), attempt: attemptText(attempt) },
    ...{ took: duration(ended - started), outcome: describeOutcome(task), used: used.filter(Boolean).join(", ") },
  };
}

function cancelledItem({ result, ...task }: Answer<"cancelled">["tasks"][number]): Item {
  if (result !== undefined) return endedItem({ ...result, ...task });
  const { index, number, entry } = task;
  return { index, number, entry: entryText(entry), worker: "", attempt: "", took: "", outcome: "never ran", used: "" };
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
  const { index, number, worker, attempt, startedAt, progress = "", entry } = task;
  const took = startedAt === undefined ? "" : duration(Date.now() - startedAt);
  const text = entryText(entry);
  return { index, number, entry: text, worker, attempt: attemptText(attempt), took, outcome: progress, used: "" };
}

function waitingItem({ index, number, worker = "", entry }: Answer<"waiting">["tasks"][number]): Item {
  const outcome = worker === "" ? "" : "prefetched";
  return { index, number, entry: entryText(entry), worker, attempt: "", took: "", outcome, used: "" };
}
