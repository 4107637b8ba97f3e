/** Services: request rate, latency, waiting requests, and workers. */
import { type Answer, ask } from "../api.js";
import { h, setText } from "../dom.js";
import { brief, count, latency, rate } from "../format.js";
import type { PageFactory } from "../page-context.js";
import { type Column, Table } from "../parts/table.js";
import { address } from "../route.js";

type Service = Answer<"services">["services"][number];

const figure = (head: string, show: (service: Service) => string, minor?: true): Column<Service> => ({
  head,
  number: true,
  ...(minor === undefined ? {} : { minor }),
  show: (cell, service) => setText(cell, show(service)),
});

const COLUMNS: readonly Column<Service>[] = [
  {
    head: "Service",
    wide: true,
    make: ({ name }) => h("a", { href: address(["workers"], { find: name }) }, name),
    show: () => {},
  },
  { head: "Pool", minor: true, show: (cell, { pool }) => setText(cell, pool) },
  figure("Rate", (one) => rate(one.rate)),
  figure("p50", ({ latencyMs }) => (latencyMs === undefined ? "–" : latency(latencyMs.p50))),
  figure("p99", ({ latencyMs }) => (latencyMs === undefined ? "–" : latency(latencyMs.p99)), true),
  {
    head: "Waiting",
    number: true,
    show: (cell, { waiting, workers }) => {
      setText(cell, brief(waiting));
      cell.classList.toggle("bad", waiting > 0 && workers === 0);
    },
  },
  {
    head: "Workers",
    number: true,
    show: (cell, { workers }) => {
      setText(cell, count(workers));
      cell.classList.toggle("bad", workers === 0);
    },
  },
  figure("Free slots", ({ free, slots }) => `${count(Math.max(0, free))}/${count(slots)}`, true),
  figure("Completed", ({ completed }) => brief(completed), true),
  {
    head: "Failed",
    number: true,
    show: (cell, { failed }) => {
      setText(cell, failed === 0 ? "–" : brief(failed));
      cell.classList.toggle("bad", failed > 0);
    },
  },
];

export const servicesPage: PageFactory = () => {
  const empty = "No worker offers a service, and none was requested recently.";
  const table = new Table<Service>("Services", COLUMNS, ({ name, pool }) => `${pool}\n${name}`, empty);
  return {
    title: "Services",
    element: h(
      "div",
      {},
      h("div", { class: "title" }, h("h1", {}, "Services")),
      h("section", { class: "panel flush" }, table.element),
    ),
    refresh: async (signal) => {
      const { services } = await ask("services", {}, { signal, shared: true });
      table.update([...services].sort((a, b) => b.rate - a.rate || (a.name < b.name ? -1 : 1)));
    },
  };
};
