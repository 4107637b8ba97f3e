/** The brokers of the group, where there is one. What is told of each is the broker's affair: every member gets a column. */
import type { MakePage } from "../desk.js";
import { fill, h, write } from "../dom.js";
import { ago, brief } from "../format.js";

type Broker = Readonly<Record<string, unknown>>;

export const brokersPage: MakePage = () => {
  const head = h("tr");
  const body = h("tbody");
  const table = h("table", {}, h("caption", { class: "hidden" }, "Brokers of the group"), h("thead", {}, head), body);
  return {
    title: "Brokers",
    element: h(
      "div",
      {},
      h("div", { class: "title" }, h("h1", {}, "Brokers")),
      h("section", { class: "panel flush" }, h("div", { class: "table" }, table)),
    ),
    look: async (signal) => {
      const response = await fetch("/api/v1/brokers", { signal, headers: { "laboro-look": "shared" } });
      const answer = (await response.json()) as { readonly brokers?: readonly Broker[] };
      const brokers = answer.brokers ?? [];
      const names = [...new Set(brokers.flatMap((one) => Object.keys(one)))];
      fill(head, ...names.map((name) => h("th", { scope: "col" }, inWords(name))));
      fill(body, ...brokers.map((one) => h("tr", {}, ...names.map((name) => cell(name, one[name])))));
    },
  };
};

const inWords = (name: string): string => name.replaceAll(/([A-Z])/g, " $1").toLowerCase();

const TIMES = /^(started|seen|heard|beat|since|at|joined|lastBeat|heartbeat)$/;

function cell(name: string, value: unknown): HTMLTableCellElement {
  const element = h("td");
  if (typeof value === "number" && TIMES.test(name)) write(element, ago(value));
  else if (typeof value === "number") write(element, brief(value));
  else if (typeof value === "boolean") write(element, value ? "yes" : "no");
  else write(element, typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value));
  return element;
}
