/** One worker: its properties and standing, its running tasks, and actions on it. */

import { type Answer, decodeText } from "../api.js";
import { type Child, h, set, setChildren, setText, updateRows } from "../dom.js";
import { amountOf, count, duration, percent, plural, size } from "../format.js";
import { isAllowed, type PageContext, runAction } from "../page-context.js";
import { badge, setBadge } from "../parts/badge.js";
import { confirmDialog } from "../parts/confirm-dialog.js";
import { icon } from "../parts/icons.js";
import { address } from "../route.js";

export class WorkerPanel {
  readonly element: HTMLElement;
  readonly id: string;
  readonly #context: PageContext;
  readonly #name = h("h2", {}, "…");
  readonly #state = badge("connected");
  readonly #gone = h("p", { class: "empty", hidden: true }, "This worker is gone.");
  readonly #facts = h("dl", { class: "facts" });
  readonly #running = h("ul", { class: "running" });
  readonly #runningTitle = h("h3", {}, "Runs");
  readonly #actions = h("div", { class: "actions" });
  #worker: Worker | undefined;

  constructor(context: PageContext, id: string, close: () => void) {
    this.#context = context;
    this.id = id;
    const closeButton = h("button", { class: "button quiet", "aria-label": "Close", onclick: close }, icon("close"));
    this.element = h(
      "section",
      { class: "panel worker" },
      h("div", { class: "title" }, this.#name, this.#state, h("span", { class: "gap" }), closeButton),
      this.#gone,
      this.#actions,
      this.#facts,
      this.#runningTitle,
      this.#running,
    );
  }

  get name(): string | undefined {
    return this.#worker?.name;
  }

  update(worker: Worker | undefined): void {
    set(this.#gone, "hidden", worker !== undefined);
    set(this.#actions, "hidden", worker === undefined);
    if (worker === undefined) return;
    this.#worker = worker;
    setText(this.#name, worker.name);
    setBadge(this.#state, stateOf(worker));
    setChildren(this.#facts, ...factsOf(worker));
    setText(
      this.#runningTitle,
      worker.tasks > worker.running.length
        ? `${count(worker.tasks)} running tasks, the longest first`
        : "Running tasks",
    );
    updateRows(
      this.#running,
      worker.running,
      ({ job, index, attempt }) => `${job}.${index}.${attempt}`,
      runningRow,
      showRunning,
    );
    if (worker.running.length === 0)
      setText(
        this.#runningTitle,
        worker.tasks > 0 ? `${count(worker.tasks)} prefetched tasks, none running` : "No running tasks",
      );
    this.#showActions(worker);
  }

  #showActions(worker: Worker): void {
    const wanted = [
      isAllowed(this.#context, "drain") && worker.connected && !worker.draining && "drain",
      isAllowed(this.#context, "undrain") && worker.connected && worker.draining && "undrain",
      isAllowed(this.#context, "stop") && worker.connected && "stop",
      isAllowed(this.#context, "forgive") && worker.standing !== "good" && "forgive",
    ].filter((one) => one !== false);
    if (this.#actions.dataset.shown === wanted.join()) return;
    this.#actions.dataset.shown = wanted.join();
    const buttons: Readonly<Record<string, () => HTMLElement>> = {
      drain: () => h("button", { class: "button", onclick: () => void this.#drain() }, "Drain"),
      undrain: () => h("button", { class: "button main", onclick: () => void this.#undrain() }, "Undrain"),
      stop: () => h("button", { class: "button destructive", onclick: () => void this.#stop() }, "Stop"),
      forgive: () => h("button", { class: "button main", onclick: () => void this.#forgive() }, "Forgive"),
    };
    setChildren(this.#actions, ...wanted.map((one) => buttons[one]?.()));
  }

  async #drain(): Promise<void> {
    const name = this.#worker?.name ?? this.id;
    const answer = await confirmDialog({
      title: `Drain ${name}?`,
      text: "It gets no more tasks. Running tasks continue, waiting ones go to other workers.",
      confirmLabel: "Drain worker",
    });
    if (answer !== undefined) await runAction(this.#context, "drain", { worker: this.id }, () => `${name} is draining`);
  }

  async #undrain(): Promise<void> {
    const name = this.#worker?.name ?? this.id;
    const answer = await confirmDialog({
      title: `Undrain ${name}?`,
      text: "It gets tasks again.",
      confirmLabel: "Undrain worker",
    });
    if (answer !== undefined)
      await runAction(this.#context, "undrain", { worker: this.id }, () => `${name} gets tasks again`);
  }

  async #stop(): Promise<void> {
    const name = this.#worker?.name ?? this.id;
    const answer = await confirmDialog({
      title: `Stop ${name}?`,
      text: `It finishes its running tasks (${count(this.#worker?.tasks ?? 0)}), then ends. To use it again, start it on its machine.`,
      confirmLabel: "Stop worker",
      destructive: true,
    });
    if (answer !== undefined)
      await runAction(
        this.#context,
        "stop",
        { worker: this.id },
        () => `${name} stops when its running tasks have ended`,
      );
  }

  async #forgive(): Promise<void> {
    const name = this.#worker?.name ?? this.id;
    const answer = await confirmDialog({
      title: `Forgive ${name}?`,
      text: "Its earlier failures no longer count, and it gets work again.",
      confirmLabel: "Forgive worker",
    });
    if (answer !== undefined)
      await runAction(this.#context, "forgive", { name }, () => `${name} has good standing again`);
  }
}

type Running = Worker["running"][number];

const runningRow = ({ job, number, name, entry, attempt }: Running): HTMLLIElement =>
  h(
    "li",
    {},
    h("a", { href: address(["jobs", job, "tasks", number]) }, `${job}.${number}`),
    h("span", { class: "name" }, entry === undefined ? name : `${name}: ${decodeText(entry)}`),
    attempt > 1 && h("span", { class: "muted" }, `attempt ${attempt}`),
    h("time"),
  );

function showRunning(row: HTMLLIElement, { startedAt }: Running): void {
  const time = row.querySelector("time");
  if (time !== null) setText(time, startedAt === undefined ? "" : duration(Date.now() - startedAt));
}

function factsOf(worker: Worker): Child[] {
  const { protocol, address: from, pool, tags, services, stats, total, free, prefetched, requests, position } = worker;
  const facts: Child[] = [];
  const add = (name: string, ...value: readonly Child[]): void => {
    facts.push(h("div", {}, h("dt", {}, name), h("dd", {}, ...value)));
  };
  add("Protocol", protocol);
  if (from !== undefined) add("Address", from);
  if (worker.broker !== undefined) add("Broker", worker.broker);
  add("Pool", pool);
  add("Slots", `${count(usedSlots(worker))} of ${count(total.slots ?? 0)} in use`);
  for (const [name, amount] of Object.entries(total)) {
    if (name !== "slots") add(name, `${amountOf(name, amount - (free[name] ?? 0))} of ${amountOf(name, amount)}`);
  }
  if (worker.machine !== undefined) {
    const { cpus, load, memory, freeMemory } = worker.machine;
    add("CPU", `load ${load.toFixed(1)} on ${plural(cpus, "CPU")}`);
    add("Memory", `${size(freeMemory)} of ${size(memory)} free`);
  }
  if (prefetched > 0) add("Next", `${count(prefetched)} prefetched`);
  if (requests > 0) add("Requests", count(requests));
  add("Used", position === 0 ? "next" : `after ${plural(position, "other")}`);
  add("Standing", worker.standing);
  add(
    "Succeeded",
    stats.results === 0
      ? "no results yet"
      : `${count(stats.succeeded)} of ${count(stats.results)}, ${percent(stats.succeeded, stats.results)}`,
  );
  if (stats.recent !== "") add("Last ten", recentBars(stats.recent));
  if (tags.length > 0) add("Tags", tags.join(", "));
  if (services.length > 0) add("Services", services.join(", "));
  add("Id", h("span", { class: "mono" }, worker.id));
  return facts;
}

export type Worker = Answer<"workerPage">["workers"][number];

export function stateOf({ connected, draining, paused, standing }: Worker): string {
  if (standing !== "good") return standing;
  if (!connected) return "disconnected";
  return draining ? "draining" : paused === undefined ? "connected" : "paused";
}

export const usedSlots = ({ total, free }: Worker): number => (total.slots ?? 0) - (free.slots ?? 0);

/** `+` and `-` as small bars, with a text for screen readers. */
export function recentBars(recent: string): HTMLElement {
  const failed = recent.split("-").length - 1;
  const words = recent === "" ? "no results yet" : `${failed} of the last ${recent.length} failed`;
  const bars = h("span", { class: "recent", role: "img", "aria-label": words, title: words });
  for (const one of recent) bars.append(h("i", { class: one === "+" ? "good" : "bad" }));
  return bars;
}
