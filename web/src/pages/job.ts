/** One job: its progress, a map of its tasks, a list of tasks by state, and one task with its output. */

import { taskIndex, taskNumber, tasksText } from "../../../src/model/task-numbers.js";
import { type Answer, ApiError, ask } from "../api.js";
import { type Child, h, set, setChildren, setText } from "../dom.js";
import { count, percent, plural, sentence } from "../format.js";
import { isAllowed, type Page, type PageContext, type PageFactory, runAction } from "../page-context.js";
import { badge, setBadge } from "../parts/badge.js";
import { confirmDialog } from "../parts/confirm-dialog.js";
import { DurationChart } from "../parts/duration-chart.js";
import { commandOf, factsOf, RateEstimate, scriptOf } from "../parts/job-facts.js";
import { StackedBar } from "../parts/progress-bar.js";
import { LISTED_STATES, type ListedState, TaskList } from "../parts/task-list.js";
import { mapLegend, TaskMap } from "../parts/task-map.js";
import { TaskPanel } from "../parts/task-panel.js";
import { address, numberIn, type Route, withQuery } from "../route.js";
import { debounceInput } from "./jobs.js";
import { notFoundPage } from "./not-found.js";

type Job = Answer<"job">;

export const jobPage: PageFactory = (route, context) => {
  const id = numberIn(route.path[1]);
  return id === undefined ? notFoundPage(route, context) : new JobPage(id, route, context);
};

