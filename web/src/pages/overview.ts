/** The overview: problems first, then current figures and charts. */
import { type Answer, ask } from "../api.js";
import { h, set, setText, updateRows } from "../dom.js";
import { ago, brief, count, duration, latency, moment, plural, rate, size } from "../format.js";
import type { PageFactory } from "../page-context.js";
import { Chart } from "../parts/chart.js";
import { jobTable } from "../parts/job-table.js";
import { Meter } from "../parts/progress-bar.js";
import { address, withQuery } from "../route.js";
import { eventText } from "./event-text.js";

type Overview = Answer<"overview">;
type Problem = Overview["problems"][number];
type HistoryPoints = Answer<"history">;

const OPEN_JOBS = 8;
/** Points of the hour come every five seconds. */
const HISTORY_REFRESH_MS = 5_000;

export const overviewPage: PageFactory = (route) => {
  const { query } = route;
  const span = query.get("span") === "day" ? "day" : "hour";
  const problems = new Problems();
  const tiles = new Tiles();
  const charts = new Charts();
  const jobs = jobTable("Open jobs", "No job is open.");
  const recentEvents = h("ol", { class: "recent-events" });
  const nothing = h("p", { class: "empty" }, "Nothing yet.");
  const spans = (["hour", "day"] as const).map((one) =>
    h(
      "a",
      {
        href: withQuery(route, { span: one === "hour" ? undefined : one }),
        "aria-current": one === span ? "true" : undefined,
      },
      `last ${one}`,
    ),
  );
  const element = h(
    "div",
    { class: "overview" },
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Overview"),
      h("span", { class: "gap" }),
      h("nav", { class: "chips", "aria-label": "Time range of the charts" }, ...spans),
    ),
    problems.element,
    tiles.element,
    charts.element,
    h(
      "div",
      { class: "two" },
      h(
        "section",
        { class: "panel" },
        h("h2", {}, "Open jobs ", h("a", { href: address(["jobs"]), class: "more" }, "all jobs")),
        jobs.element,
      ),
      h("section", { class: "panel" }, h("h2", {}, "Recent events"), recentEvents, nothing),
    ),
  );
  let historyAt = 0;
  return {
    title: "Overview",
    element,
    refresh: async (signal) => {
      const shared = { signal, shared: true };
      const now = await ask("overview", {}, shared);
      problems.update(now.problems);
      tiles.update(now);
      updateRows(
        recentEvents,
        now.recentEvents,
        ({ id }) => id,
        eventRow,
        (row, event) => setText(row.lastElementChild ?? row, ago(event.at)),
      );
      set(nothing, "hidden", now.recentEvents.length > 0);
      if (Date.now() - historyAt >= HISTORY_REFRESH_MS) {
        historyAt = Date.now();
        charts.update(await ask("history", { span }, shared));
      }
      jobs.update((await ask("jobs", { state: ["open"], limit: OPEN_JOBS }, shared)).jobs);
    },
    close: () => charts.close(),
  };
};

function eventRow(event: Overview["recentEvents"][number]): HTMLLIElement {
  const { text, href, bad } = eventText(event);
  const words = href === undefined ? h("span", {}, text) : h("a", { href }, text);
  return h("li", { class: bad ? "bad" : undefined }, words, h("time", { title: moment(event.at) }));
}

class Problems {
  readonly element = h("section", { class: "problems", "aria-label": "Problems" });
  readonly #list = h("ul");
  readonly #none = h("p", { class: "fine" }, h("i", { class: "dot good" }), "No problems.");

