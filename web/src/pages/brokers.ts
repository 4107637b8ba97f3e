/** The brokers of the group; a broker without a group lists itself. */
import { type Answer, ask } from "../api.js";
import { h, setText } from "../dom.js";
import { ago, count, duration, latency } from "../format.js";
import type { PageFactory } from "../page-context.js";
import { badge, setBadge } from "../parts/badge.js";
import { type Column, Table } from "../parts/table.js";

type Broker = Answer<"brokers">["brokers"][number];

/** Heartbeats come every few seconds: an older one is marked. */
const LATE_MS = 10_000;

const COLUMNS: readonly Column<Broker>[] = [
  {
    head: "Broker",
    make: ({ name, self }) => h("span", {}, h("b", {}, name), self && h("span", { class: "muted" }, " this one")),
    show: (cell, { identity, pid, host }) => {
      cell.title = `${identity}, process ${pid} on ${host}`;
    },
  },
  {
    head: "State",
    make: ({ state }) => badge(state),
    show: (cell, { state, fallback }) => {
      if (cell.firstElementChild !== null) setBadge(cell.firstElementChild, state);
      cell.title = fallback ? "a fallback: it listens only while no other broker runs" : "";
    },
  },
  { head: "Host", minor: true, show: (cell, { host }) => setText(cell, host) },
  {
    head: "Listeners",
    minor: true,
    show: (cell, { listeners }) => {
      setText(cell, [...new Set(listeners.map(({ name }) => name))].join(", "));
      cell.title = listeners.map(({ url }) => url).join("\n");
    },
  },
  { head: "Workers", number: true, show: (cell, { workers }) => setText(cell, count(workers)) },
  {
    head: "Slots in use",
    number: true,
    show: (cell, { slots }) => setText(cell, `${count(slots.total - slots.free)}/${count(slots.total)}`),
  },
  { head: "Services", number: true, minor: true, show: (cell, { services }) => setText(cell, count(services.length)) },
  { head: "Commit time", number: true, minor: true, show: (cell, { commitMs }) => setText(cell, latency(commitMs)) },
  {
    head: "Last heartbeat",
    number: true,
    show: (cell, { heartbeatAgeMs }) => {
      setText(cell, heartbeatAgeMs < 1_000 ? "now" : `${duration(heartbeatAgeMs)} ago`);
      cell.classList.toggle("bad", heartbeatAgeMs > LATE_MS);
    },
  },
  { head: "Started", number: true, minor: true, show: (cell, { started }) => setText(cell, ago(started)) },
  { head: "Version", number: true, minor: true, show: (cell, { version }) => setText(cell, version) },
];

export const brokersPage: PageFactory = () => {
  const table = new Table<Broker>("Brokers of the group", COLUMNS, ({ identity, epoch }) => `${identity} ${epoch}`, "");
  const alone = h(
    "p",
    { class: "muted", hidden: true },
    "This broker has its own store. Brokers that share a PostgreSQL database are listed here together.",
  );
  return {
    title: "Brokers",
    element: h(
      "div",
      { class: "brokers" },
      h("div", { class: "title" }, h("h1", {}, "Brokers")),
      h("section", { class: "panel flush" }, table.element),
      alone,
    ),
    refresh: async (signal) => {
      const { brokers } = await ask("brokers", {}, { signal, shared: true });
      table.update(brokers);
      alone.hidden = brokers.length !== 1;
    },
  };
};