class JobPage implements Page {
  readonly title: string;
  readonly element: HTMLElement;
  readonly #id: number;
  readonly #context: PageContext;
  readonly #name = h("h1", {}, "…");
  readonly #state = badge("waiting");
  readonly #actions = h("div", { class: "actions" });
  readonly #recipe = h("pre", { class: "recipe", tabindex: 0, "aria-label": "Command" });
  readonly #script = h("details", { hidden: true });
  readonly #facts = h("dl", { class: "facts" });
  readonly #bar = new StackedBar();
  readonly #counts = h("ul", { class: "counts" });
  readonly #map: TaskMap;
  readonly #tabs = h("nav", { class: "chips", "aria-label": "Which tasks" });
  readonly #list: TaskList;
  readonly #side = h("div", { class: "job-task" });
  readonly #tasks = h("div", { class: "job-tasks" });
  readonly #jump = h("input", {
    type: "number",
    min: 0,
    step: 1,
    placeholder: "Task",
    "aria-label": "Go to task",
    class: "search short",
  });
  readonly #find = h("input", {
    type: "search",
    placeholder: "Entry, such as a*",
    "aria-label": "Find by entry",
    class: "search",
  });
  readonly #why = h("p", { class: "reason", hidden: true });
  readonly #durations = new DurationChart();
  #panel: TaskPanel | undefined;
  #route: Route;
  #job: Job | undefined;
  #nextMapRefresh = 0;
  readonly #rate = new RateEstimate();

  constructor(id: number, route: Route, context: PageContext) {
    this.#id = id;
    this.#context = context;
    this.#route = route;
    this.title = `Job ${id}`;
    this.#map = new TaskMap({
      openTask: (index) => this.#openTask(this.#numberOf(index)),
      numberOf: (index) => this.#numberOf(index),
      showRange: (window) => {
        this.#nextMapRefresh = 0;
        context.navigate(withQuery(this.#route, { first: window?.first, last: window?.last }));
      },
    });
    this.#list = new TaskList(id, "failed", context, (number) => this.#openTask(number));
    debounceInput(this.#find, () => context.navigate(withQuery(this.#route, { entry: this.#find.value }), true));
    const jump = h("form", { class: "jump", onsubmit: (event: SubmitEvent) => this.#jumped(event) }, this.#jump);
    this.element = h(
      "div",
      { class: "job" },
      h(
        "div",
        { class: "title" },
        h("a", { href: address(["jobs"]), class: "back" }, "Jobs"),
        this.#name,
        this.#state,
        h("span", { class: "gap" }),
        this.#actions,
      ),
      h(
        "section",
        { class: "panel job-head", "aria-label": "The job" },
        this.#why,
        this.#recipe,
        this.#script,
        this.#facts,
        this.#bar.element,
        this.#counts,
      ),
      h(
        "div",
        { class: "job-pictures" },
        h("section", { class: "panel map-panel", "aria-label": "Task map" }, this.#map.element, mapLegend()),
        this.#durations.element,
      ),
      this.#tasks,
    );
    this.#tasks.append(
      h(
        "section",
        { class: "panel flush", "aria-label": "Tasks" },
        h("div", { class: "list-bar" }, this.#tabs, h("span", { class: "gap" }), this.#find, jump),
        this.#list.element,
      ),
      this.#side,
    );
    this.#showSide();
  }

  /** The number of the open task, from the address. */
  get #number(): number | undefined {
    return this.#route.path[2] === "tasks" ? numberIn(this.#route.path[3]) : undefined;
  }

  /** The index of the open task, if the job has it. */
  get #index(): number | undefined {
    const number = this.#number;
    return number === undefined || this.#job === undefined ? undefined : taskIndex(this.#job, number);
  }

  #numberOf(index: number): number {
    return this.#job === undefined ? index + 1 : taskNumber(this.#job, index);
  }

  onNavigate(route: Route): boolean {
    if (route.path[0] !== "jobs" || route.path[1] !== String(this.#id)) return false;
    const windowed = (one: Route): string => `${one.query.get("first")} ${one.query.get("last")}`;
    if (windowed(route) !== windowed(this.#route)) this.#nextMapRefresh = 0;
    this.#route = route;
    this.#showSide();
    return true;
  }

  close(): void {
    this.#map.close();
    this.#list.close();
    this.#panel?.close();
  }

  async refresh(signal: AbortSignal): Promise<void> {
    const shared = { signal, shared: true };
    try {
      this.#job = await ask("job", { job: this.#id }, shared);
    } catch (cause) {
      if (!(cause instanceof ApiError) || cause.status !== 404) throw cause;
      setChildren(
        this.element,
        h("h1", {}, `There is no job ${this.#id}`),
        h("p", {}, h("a", { href: address(["jobs"]) }, "All jobs")),
      );
      this.refresh = async () => {};
      return;
    }
    this.#show(this.#job);
    const panel = this.#panel;
    if (panel !== undefined) await panel.refresh(signal);
    await this.#refreshWhy(this.#job, signal);
    await this.#refreshMap(signal);
    this.#list.show(this.#listedState(this.#job), this.#route.query.get("entry") ?? "");
    await this.#list.refresh(signal, this.#index);
  }

  /** A large map costs the broker time: the longer it took, the later it is requested again. */
  async #refreshMap(signal: AbortSignal): Promise<void> {
    if (performance.now() < this.#nextMapRefresh || this.#job === undefined) return;
    const first = numberIn(this.#route.query.get("first"));
    const last = numberIn(this.#route.query.get("last"));
    const window = { ...(first === undefined ? {} : { first }), ...(last === undefined ? {} : { last }) };
    const began = performance.now();
    const answer = await ask(
      "taskMap",
      { job: this.#id, cells: this.#map.cellCount, ...window },
      { signal, shared: true },
    );
    this.#map.update(answer, this.#index);
    const usage = await ask("usage", { job: this.#id }, { signal, shared: true });
    const took = performance.now() - began;
    const pause = Math.min(60_000, took * 10);
    this.#nextMapRefresh = performance.now() + (this.#job.ended === undefined ? pause : Math.max(10_000, pause));
    this.#rate.firstStart = usage.firstStart;
    this.#durations.update(usage);
  }

  /** Of a job that waits as a whole. */
  async #refreshWhy({ state, counters }: Job, signal: AbortSignal): Promise<void> {
    const waits = counters.waiting > 0 && counters.running === 0;
    const { reason } = waits ? await ask("waiting", { job: this.#id, limit: 1 }, { signal, shared: true }) : {};
    set(this.#why, "hidden", reason === undefined);
    if (reason !== undefined) setText(this.#why, `Why is it ${state}? ${sentence(reason)}`);
  }

  #show(job: Job): void {
    setText(this.#name, `${job.id} ${job.name}`);
    document.title = `${job.id} ${job.name} · laboro`;
    setBadge(this.#state, job.state);
    setText(this.#recipe, commandOf(job));
    if (job.recipe.kind === "script" && this.#script.hidden) {
      this.#script.hidden = false;
      this.#script.append(...scriptOf(this.#id, job.recipe.contentBytes));
    }
    this.#rate.add(job);
    setChildren(this.#facts, ...factsOf(job, this.#rate));
    this.#bar.update(job.counters, job.count);
    setChildren(this.#counts, ...countsOf(job));
    setChildren(this.#tabs, ...LISTED_STATES.map((one) => this.#tab(job, one)));
    this.#showActions(job);
    if (this.#panel === undefined) this.#showSide();
    if (document.activeElement !== this.#find) this.#find.value = this.#route.query.get("entry") ?? "";
  }

  #listedState({ counters }: Job): ListedState {
    const wanted = this.#route.query.get("show");
    const asked = LISTED_STATES.find((one) => one === wanted);
    if (asked !== undefined) return asked;
    return LISTED_STATES.find((one) => counters[one] > 0) ?? "failed";
  }

  #tab(job: Job, shown: ListedState): HTMLElement {
    const current = this.#listedState(job) === shown ? "true" : undefined;
    return h(
      "a",
      { href: withQuery(this.#route, { show: shown }), "aria-current": current },
      shown,
      " ",
      h("b", {}, count(job.counters[shown])),
    );
  }

  #openTask(number: number): void {
    const { query } = this.#route;
    this.#context.navigate(address(["jobs", this.#id, "tasks", number], Object.fromEntries(query)));
  }

  #jumped(event: SubmitEvent): void {
    event.preventDefault();
    const number = numberIn(this.#jump.value);
    if (number !== undefined) this.#openTask(number);
  }

  #showSide(): void {
    const index = this.#index;
    if (index !== undefined && this.#panel?.index === index) return;
    this.#panel?.close();
    this.#panel = undefined;
    const alone = this.#number === undefined || this.#job === undefined;
    this.#tasks.classList.toggle("alone", alone);
    if (alone || this.#job === undefined) {
      setChildren(this.#side);
    } else if (index === undefined) {
      setChildren(
        this.#side,
        h("p", { class: "panel empty" }, `Job ${this.#id} has ${tasksText(this.#job)}, not ${this.#number}.`),
      );
    } else {
      this.#panel = new TaskPanel(this.#context, this.#job, index, () =>
        address(["jobs", this.#id], Object.fromEntries(this.#route.query)),
      );
      setChildren(this.#side, this.#panel.element);
    }
  }

  #showActions(job: Job): void {
    const open = job.ended === undefined;
    const again = job.counters.failed + job.counters.cancelled;
    const wanted = [
      open && !job.held && isAllowed(this.#context, "hold") && "hold",
      open && job.held && isAllowed(this.#context, "release") && "release",
      open && job.open === true && isAllowed(this.#context, "close") && "close",
      again > 0 && isAllowed(this.#context, "rerun") && "rerun",
      open && isAllowed(this.#context, "cancel") && "cancel",
    ].filter((one) => one !== false);
    if (this.#actions.dataset.shown === wanted.join()) return;
    this.#actions.dataset.shown = wanted.join();
    const buttons: Readonly<Record<string, () => HTMLElement>> = {
      hold: () => h("button", { class: "button", onclick: () => void this.#hold() }, "Hold"),
      release: () => h("button", { class: "button main", onclick: () => void this.#release() }, "Release"),
      close: () => h("button", { class: "button", onclick: () => void this.#close() }, "Close"),
      rerun: () => h("button", { class: "button", onclick: () => void this.#rerun() }, "Rerun failed"),
      cancel: () => h("button", { class: "button destructive", onclick: () => void this.#cancel() }, "Cancel"),
    };
    setChildren(this.#actions, ...wanted.map((one) => buttons[one]?.()));
  }

  async #hold(): Promise<void> {
    const { waiting = 0, running = 0 } = this.#job?.counters ?? {};
    const answer = await confirmDialog({
      title: `Hold job ${this.#id}?`,
      text: `None of its ${plural(waiting, "waiting task")} is started until it is released. ${running === 0 ? "" : `The ${plural(running, "running task")} may finish.`}`,
      confirmLabel: "Hold job",
    });
    if (answer !== undefined)
      await runAction(this.#context, "hold", { job: this.#id }, () => `job ${this.#id} is held`);
  }

  async #release(): Promise<void> {
    const answer = await confirmDialog({
      title: `Release job ${this.#id}?`,
      text: `Its ${plural(this.#job?.counters.waiting ?? 0, "waiting task")} may start again.`,
      confirmLabel: "Release job",
    });
    if (answer !== undefined)
      await runAction(this.#context, "release", { job: this.#id }, () => `job ${this.#id} is released`);
  }

  async #close(): Promise<void> {
    const answer = await confirmDialog({
      title: `Close job ${this.#id}?`,
      text: "It takes no more tasks, and ends with its last one.",
      confirmLabel: "Close job",
    });
    if (answer !== undefined)
      await runAction(this.#context, "close", { job: this.#id }, () => `job ${this.#id} takes no more tasks`);
  }

  async #rerun(): Promise<void> {
    const { failed = 0, cancelled = 0 } = this.#job?.counters ?? {};
    const what = [
      failed > 0 && `${plural(failed, "task")} that failed`,
      cancelled > 0 && `${plural(cancelled, "task")} that ${cancelled === 1 ? "was" : "were"} cancelled`,
    ];
    const answer = await confirmDialog({
      title: `Rerun the tasks of job ${this.#id} that did not succeed?`,
      text: `${what.filter(Boolean).join(" and ")} will run again. Their results so far become earlier attempts.`,
      confirmLabel: "Run again",
    });
    if (answer === undefined) return;
    await runAction(
      this.#context,
      "rerun",
      { job: this.#id },
      ({ count: many }) => `${plural(many, "task")} of job ${this.#id} will run again`,
    );
  }

  async #cancel(): Promise<void> {
    const { waiting = 0, running = 0 } = this.#job?.counters ?? {};
    const reason = await confirmDialog({
      title: `Cancel job ${this.#id}?`,
      text: `${plural(waiting, "waiting task")} will not run, and ${plural(running, "task")} at workers will be stopped. Ended tasks do not change.`,
      confirmLabel: "Cancel job",
      destructive: true,
      reasonLabel: "Reason (optional)",
    });
    if (reason === undefined) return;
    await runAction(
      this.#context,
      "cancel",
      { job: this.#id, ...(reason === "" ? {} : { reason }) },
      () => `job ${this.#id} is cancelled`,
    );
  }
}

const STATES = ["succeeded", "failed", "cancelled", "running", "waiting"] as const;

function countsOf(job: Job): Child[] {
  return STATES.map((name) =>
    h(
      "li",
      { class: job.counters[name] === 0 ? "zero" : undefined },
      h("i", { class: `swatch swatch-${name}` }),
      `${name} `,
      h("b", {}, count(job.counters[name])),
      h("span", { class: "muted" }, ` ${percent(job.counters[name], job.count)}`),
    ),
  );
}
