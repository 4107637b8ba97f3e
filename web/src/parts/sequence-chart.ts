/** A sequence chart: the peer left, the broker right, each message an arrow with its name; fields when opened. */
import type { Answer } from "../api.js";
import { h, set, setText } from "../dom.js";
import { clockMs, plural } from "../format.js";

type TracedConnection = Answer<"connection">;
type Message = TracedConnection["messages"][number];

const MAX_MESSAGES = 500;
const SUMMARY = 120;

export class SequenceChart {
  readonly element: HTMLElement;
  readonly id: number;
  readonly #peer = h("span", { class: "end" }, "…");
  readonly #status = h("span", { class: "muted" });
  readonly #list = h("ol", { class: "sequence", tabindex: 0, "aria-label": "Messages, the latest last" });
  readonly #heartbeats = h("input", { type: "checkbox", id: "heartbeats" });
  readonly #pause = h("button", { class: "button small" }, "Pause");
  last = 0;
  paused = false;
  #total = 0;

  constructor(id: number) {
    this.id = id;
    this.#pause.addEventListener("click", () => {
      this.paused = !this.paused;
      setText(this.#pause, this.paused ? "Resume" : "Pause");
    });
    this.#heartbeats.addEventListener("change", () =>
      this.#list.classList.toggle("with-heartbeats", this.#heartbeats.checked),
    );
    this.element = h(
      "section",
      { class: "panel", "aria-label": "Messages" },
      h(
        "div",
        { class: "title" },
        this.#status,
        h("span", { class: "gap" }),
        h("label", { class: "check", for: "heartbeats" }, this.#heartbeats, "Heartbeats"),
        this.#pause,
      ),
      h("div", { class: "ends", "aria-hidden": "true" }, this.#peer, h("span", { class: "end" }, "broker")),
      this.#list,
    );
  }

  update(connection: TracedConnection): void {
    setText(this.#peer, connection.peer);
    const atEnd = this.#list.scrollHeight - this.#list.scrollTop - this.#list.clientHeight < 40;
    for (const message of connection.messages) {
      this.last = message.number;
      this.#total++;
      this.#list.append(messageRow(message, connection.peer));
    }
    while (this.#list.childElementCount > MAX_MESSAGES) this.#list.firstElementChild?.remove();
    const status = connection.closed ? "the connection has ended" : "recording";
    setText(
      this.#status,
      this.#total === 0
        ? `${connection.protocol}, ${status}: no messages yet`
        : `${connection.protocol}, ${status}: ${plural(this.#total, "message")}`,
    );
    if (atEnd && connection.messages.length > 0) this.#list.scrollTop = this.#list.scrollHeight;
  }

  setClosed(): void {
    setText(this.#status, "the connection has ended");
  }
}

const isHeartbeat = (name: string): boolean => /beat|ping|pong/i.test(name);

function messageRow({ from, name, fields, at, bytes }: Message, peer: string): HTMLLIElement {
  const members = Object.entries(fields);
  const summary = members.map(([field, value]) => `${field}=${short(value)}`).join("  ");
  const words = from === "peer" ? `${peer} to broker` : `broker to ${peer}`;
  const head = h(
    "summary",
    {},
    h("time", {}, clockMs(at)),
    h(
      "span",
      { class: "arrow" },
      h("span", { class: "hidden" }, `${words}: `),
      h("b", {}, name),
      bytes !== undefined && h("span", { class: "muted" }, ` ${bytes} B`),
    ),
    h("span", { class: "fields muted" }, summary.length > SUMMARY ? `${summary.slice(0, SUMMARY)}…` : summary),
  );
  const list = h("dl", { class: "field-list" });
  for (const [field, value] of members) list.append(h("dt", {}, field), h("dd", { class: "mono" }, formatted(value)));
  const row = h("li", { class: `${from}${isHeartbeat(name) ? " heartbeat" : ""}` }, h("details", {}, head, list));
  set(row, "data-name", name);
  return row;
}

const formatted = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value, null, 1));

function short(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text === undefined ? "" : text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
