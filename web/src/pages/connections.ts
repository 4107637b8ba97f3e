/** Conversations: the connections there are, and of one of them what is said, as a chart of messages both ways. */
import { type Answer, ask, ApiError } from "../api.js";
import { type PageContext, type PageFactory, isAllowed, type Page } from "../page-context.js";
import { setChildren, h, updateRows, set, setText } from "../dom.js";
import { count, duration, plural } from "../format.js";
import { SequenceChart } from "../parts/sequence-chart.js";
import { withQuery, numberIn, type Route } from "../route.js";
import { debounceInput } from "./jobs.js";

type ConnectionItem = Answer<"conversations">["connections"][number];

export const connectionsPage: PageFactory = (route, context) => new ConnectionsPage(route, context);

class ConnectionsPage implements Page {
  readonly title = "Conversations";
  readonly element: HTMLElement;
  readonly #context: PageContext;
  readonly #find = h("input", {
    type: "search",
    placeholder: "Protocol, address, name…",
    "aria-label": "Find connections",
    class: "search",
  });
  readonly #countLabel = h("span", { class: "muted" });
  readonly #list = h("ul", { class: "talks" });
  readonly #none = h("p", { class: "empty", hidden: true }, "Nobody is connected.");
  readonly #side = h("div", { class: "talk" });
  #sequence: SequenceChart | undefined;
  #route: Route;

  constructor(route: Route, context: PageContext) {
    this.#route = route;
    this.#context = context;
    this.#find.value = route.query.get("find") ?? "";
    debounceInput(this.#find, () => context.navigate(withQuery(this.#route, { find: this.#find.value }), true));
    this.element = h(
      "div",
      { class: "conversations" },
      h("div", { class: "title" }, h("h1", {}, "Conversations"), this.#countLabel, h("span", { class: "gap" }), this.#find),
      h(
        "div",
        { class: "talk-split" },
        h("section", { class: "panel flush", "aria-label": "Connections" }, this.#list, this.#none),
        this.#side,
      ),
    );
    this.#showSide();
  }

  onNavigate(route: Route): boolean {
    if (route.path[0] !== "conversations") return false;
    this.#route = route;
    this.#showSide();
    return true;
  }

  async refresh(signal: AbortSignal): Promise<void> {
    const find = this.#route.query.get("find") ?? "";
    const { connections: conversations, total } = await ask(
      "conversations",
      { limit: 200, ...(find === "" ? {} : { find }) },
      { signal, shared: true },
    );
    setText(
      this.#countLabel,
      total > conversations.length
        ? `the newest ${count(conversations.length)} of ${count(total)}`
        : plural(total, "connection"),
    );
    set(this.#none, "hidden", total > 0);
    const chosen = this.#chosen;
    updateRows(
      this.#list,
      conversations,
      ({ id }) => id,
      () => h("li", {}, h("a", {}, h("b"), h("span", { class: "protocol" }), h("span", { class: "muted" }))),
      (row, one) => this.#showRow(row, one, chosen),
    );
    await this.#refreshTrace(signal);
  }

  get #chosen(): number | undefined {
    return numberIn(this.#route.query.get("talk"));
  }

  #showRow(row: HTMLLIElement, one: ConnectionItem, chosen: number | undefined): void {
    const link = row.firstElementChild;
    if (link === null) return;
    set(link, "href", withQuery(this.#route, { talk: one.id }));
    set(link, "aria-current", one.id === chosen ? "true" : undefined);
    const [peer, protocol, more] = link.children;
    if (peer !== undefined) setText(peer, one.peer);
    if (protocol !== undefined) setText(protocol, one.protocol);
    if (more !== undefined)
      setText(more, `${one.peer === one.address ? "" : `${one.address}, `}for ${duration(Date.now() - one.opened)}`);
  }

  #showSide(): void {
    const chosen = this.#chosen;
    if (chosen !== undefined && this.#sequence?.id === chosen) return;
    this.#sequence = undefined;
    if (chosen === undefined) {
      setChildren(
        this.#side,
        h(
          "p",
          { class: "panel empty" },
          "Choose a connection. From then on what is said on it is recorded, for as long as somebody looks.",
        ),
      );
    } else if (!isAllowed(this.#context, "conversation")) {
      setChildren(
        this.#side,
        h("p", { class: "panel empty" }, "What is said may hold what others send to services: only an admin may look."),
      );
    } else {
      this.#sequence = new SequenceChart(chosen);
      setChildren(this.#side, this.#sequence.element);
    }
  }

  async #refreshTrace(signal: AbortSignal): Promise<void> {
    const sequence = this.#sequence;
    if (sequence === undefined || sequence.paused) return;
    try {
      sequence.update(await ask("conversation", { id: sequence.id, after: sequence.last }, { signal }));
    } catch (cause) {
      if (!(cause instanceof ApiError) || cause.status !== 400) throw cause;
      sequence.setClosed();
    }
  }
}
