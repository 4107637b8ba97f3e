/** Conversations: the connections there are, and of one of them what is said, as a chart of messages both ways. */
import { type Answer, ask, Refused } from "../api.js";
import { type Desk, type MakePage, may, type Page } from "../desk.js";
import { fill, h, rows, set, write } from "../dom.js";
import { count, duration, plural } from "../format.js";
import { Sequence } from "../parts/sequence.js";
import { changed, numberIn, type Place } from "../place.js";
import { later } from "./jobs.js";

type Listed = Answer<"conversations">["conversations"][number];

export const conversationsPage: MakePage = (place, desk) => new ConversationsPage(place, desk);

class ConversationsPage implements Page {
  readonly title = "Conversations";
  readonly element: HTMLElement;
  readonly #desk: Desk;
  readonly #find = h("input", {
    type: "search",
    placeholder: "Protocol, address, name…",
    "aria-label": "Find connections",
    class: "search",
  });
  readonly #many = h("span", { class: "muted" });
  readonly #list = h("ul", { class: "talks" });
  readonly #none = h("p", { class: "empty", hidden: true }, "Nobody is connected.");
  readonly #side = h("div", { class: "talk" });
  #sequence: Sequence | undefined;
  #place: Place;

  constructor(place: Place, desk: Desk) {
    this.#place = place;
    this.#desk = desk;
    this.#find.value = place.query.get("find") ?? "";
    later(this.#find, () => desk.go(changed(this.#place, { find: this.#find.value }), true));
    this.element = h(
      "div",
      { class: "conversations" },
      h("div", { class: "title" }, h("h1", {}, "Conversations"), this.#many, h("span", { class: "gap" }), this.#find),
      h(
        "div",
        { class: "talk-split" },
        h("section", { class: "panel flush", "aria-label": "Connections" }, this.#list, this.#none),
        this.#side,
      ),
    );
    this.#showSide();
  }

  moved(place: Place): boolean {
    if (place.path[0] !== "conversations") return false;
    this.#place = place;
    this.#showSide();
    return true;
  }

  async look(signal: AbortSignal): Promise<void> {
    const find = this.#place.query.get("find") ?? "";
    const { conversations, total } = await ask(
      "conversations",
      { limit: 200, ...(find === "" ? {} : { find }) },
      { signal, shared: true },
    );
    write(
      this.#many,
      total > conversations.length
        ? `the newest ${count(conversations.length)} of ${count(total)}`
        : plural(total, "connection"),
    );
    set(this.#none, "hidden", total > 0);
    const chosen = this.#chosen;
    rows(
      this.#list,
      conversations,
      ({ id }) => id,
      () => h("li", {}, h("a", {}, h("b"), h("span", { class: "protocol" }), h("span", { class: "muted" }))),
      (row, one) => this.#showRow(row, one, chosen),
    );
    await this.#lookAtOne(signal);
  }

  get #chosen(): number | undefined {
    return numberIn(this.#place.query.get("talk"));
  }

  #showRow(row: HTMLLIElement, one: Listed, chosen: number | undefined): void {
    const link = row.firstElementChild;
    if (link === null) return;
    set(link, "href", changed(this.#place, { talk: one.id }));
    set(link, "aria-current", one.id === chosen ? "true" : undefined);
    const [peer, protocol, more] = link.children;
    if (peer !== undefined) write(peer, one.peer);
    if (protocol !== undefined) write(protocol, one.protocol);
    if (more !== undefined)
      write(more, `${one.peer === one.address ? "" : `${one.address}, `}for ${duration(Date.now() - one.opened)}`);
  }

  #showSide(): void {
    const chosen = this.#chosen;
    if (chosen !== undefined && this.#sequence?.id === chosen) return;
    this.#sequence = undefined;
    if (chosen === undefined) {
      fill(
        this.#side,
        h(
          "p",
          { class: "panel empty" },
          "Choose a connection. From then on what is said on it is recorded, for as long as somebody looks.",
        ),
      );
    } else if (!may(this.#desk, "conversation")) {
      fill(
        this.#side,
        h("p", { class: "panel empty" }, "What is said may hold what others send to services: only an admin may look."),
      );
    } else {
      this.#sequence = new Sequence(chosen);
      fill(this.#side, this.#sequence.element);
    }
  }

  async #lookAtOne(signal: AbortSignal): Promise<void> {
    const sequence = this.#sequence;
    if (sequence === undefined || sequence.paused) return;
    try {
      sequence.update(await ask("conversation", { id: sequence.id, after: sequence.last }, { signal }));
    } catch (cause) {
      if (!(cause instanceof Refused) || cause.status !== 400) throw cause;
      sequence.over();
    }
  }
}
