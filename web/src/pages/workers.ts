/** Workers: a list of any length in the order in which they are used next, and one of them with what it does. */
import { type Answer, ask } from "../api.js";
import type { Desk, MakePage, Page } from "../desk.js";
import { type Child, fill, h, set, write } from "../dom.js";
import { count, duration, plural } from "../format.js";
import { badge } from "../parts/badge.js";
import { Meter } from "../parts/meter.js";
import { VirtualGrid } from "../parts/virtual-grid.js";
import { changed, type Place } from "../place.js";
import { later } from "./jobs.js";
import { WorkerPanel } from "./worker-panel.js";
import { recentBars, stateOf, usedSlots, type Worker } from "./worker-view.js";

const ORDERS = { use: "next used first", name: "by name", busy: "busiest first", trouble: "trouble first" } as const;
type Order = keyof typeof ORDERS;
const STATES = ["all", "connected", "busy", "idle", "draining", "away", "suspended", "banned"] as const;
const PAGE = 100;

export const workersPage: MakePage = (place, desk) => new WorkersPage(place, desk);

class WorkersPage implements Page {
  readonly title = "Workers";
  readonly element: HTMLElement;
  readonly #desk: Desk;
  readonly #grid: VirtualGrid<Worker>;
  readonly #chips = h("nav", { class: "chips", "aria-label": "State" });
  readonly #find = h("input", {
    type: "search",
    placeholder: "Name, address, tag…",
    "aria-label": "Find workers",
    class: "search",
  });
  readonly #order = h("select", { "aria-label": "Order" });
  readonly #many = h("span", { class: "muted" });
  readonly #empty = h("p", { class: "empty", hidden: true });
  readonly #side = h("aside", { class: "worker-side", "aria-label": "One worker", hidden: true });
  readonly #items = new Map<number, Worker>();
  #panel: WorkerPanel | undefined;
  #place: Place;

  constructor(place: Place, desk: Desk) {
    this.#desk = desk;
    this.#place = place;
    this.#grid = new VirtualGrid<Worker>({
      label: "Workers",
      rowHeight: 36,
      columns: COLUMNS,
      itemAt: (index) => this.#items.get(index),
      keyOf: ({ id }) => id,
      onOpen: ({ id }) => desk.go(changed(this.#place, { worker: id })),
      onView: () => {
        if (this.#lacking()) desk.again();
      },
    });
    for (const [name, label] of Object.entries(ORDERS)) this.#order.append(h("option", { value: name }, label));
    this.#order.addEventListener("change", () =>
      desk.go(changed(this.#place, { order: this.#order.value === "use" ? undefined : this.#order.value }), true),
    );
    later(this.#find, () => desk.go(changed(this.#place, { find: this.#find.value }), true));
    this.element = h(
      "div",
      { class: "workers" },
      h("div", { class: "title" }, h("h1", {}, "Workers"), this.#many),
      h("div", { class: "filters" }, this.#chips, h("span", { class: "gap" }), this.#find, this.#order),
      h(
        "div",
        { class: "worker-split" },
        h("section", { class: "panel flush", "aria-label": "Workers" }, this.#grid.element, this.#empty),
        this.#side,
      ),
    );
    this.#showFilters();
  }

  moved(place: Place): boolean {
    if (place.path[0] !== "workers") return false;
    const listed = ({ query }: Place): string => ["find", "order", "state"].map((name) => query.get(name)).join("\n");
    if (listed(place) !== listed(this.#place)) {
      this.#items.clear();
      this.#grid.toTop();
    }
    this.#place = place;
    this.#showFilters();
    return true;
  }

  close(): void {
    this.#grid.close();
  }

  async look(signal: AbortSignal): Promise<void> {
    const place = this.#place;
    const from = Math.floor(this.#grid.view.from / PAGE) * PAGE;
    const pages = [from, ...(this.#grid.view.to > from + PAGE ? [from + PAGE] : [])];
    for (const start of pages) {
      const answer = await ask(
        "workerPage",
        { ...inputFrom(place), from: start, limit: PAGE },
        { signal, shared: true },
      );
      if (place !== this.#place) return;
      this.#keep(start, answer);
    }
    await this.#showOne(signal);
  }

  #keep(from: number, { workers, matching, total }: Answer<"workerPage">): void {
    // Others are as old as the last look at them: what is far out of view is forgotten.
    for (const at of [...this.#items.keys()])
      if (at >= matching || Math.abs(at - from) > 10 * PAGE) this.#items.delete(at);
    workers.forEach((worker, at) => {
      this.#items.set(from + at, worker);
    });
    this.#grid.update(matching, this.#place.query.get("worker") ?? undefined);
    write(
      this.#many,
      matching === total ? plural(total, "worker") : `${count(matching)} of ${plural(total, "worker")}`,
    );
    set(this.#grid.element, "hidden", matching === 0);
    set(this.#empty, "hidden", matching > 0);
    write(
      this.#empty,
      total === 0
        ? "No worker has joined yet. On a machine that should work, run laboro worker with the line that laboro serve printed."
        : "No worker is like that.",
    );
  }

  /** Rows in view that have not been read. */
  #lacking(): boolean {
    const { from, to } = this.#grid.view;
    for (let at = from; at < to; at++) if (!this.#items.has(at)) return true;
    return false;
  }

  async #showOne(signal: AbortSignal): Promise<void> {
    const id = this.#place.query.get("worker");
    set(this.#side, "hidden", id === null);
    if (id === null) {
      this.#panel = undefined;
      return;
    }
    let worker = [...this.#items.values()].find((one) => one.id === id);
    // It may be one that is not in view.
    if (worker === undefined) {
      const name = this.#panel?.id === id ? this.#panel.name : undefined;
      const found = await ask(
        "workerPage",
        { limit: 500, ...(name === undefined ? {} : { find: name }) },
        { signal, shared: true },
      );
      worker = found.workers.find((one) => one.id === id);
    }
    if (this.#panel?.id !== id) {
      this.#panel = new WorkerPanel(this.#desk, id, () => this.#desk.go(changed(this.#place, { worker: undefined })));
      fill(this.#side, this.#panel.element);
    }
    this.#panel.update(worker);
  }

  #showFilters(): void {
    const { query } = this.#place;
    const now = query.get("state") ?? "all";
    fill(
      this.#chips,
      ...STATES.map((one) =>
        h(
          "a",
          {
            href: changed(this.#place, { state: one === "all" ? undefined : one }),
            "aria-current": one === now ? "true" : undefined,
          },
          one,
        ),
      ),
    );
    if (document.activeElement !== this.#find) this.#find.value = query.get("find") ?? "";
    this.#order.value = query.get("order") ?? "use";
  }
}

function inputFrom({ query }: Place) {
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
  if (first === undefined) return requests > 0 ? plural(requests, "request") : tasks > 0 ? `${count(tasks)} next` : "";
  const since = first.startedAt === undefined ? "" : ` ${duration(Date.now() - first.startedAt)}`;
  return `${first.job}.${first.index}${since}${tasks > 1 ? `, ${count(tasks - 1)} more` : ""}`;
}

const COLUMNS = [
  { head: "Use", name: "place", cell: ({ place }: Worker) => count(place + 1) },
  { head: "Name", name: "name", cell: ({ name }: Worker) => name },
  { head: "State", name: "state", cell: (worker: Worker) => badge(stateOf(worker)) },
  { head: "Protocol", name: "protocol", cell: ({ protocol }: Worker) => protocol },
  { head: "Address", name: "address", cell: ({ address = "" }: Worker) => address },
  { head: "Pool", name: "pool", cell: ({ pool }: Worker) => pool },
  { head: "Slots", name: "slots", cell: slotBar },
  {
    head: "Succeeded",
    name: "figures",
    cell: ({ figures }: Worker) => [
      figures.results === 0 ? "" : `${count(figures.succeeded)}/${count(figures.results)} `,
      recentBars(figures.recent),
    ],
  },
  { head: "Runs", name: "runs", cell: runs },
] as const;
