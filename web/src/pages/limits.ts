/** Named limits: their use, and the jobs whose tasks wait for them. */
import { type Answer, ask } from "../api.js";
import { h, setText } from "../dom.js";
import { brief, count, duration } from "../format.js";
import type { PageFactory } from "../page-context.js";
import { type Column, Table } from "../parts/table.js";
import { address } from "../route.js";

type Limit = Answer<"limits">["limits"][number];

const figure = (head: string, show: (limit: Limit) => string, minor?: true): Column<Limit> => ({
  head,
  number: true,
  ...(minor === undefined ? {} : { minor }),
  show: (cell, limit) => setText(cell, show(limit)),
});

const COLUMNS: readonly Column<Limit>[] = [
  { head: "Limit", wide: true, show: (cell, { name }) => setText(cell, name) },
  figure("Running", ({ used, running }) =>
    running === undefined ? count(used.running) : `${count(used.running)}/${count(running)}`,
  ),
  figure("Starts", ({ used, rate }) =>
    rate === undefined ? "–" : `${brief(used.starts)}/${brief(rate.starts)} in ${duration(rate.intervalMs)}`,
  ),
  figure("Next start", ({ nextMs }) => (nextMs === undefined ? "–" : `in ${duration(nextMs)}`), true),
  figure("Waiting", ({ waiting }) => (waiting === 0 ? "–" : brief(waiting))),
  {
    head: "Jobs that wait",
    show: (cell, { jobs, jobCount }) => {
      const links = jobs.flatMap((job, at) => [
        at > 0 ? ", " : "",
        h("a", { href: address(["jobs", String(job)]) }, job),
      ]);
      cell.replaceChildren(...links, jobCount > jobs.length ? ` and ${brief(jobCount - jobs.length)} more` : "");
    },
  },
];

export const limitsPage: PageFactory = () => {
  const empty = "There are no limits. laboro limit set NAME makes one.";
  const table = new Table<Limit>("Limits", COLUMNS, ({ name }) => name, empty);
  return {
    title: "Limits",
    element: h(
      "div",
      {},
      h("div", { class: "title" }, h("h1", {}, "Limits")),
      h("section", { class: "panel flush" }, table.element),
    ),
    refresh: async (signal) => {
      const { limits } = await ask("limits", {}, { signal, shared: true });
      table.update([...limits].sort((a, b) => b.waiting - a.waiting || (a.name < b.name ? -1 : 1)));
    },
  };
};
