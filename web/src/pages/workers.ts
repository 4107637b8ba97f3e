/** Workers: a list of any length, in the order in which they are used next, and one worker in detail. */
import { type Answer, ask } from "../api.js";
import { type Child, h, set, setChildren, setText } from "../dom.js";
import { amountOf, count, duration, percent, plural } from "../format.js";
import { isAllowed, type Page, type PageContext, type PageFactory } from "../page-context.js";
import { badge } from "../parts/badge.js";
import { Meter } from "../parts/progress-bar.js";
import { type BulkAction, forEach, Selection } from "../parts/selection.js";
import { VirtualGrid } from "../parts/virtual-grid.js";
import { type Route, withQuery } from "../route.js";
import { debounceInput } from "./jobs.js";
import { recentBars, stateOf, usedSlots, type Worker, WorkerPanel } from "./worker-panel.js";

const ORDERS = {
  lastUsed: "next used first",
  name: "by name",
  busy: "busiest first",
  problems: "problems first",
} as const;
type Order = keyof typeof ORDERS;
const STATES = ["all", "connected", "busy", "idle", "draining", "disconnected", "suspended", "banned"] as const;
const PAGE = 100;

const ACTIONS: readonly BulkAction<string>[] = [
  {
    label: "Drain",
    text: "They get no more tasks. Running tasks continue, waiting ones go to other workers.",
    perform: (ids) =>
      forEach(
        ids,
        (worker) => ask("drain", { worker }),
        (many) => `${plural(many, "worker")} ${many === 1 ? "is" : "are"} draining`,
      ),
  },
  {
    label: "Undrain",
    text: "They get tasks again.",
    perform: (ids) =>
      forEach(
        ids,
        (worker) => ask("undrain", { worker }),
        (many) => `${plural(many, "worker")} ${many === 1 ? "gets" : "get"} tasks again`,
      ),
  },
  {
    label: "Stop",
    text: "They finish their running tasks, then end. To use them again, start them on their machines.",
    destructive: true,
    perform: (ids) =>
      forEach(
        ids,
        (worker) => ask("stop", { worker }),
        (many) => `${plural(many, "worker")} will stop`,
      ),
  },
];

export const workersPage: PageFactory = (route, context) => new WorkersPage(route, context);

