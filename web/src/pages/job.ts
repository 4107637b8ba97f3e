/** One job: how far it is, a picture of its tasks, a list of those that matter most, and one of them with its output. */
import { type Answer, ask, Refused } from "../api.js";
import { act, type Desk, type MakePage, may, type Page } from "../desk.js";
import { type Child, fill, h, write } from "../dom.js";
import { ago, count, duration, moment, percent, plural, size } from "../format.js";
import { badge, setBadge } from "../parts/badge.js";
import { ProgressBar } from "../parts/progress.js";
import { question } from "../parts/question.js";
import { SHOWN, type Shown, TaskList } from "../parts/task-list.js";
import { mapLegend, TaskMap } from "../parts/task-map.js";
import { TaskPanel } from "../parts/task-panel.js";
import { address, changed, numberIn, type Place } from "../place.js";
import { notFoundPage } from "./not-found.js";

type Job = Answer<"job">;

export const jobPage: MakePage = (place, desk) => {
  const id = numberIn(place.path[1]);
  return id === undefined ? notFoundPage(place, desk) : new JobPage(id, place, desk);
};

class JobPage implements Page {
  readonly title: string;
  readonly element: HTMLElement;
  readonly #id: number;
  readonly #desk: Desk;
  readonly #name = h("h1", {}, "…");
  readonly #state = badge("waiting");
  readonly #actions = h("div", { class: "actions" });
  readonly #recipe = h("pre", { class: "recipe" });
  readonly #facts = h("dl", { class: "facts" });
  readonly #bar = new ProgressBar();
  readonly #counts = h("ul", { class: "counts" });
  readonly #map: TaskMap;
  readonly #tabs = h("nav", { class: "chips", "aria-label": "Which tasks" });
  readonly #list: TaskList;
  readonly #side = h("div", { class: "job-task" });
  readonly #jump = h("input", {
    type: "number",
    min: 0,
    step: 1,
    placeholder: "Task",
    "aria-label": "Go to task",
    class: "search short",
  });
  #panel: TaskPanel | undefined;
  #place: Place;
  #job: Job | undefined;
  #mapAgain = 0;
  readonly #pace = new Pace();

  constructor(id: number, place: Place, desk: Desk) {
    this.#id = id;
    this.#desk = desk;
    this.#place = place;
    this.title = `Job ${id}`;
    this.#map = new TaskMap({
      openTask: (index) => this.#openTask(index),
      look: (window) => {
        this.#mapAgain = 0;
        desk.go(changed(this.#place, { first: window?.first, last: window?.last }));
      },
    });
    this.#list = new TaskList(
      id,
      "failed",
      (index) => this.#openTask(index),
      () => desk.again(),
    );
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
        this.#recipe,
        this.#facts,
        this.#bar.element,
        this.#counts,
      ),
      h("section", { class: "panel", "aria-label": "Picture of the tasks" }, this.#map.element, mapLegend()),
      h(
        "div",
        { class: "job-tasks" },
        h(
          "section",
          { class: "panel flush", "aria-label": "Tasks" },
          h("div", { class: "list-bar" }, this.#tabs, h("span", { class: "gap" }), jump),
          this.#list.element,
        ),
        this.#side,
      ),
    );
    this.#showSide();
  }

  get #task(): number | undefined {
    return this.#place.path[2] === "tasks" ? numberIn(this.#place.path[3]) : undefined;
  }

  moved(place: Place): boolean {
    if (place.path[0] !== "jobs" || place.path[1] !== String(this.#id)) return false;
    const windowed = (one: Place): string => `${one.query.get("first")} ${one.query.get("last")}`;
    if (windowed(place) !== windowed(this.#place)) this.#mapAgain = 0;
    this.#place = place;
    this.#showSide();
    return true;
  }

  close(): void {
    this.#map.close();
    this.#list.close();
    this.#panel?.close();
  }

  async look(signal: AbortSignal): Promise<void> {
    const shared = { signal, shared: true };
    try {
      this.#job = await ask("job", { job: this.#id }, shared);
    } catch (cause) {
      if (!(cause instanceof Refused) || cause.status !== 404) throw cause;
      fill(
        this.element,
        h("h1", {}, `There is no job ${this.#id}`),
        h("p", {}, h("a", { href: address(["jobs"]) }, "All jobs")),
      );
      this.look = async () => {};
      return;
    }
    this.#show(this.#job);
    const panel = this.#panel;
    if (panel !== undefined) await panel.look(signal);
    await this.#lookAtMap(signal);
    this.#list.show(this.#shown(this.#job));
    await this.#list.look(signal, this.#task);
  }

  /** A large picture costs the broker time: the longer it took, the later it is asked for again. */
  async #lookAtMap(signal: AbortSignal): Promise<void> {
    if (performance.now() < this.#mapAgain || this.#job === undefined) return;
    const first = numberIn(this.#place.query.get("first"));
    const last = numberIn(this.#place.query.get("last"));
    const window = { ...(first === undefined ? {} : { first }), ...(last === undefined ? {} : { last }) };
    const began = performance.now();
    const answer = await ask(
      "taskMap",
      { job: this.#id, cells: this.#map.wanted, ...window },
      { signal, shared: true },
    );
    const took = performance.now() - began;
    this.#mapAgain = performance.now() + (this.#job.ended === undefined ? Math.min(30_000, took * 10) : 10_000);
    this.#map.update(answer, this.#task);
  }

  #show(job: Job): void {
    write(this.#name, `${job.id} ${job.name}`);
    document.title = `${job.id} ${job.name} · laboro`;
    setBadge(this.#state, job.state);
    write(this.#recipe, job.recipe.summary);
    this.#pace.add(job);
    fill(this.#facts, ...factsOf(job, this.#pace.left(job)));
    this.#bar.update(job.counters, job.count);
    fill(this.#counts, ...countsOf(job));
    fill(this.#tabs, ...SHOWN.map((one) => this.#tab(job, one)));
    this.#jump.max = String(job.count - 1);
    this.#showActions(job);
    if (this.#panel === undefined) this.#showSide();
  }

  #shown({ counters }: Job): Shown {
    const wanted = this.#place.query.get("show");
    const asked = SHOWN.find((one) => one === wanted);
    if (asked !== undefined) return asked;
    return SHOWN.find((one) => counters[one] > 0) ?? "failed";
  }

  #tab(job: Job, shown: Shown): HTMLElement {
    const current = this.#shown(job) === shown ? "true" : undefined;
    return h(
      "a",
      { href: changed(this.#place, { show: shown }), "aria-current": current },
      shown,
      " ",
      h("b", {}, count(job.counters[shown])),
    );
  }

  #openTask(index: number): void {
    const { query } = this.#place;
    this.#desk.go(address(["jobs", this.#id, "tasks", index], Object.fromEntries(query)));
  }

  #jumped(event: SubmitEvent): void {
    event.preventDefault();
    const index = numberIn(this.#jump.value);
    if (index !== undefined) this.#openTask(index);
  }

  #showSide(): void {
    const index = this.#task;
    if (index !== undefined && this.#panel?.index === index) return;
    this.#panel?.close();
    this.#panel = undefined;
    if (index === undefined || this.#job === undefined) {
      fill(
        this.#side,
        h(
          "p",
          { class: "panel empty" },
          "Choose a task, in the picture or in the list, to see where it is, why it waits, and what it wrote.",
        ),
      );
    } else if (index >= this.#job.count) {
      fill(
        this.#side,
        h("p", { class: "panel empty" }, `Job ${this.#id} has tasks 0 to ${count(this.#job.count - 1)}.`),
      );
    } else {
      this.#panel = new TaskPanel(this.#desk, this.#id, index, this.#job.hasEntries);
      fill(this.#side, this.#panel.element);
    }
  }

  #showActions(job: Job): void {
    const open = job.ended === undefined;
    const again = job.counters.failed + job.counters.cancelled;
    const wanted = [
      open && !job.held && may(this.#desk, "hold") && "hold",
      open && job.held && may(this.#desk, "release") && "release",
      again > 0 && may(this.#desk, "rerun") && "rerun",
      open && may(this.#desk, "cancel") && "cancel",
    ].filter((one) => one !== false);
    if (this.#actions.dataset.shown === wanted.join()) return;
    this.#actions.dataset.shown = wanted.join();
    const buttons: Readonly<Record<string, () => HTMLElement>> = {
      hold: () => h("button", { class: "button", onclick: () => void this.#hold() }, "Hold"),
      release: () => h("button", { class: "button main", onclick: () => void this.#release() }, "Release"),
      rerun: () => h("button", { class: "button", onclick: () => void this.#rerun() }, "Rerun failed"),
      cancel: () => h("button", { class: "button grave", onclick: () => void this.#cancel() }, "Cancel"),
    };
    fill(this.#actions, ...wanted.map((one) => buttons[one]?.()));
  }

  async #hold(): Promise<void> {
    const { waiting = 0, running = 0 } = this.#job?.counters ?? {};
    const answer = await question({
      title: `Hold job ${this.#id}?`,
      text: `None of its ${plural(waiting, "waiting task")} is handed out until it is released. ${running === 0 ? "" : `The ${plural(running, "task")} at workers go on.`}`,
      yes: "Hold job",
    });
    if (answer !== undefined) await act(this.#desk, "hold", { job: this.#id }, () => `job ${this.#id} is held`);
  }

  async #release(): Promise<void> {
    const answer = await question({
      title: `Release job ${this.#id}?`,
      text: `Its ${plural(this.#job?.counters.waiting ?? 0, "waiting task")} may be handed out again.`,
      yes: "Release job",
    });
    if (answer !== undefined) await act(this.#desk, "release", { job: this.#id }, () => `job ${this.#id} goes on`);
  }

  async #rerun(): Promise<void> {
    const { failed = 0, cancelled = 0 } = this.#job?.counters ?? {};
    const what = [
      failed > 0 && `${plural(failed, "task")} that failed`,
      cancelled > 0 && `${plural(cancelled, "task")} that ${cancelled === 1 ? "was" : "were"} cancelled`,
    ];
    const answer = await question({
      title: `Run again what has not succeeded in job ${this.#id}?`,
      text: `${what.filter(Boolean).join(" and ")} will wait again. Their results so far become earlier attempts.`,
      yes: "Run again",
    });
    if (answer === undefined) return;
    await act(
      this.#desk,
      "rerun",
      { job: this.#id },
      ({ count: many }) => `${plural(many, "task")} of job ${this.#id} wait again`,
    );
  }

  async #cancel(): Promise<void> {
    const { waiting = 0, running = 0 } = this.#job?.counters ?? {};
    const reason = await question({
      title: `Cancel job ${this.#id}?`,
      text: `${plural(waiting, "waiting task")} will not run, and ${plural(running, "task")} at workers will be ended. What has ended stays as it is.`,
      yes: "Cancel job",
      grave: true,
      reason: "Why (for those who look later)",
    });
    if (reason === undefined) return;
    await act(
      this.#desk,
      "cancel",
      { job: this.#id, ...(reason === "" ? {} : { reason }) },
      () => `job ${this.#id} is cancelled`,
    );
  }
}

const PACE_MS = 60_000;
const PACE_LEAST_MS = 5_000;
const COUNTED = ["succeeded", "failed", "cancelled", "running", "waiting"] as const;

function countsOf(job: Job): Child[] {
  return COUNTED.map((name) =>
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

/** How fast a job has ended tasks while it was looked at, and so how long it will take yet. */
class Pace {
  readonly #seen: { readonly at: number; readonly ended: number }[] = [];

  add({ counters }: Job): void {
    const ended = counters.succeeded + counters.failed + counters.cancelled;
    this.#seen.push({ at: Date.now(), ended });
    while ((this.#seen[0]?.at ?? 0) < Date.now() - PACE_MS) this.#seen.shift();
  }

  left({ counters }: Job): number | undefined {
    const [first] = this.#seen;
    const last = this.#seen.at(-1);
    if (first === undefined || last === undefined || last.at - first.at < PACE_LEAST_MS) return undefined;
    const perMs = (last.ended - first.ended) / (last.at - first.at);
    return perMs > 0 ? (counters.waiting + counters.running) / perMs : undefined;
  }
}

function factsOf(job: Job, leftMs: number | undefined): Child[] {
  const { limits, needs, tags, after, recipe } = job;
  const facts: Child[] = [];
  const add = (name: string, value: Child): void => {
    facts.push(h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  };
  add("Tasks", count(job.count));
  add("Submitted", h("span", { title: moment(job.created) }, ago(job.created)));
  if (job.ended !== undefined) add("Took", duration(job.ended - job.created));
  else if (leftMs !== undefined) add("Left", `about ${duration(leftMs)}`);
  add("Kind", recipe.kind);
  add("Pool", job.pool);
  if (job.service !== undefined) add("Service", job.service);
  if (job.priority !== 0) add("Priority", job.priority);
  const wants = Object.entries(needs).filter(([name, amount]) => name !== "slots" || amount !== 1);
  if (wants.length > 0) add("Needs", wants.map(([name, amount]) => `${amount} ${name}`).join(", "));
  if (tags.length > 0) add("Tags", tags.join(", "));
  if (limits.retries > 0) add("Retries", limits.retries);
  if (limits.timeLimitMs !== undefined) add("Time limit", duration(limits.timeLimitMs));
  if (limits.maxFails !== undefined) add("Stops after", plural(limits.maxFails, "failure"));
  if (limits.maxRunning !== undefined) add("At most", `${count(limits.maxRunning)} at once`);
  if (recipe.stdinBytes !== undefined) add("Input", size(recipe.stdinBytes));
  if (after.length > 0) {
    add(
      "After",
      h(
        "span",
        {},
        ...after.flatMap(({ job: other }, at) => [
          at > 0 ? ", " : "",
          h("a", { href: address(["jobs", other]) }, `job ${other}`),
        ]),
      ),
    );
  }
  if (job.reason !== undefined) add("Cancelled because", job.reason);
  return facts;
}
