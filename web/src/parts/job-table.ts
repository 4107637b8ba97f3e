/** The table of jobs on the overview and on the page of jobs. */
import type { Answer } from "../api.js";
import { h, setText } from "../dom.js";
import { ago, brief, count, duration, percent } from "../format.js";
import { address } from "../route.js";
import { badge, setBadge } from "./badge.js";
import { StackedBar } from "./progress-bar.js";
import type { Selection } from "./selection.js";
import { type Column, Table } from "./table.js";

type JobView = Answer<"jobs">["jobs"][number];

const bars = new WeakMap<Element, StackedBar>();

const done = ({ counters }: JobView): number => counters.succeeded + counters.failed + counters.cancelled;

const link: Column<JobView> = {
  head: "Job",
  wide: true,
  make: ({ id }) =>
    h(
      "a",
      { href: address(["jobs", id]), class: "job-link" },
      h("span", { class: "id" }, `${id}`),
      h("span", { class: "name" }),
    ),
  show: (cell, { name, recipe }) => {
    const text = cell.querySelector(".name");
    if (text !== null) setText(text, name);
    cell.title = recipe.summary;
  },
};

const state: Column<JobView> = {
  head: "State",
  make: (job) => badge(job.state),
  show: (cell, job) => {
    if (cell.firstElementChild !== null) setBadge(cell.firstElementChild, job.state);
  },
};

const progress: Column<JobView> = {
  head: "Progress",
  wide: true,
  make: () => {
    const bar = new StackedBar();
    bars.set(bar.element, bar);
    return bar.element;
  },
  show: (cell, job) => {
    const element = cell.firstElementChild;
    if (element !== null) bars.get(element)?.update(job.counters, job.count);
  },
};

const number = (head: string, value: (job: JobView) => number, minor?: true): Column<JobView> => ({
  head,
  number: true,
  ...(minor === undefined ? {} : { minor }),
  show: (cell, job) => {
    const found = value(job);
    setText(cell, found === 0 ? "–" : brief(found));
    cell.classList.toggle("zero", found === 0);
    cell.classList.toggle("bad", found > 0 && head === "Failed");
  },
});

const COLUMNS: readonly Column<JobView>[] = [
  link,
  state,
  progress,
  {
    head: "Done",
    number: true,
    show: (cell, job) => {
      setText(cell, percent(done(job), job.count));
      cell.title = `${count(done(job))} of ${count(job.count)}`;
    },
  },
  number("Tasks", (job) => job.count, true),
  number("Failed", ({ counters }) => counters.failed, true),
  number("Running", ({ counters }) => counters.running, true),
  number("Waiting", ({ counters }) => counters.waiting, true),
  {
    head: "Duration",
    number: true,
    minor: true,
    show: (cell, { created, ended }) => setText(cell, duration((ended ?? Date.now()) - created)),
  },
  {
    head: "Submitted",
    number: true,
    minor: true,
    show: (cell, { created }) => {
      setText(cell, ago(created));
      cell.title = new Date(created).toLocaleString();
    },
  },
];

export function jobTable(caption: string, empty: string, selection?: Selection<number>): Table<JobView> {
  const box: Column<JobView>[] =
    selection === undefined
      ? []
      : [
          {
            head: selection.boxOfAll(() => table.items.map(({ id }) => id)),
            make: ({ id }) => selection.box(id, `job ${id}`),
            show: () => {},
            minor: true,
          },
        ];
  const table = new Table<JobView>(caption, [...box, ...COLUMNS], ({ id }) => id, empty);
  return table;
}