class WorkersPage implements Page {
  readonly title = "Workers";
  readonly element: HTMLElement;
  readonly #context: PageContext;
  readonly #grid: VirtualGrid<Worker>;
  readonly #chips = h("nav", { class: "chips", "aria-label": "State" });
  readonly #find = h("input", {
    type: "search",
    placeholder: "Name, address, tag…",
    "aria-label": "Find workers",
    class: "search",
  });
  readonly #order = h("select", { "aria-label": "Order" });
  readonly #countLabel = h("span", { class: "muted" });
  readonly #empty = h("p", { class: "empty", hidden: true });
  readonly #side = h("aside", { class: "worker-side", "aria-label": "One worker", hidden: true });
  readonly #items = new Map<number, Worker>();
  #panel: WorkerPanel | undefined;
  #route: Route;

  constructor(route: Route, context: PageContext) {
    this.#context = context;
    this.#route = route;
    const selection = new Selection<string>(context, "worker", ACTIONS);
    this.#grid = new VirtualGrid<Worker>({
      label: "Workers",
      rowHeight: 36,
      columns: COLUMNS,
      itemAt: (index) => this.#items.get(index),
      keyOf: ({ id }) => id,
      ...(isAllowed(context, "drain") ? { selection } : {}),
      selectionLabel: ({ name }) => `worker ${name}`,
      onOpen: ({ id }) => context.navigate(withQuery(this.#route, { worker: id })),
      onView: () => {
        if (this.#hasUnloadedRows()) context.refresh();
      },
    });
    for (const [name, label] of Object.entries(ORDERS)) this.#order.append(h("option", { value: name }, label));
    this.#order.addEventListener("change", () =>
      context.navigate(
        withQuery(this.#route, { order: this.#order.value === "lastUsed" ? undefined : this.#order.value }),
        true,
      ),
    );
    debounceInput(this.#find, () => context.navigate(withQuery(this.#route, { find: this.#find.value }), true));
    this.element = h(
      "div",
      { class: "workers" },
      h("div", { class: "title" }, h("h1", {}, "Workers"), this.#countLabel),
      h("div", { class: "filters" }, this.#chips, h("span", { class: "gap" }), this.#find, this.#order),
      selection.element,
      h(
        "div",
        { class: "worker-split" },
        h("section", { class: "panel flush", "aria-label": "Workers" }, this.#grid.element, this.#empty),
        this.#side,
      ),
    );
    this.#showFilters();
  }

  onNavigate(route: Route): boolean {
    if (route.path[0] !== "workers") return false;
    const listed = ({ query }: Route): string => ["find", "order", "state"].map((name) => query.get(name)).join("\n");
    if (listed(route) !== listed(this.#route)) {
      this.#items.clear();
      this.#grid.toTop();
    }
    this.#route = route;
    this.#showFilters();
    return true;
  }

  close(): void {
    this.#grid.close();
  }

  async refresh(signal: AbortSignal): Promise<void> {
    const route = this.#route;
    const from = Math.floor(this.#grid.view.from / PAGE) * PAGE;
    const pages = [from, ...(this.#grid.view.to > from + PAGE ? [from + PAGE] : [])];
    for (const start of pages) {
      const answer = await ask(
        "workerPage",
        { ...inputFrom(route), from: start, limit: PAGE },
        { signal, shared: true },
      );
      if (route !== this.#route) return;
      this.#storePage(start, answer);
    }
    await this.#refreshPanel(signal);
  }

  #storePage(from: number, { workers, matching, total }: Answer<"workerPage">): void {
    // Rows far out of view are not refreshed: they are removed.
    for (const at of [...this.#items.keys()])
      if (at >= matching || Math.abs(at - from) > 10 * PAGE) this.#items.delete(at);
    workers.forEach((worker, at) => {
      this.#items.set(from + at, worker);
    });
    this.#grid.update(matching, this.#route.query.get("worker") ?? undefined);
    setText(
      this.#countLabel,
      matching === total ? plural(total, "worker") : `${count(matching)} of ${plural(total, "worker")}`,
    );
    set(this.#grid.element, "hidden", matching === 0);
    set(this.#empty, "hidden", matching > 0);
    setText(
      this.#empty,
      total === 0
        ? "No worker has joined yet. Start one with the laboro worker command that laboro serve printed."
        : "No workers match.",
    );
  }

  /** Rows in view that have not been read. */
  #hasUnloadedRows(): boolean {
    const { from, to } = this.#grid.view;
    for (let at = from; at < to; at++) if (!this.#items.has(at)) return true;
    return false;
  }

  async #refreshPanel(signal: AbortSignal): Promise<void> {
    const id = this.#route.query.get("worker");
    set(this.#side, "hidden", id === null);
    if (id === null) {
      this.#panel = undefined;
      return;
    }
    const { workers } = await ask("workerPage", { id, limit: 1 }, { signal, shared: true });
    if (this.#panel?.id !== id) {
      this.#panel = new WorkerPanel(this.#context, id, () =>
        this.#context.navigate(withQuery(this.#route, { worker: undefined })),
      );
      setChildren(this.#side, this.#panel.element);
    }
    this.#panel.update(workers[0]);
  }

  #showFilters(): void {
    const { query } = this.#route;
    const now = query.get("state") ?? "all";
    setChildren(
      this.#chips,
      ...STATES.map((one) =>
        h(
          "a",
          {
            href: withQuery(this.#route, { state: one === "all" ? undefined : one }),
            "aria-current": one === now ? "true" : undefined,
          },
          one,
        ),
      ),
    );
    if (document.activeElement !== this.#find) this.#find.value = query.get("find") ?? "";
    this.#order.value = query.get("order") ?? "lastUsed";
  }
}

function inputFrom({ query }: Route) {
  const state = STATES.find((one) => one === query.get("state"));
  const order = query.get("order");
  const find = query.get("find") ?? "";
  return {
    ...(state === undefined || state === "all" ? {} : { state }),
    ...(isOrder(order) ? { order } : {}),
    ...(find === "" ? {} : { find }),
  };
}

const isOrder = (text: string | null): text is Order => text !== null && Object.hasOwn(ORDERS, text);

function slotBar(worker: Worker): Child[] {
  const total = worker.total.slots ?? 0;
  const used = usedSlots(worker);
  const meter = new Meter("Slots in use");
  meter.update(used, total);
  return [meter.element, h("span", { class: "slots" }, `${count(used)}/${count(total)}`)];
}

function runs({ running, tasks, requests }: Worker): string {
  const [first] = running;
  if (first === undefined)
    return requests > 0 ? plural(requests, "request") : tasks > 0 ? `${count(tasks)} prefetched` : "";
  const since = first.startedAt === undefined ? "" : ` ${duration(Date.now() - first.startedAt)}`;
  return `${first.job}.${first.number}${since}${tasks > 1 ? `, ${count(tasks - 1)} more` : ""}`;
}

const resourcesAndTags = ({ total, free, tags }: Worker): string => {
  const resources = Object.entries(total).filter(([name]) => name !== "slots");
  const used = resources.map(
    ([name, amount]) => `${name} ${amountOf(name, amount - (free[name] ?? 0))}/${amountOf(name, amount)}`,
  );
  return [...used, ...tags].join(", ");
};

const machineText = ({ machine }: Worker): string => {
  if (machine === undefined) return "";
  const { cpus, load, memory, freeMemory } = machine;
  return `${load.toFixed(1)}/${cpus}, ${percent(memory - freeMemory, memory)}`;
};

const COLUMNS = [
  { head: "Next", name: "position", cell: ({ position }: Worker) => count(position + 1) },
  { head: "Name", name: "name", cell: ({ name }: Worker) => name },
  { head: "State", name: "state", cell: (worker: Worker) => badge(stateOf(worker)) },
  { head: "Protocol", name: "protocol", cell: ({ protocol }: Worker) => protocol },
  { head: "Address", name: "address", cell: ({ address = "" }: Worker) => address },
  { head: "Pool", name: "pool", cell: ({ pool }: Worker) => pool },
  { head: "Slots", name: "slots", cell: slotBar },
  { head: "Load, memory", name: "machine", cell: machineText },
  { head: "Resources and tags", name: "resources", cell: resourcesAndTags },
  {
    head: "Succeeded",
    name: "stats",
    cell: ({ stats }: Worker) => [
      stats.results === 0 ? "" : `${count(stats.succeeded)}/${count(stats.results)} `,
      recentBars(stats.recent),
    ],
  },
  { head: "Runs", name: "runs", cell: runs },
] as const;