  constructor() {
    this.element.append(this.#none, this.#list);
  }

  update(problems: readonly Problem[]): void {
    set(this.#none, "hidden", problems.length > 0);
    set(this.#list, "hidden", problems.length === 0);
    updateRows(this.#list, problems, keyOfProblem, problemRow, showProblem);
  }
}

const keyOfProblem = ({ kind, job, worker, service, since }: Problem): string =>
  [kind, job, worker, service, since].join(" ");

function problemRow({ kind, critical, job, worker, service, task }: Problem): HTMLLIElement {
  const href =
    job !== undefined
      ? address(task === undefined ? ["jobs", job] : ["jobs", job, "tasks", task])
      : worker !== undefined
        ? address(["workers"], { find: worker })
        : service !== undefined
          ? address(["services"])
          : undefined;
  const words = href === undefined ? h("span", { class: "text" }) : h("a", { class: "text", href });
  return h(
    "li",
    { class: critical ? "critical" : undefined },
    h("i", { class: `dot ${critical ? "bad" : "warn"}` }),
    h("span", { class: "kind" }, kind.replace("-", " ")),
    words,
    h("span", { class: "since muted" }),
  );
}

function showProblem(row: HTMLLIElement, { text, since, omitted, kind, job }: Problem): void {
  const words = row.querySelector(".text");
  const others = omitted === undefined ? "" : `, and ${plural(omitted, "more", "more")} like it`;
  if (words !== null) setText(words, `${job !== undefined && kind !== "job-stuck" ? `${job} ` : ""}${text}${others}`);
  const time = row.querySelector(".since");
  if (time !== null) setText(time, since === undefined ? "" : ago(since));
}

interface Tile {
  readonly label: string;
  readonly value: HTMLElement;
  readonly note: HTMLElement;
  readonly href?: string;
}

const tile = (label: string, href?: string): Tile => ({
  label,
  value: h("span", { class: "value" }, "–"),
  note: h("span", { class: "note" }, "\u00a0"),
  ...(href === undefined ? {} : { href }),
});

class Tiles {
  readonly #running = tile("Running", address(["jobs"], { state: "running" }));
  readonly #waiting = tile("Waiting", address(["jobs"], { state: "open" }));
  readonly #throughput = tile("Throughput");
  readonly #latency = tile("Queue latency");
  readonly #slots = tile("Slots in use", address(["workers"], { order: "busy" }));
  readonly #workers = tile("Workers", address(["workers"]));
  readonly #requests = tile("Requests", address(["services"]));
  readonly #disk = tile("Free disk");
  readonly #meter = new Meter("Slots in use");
  readonly element: HTMLElement;

  constructor() {
    const all = [
      this.#running,
      this.#waiting,
      this.#throughput,
      this.#latency,
      this.#slots,
      this.#workers,
      this.#requests,
      this.#disk,
    ];
    this.element = h("section", { class: "tiles", "aria-label": "Figures" });
    for (const { label, value, note, href } of all) {
      const name = href === undefined ? h("span", { class: "label" }, label) : h("a", { class: "label", href }, label);
      this.element.append(h("div", { class: "tile" }, name, value, note));
    }
    this.#slots.note.replaceWith(this.#meter.element);
  }

  update({ status, rate: rates, waitMs, disk, at }: Overview): void {
    const { tasks, jobs, slots, workers, requests } = status;
    const used = slots.total - slots.free;
    show(this.#running, brief(tasks.running), `tasks of ${plural(jobs.running, "job")}`);
    show(
      this.#waiting,
      brief(tasks.waiting),
      (["held", "blocked", "delayed"] as const)
        .filter((state) => jobs[state] > 0)
        .map((state) => `${brief(jobs[state])} ${state}`)
        .join(", ") || `tasks of ${plural(jobs.waiting + jobs.running, "job")}`,
    );
    show(
      this.#throughput,
      rate(rates.succeeded + rates.failed),
      rates.failed > 0 ? `${rate(rates.failed)} failed` : "none failed",
    );
    show(this.#latency, duration(waitMs.oldest), `max; p50 ${latency(waitMs.p50)}`);
    setText(this.#slots.value, `${brief(used)} / ${brief(slots.total)}`);
    this.#meter.update(used, slots.total);
    show(
      this.#workers,
      brief(workers.connected),
      [
        workers.disconnected > 0 && `${count(workers.disconnected)} disconnected`,
        workers.draining > 0 && `${count(workers.draining)} draining`,
      ]
        .filter(Boolean)
        .join(", ") || "all connected",
    );
    show(
      this.#requests,
      rate(rates.requestsCompleted),
      (["waiting", "running"] as const)
        .filter((state) => requests[state] > 0)
        .map((state) => `${brief(requests[state])} ${state}`)
        .join(", ") || "none waiting",
    );
    show(this.#disk, disk === undefined ? "–" : size(disk.free), `up ${duration(at - status.started)}`);
  }
}

function show({ value, note }: Tile, figure: string, words: string): void {
  setText(value, figure);
  setText(note, words);
}

class Charts {
  readonly #throughput = new Chart({
    title: "Throughput",
    format: rate,
    series: [
      { label: "succeeded", colour: "succeeded", filled: true },
      { label: "failed", colour: "failed" },
    ],
  });
  readonly #latency = new Chart({
    title: "Queue latency",
    format: latency,
    series: [
      { label: "p50", colour: "running" },
      { label: "p95", colour: "accent" },
      { label: "max", colour: "held" },
    ],
  });
  readonly #slots = new Chart({
    title: "Slots",
    format: (value) => brief(Math.round(value)),
    series: [
      { label: "in use", colour: "accent", filled: true },
      { label: "total", colour: "waiting", dashed: true },
    ],
  });
  readonly #requests = new Chart({
    title: "Requests",
    format: rate,
    series: [
      { label: "completed", colour: "running", filled: true },
      { label: "failed", colour: "failed" },
    ],
  });
  readonly element = h("div", { class: "charts" });

  constructor() {
    this.element.append(...this.#all().map((chart) => chart.element));
  }

  update(history: HistoryPoints): void {
    const { at, stepMs, waitP50, waitP95, oldestWait, slots, slotsUsed } = history;
    const perSecond = (counts: readonly number[]): number[] => counts.map((one) => (one * 1000) / stepMs);
    this.#throughput.update(at, [perSecond(history.succeeded), perSecond(history.failed)], stepMs);
    this.#latency.update(at, [waitP50, waitP95, oldestWait], stepMs);
    this.#slots.update(at, [slotsUsed, slots], stepMs);
    this.#requests.update(at, [perSecond(history.requestsCompleted), perSecond(history.requestsFailed)], stepMs);
  }

  close(): void {
    for (const chart of this.#all()) chart.close();
  }

  #all(): readonly Chart[] {
    return [this.#throughput, this.#latency, this.#slots, this.#requests];
  }
}
