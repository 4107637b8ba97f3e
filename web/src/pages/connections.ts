/** The connections, and the messages of one of them as a sequence chart. */
import { type Answer, ApiError, ask } from "../api.js";
import { h, set, setChildren, setText, updateRows } from "../dom.js";
import { count, duration, plural } from "../format.js";
import { isAllowed, type Page, type PageContext, type PageFactory } from "../page-context.js";
import { SequenceChart } from "../parts/sequence-chart.js";
import { numberIn, type Route, withQuery } from "../route.js";
import { debounceInput } from "./jobs.js";

type ConnectionItem = Answer<"connections">["connections"][number];

export const connectionsPage: PageFactory = (route, context) => new ConnectionsPage(route, context);

class ConnectionsPage implements Page {
  readonly title = "Connections";
  readonly element: HTMLElement;
  readonly #context: PageContext;
  readonly #find = h("input", {
    type: "search",
    placeholder: "Protocol, address, name…",
    "aria-label": "Find connections",
    class: "search",
  });
  readonly #countLabel = h("span", { class: "muted" });
  readonly #list = h("ul", { class: "connection-list" });
  readonly #none = h("p", { class: "empty", hidden: true }, "No connections.");
  readonly #side = h("div", { class: "connection" });
  #sequence: SequenceChart | undefined;
  #route: Route;

  constructor(route: Route, context: PageContext) {
    this.#route = route;
    this.#context = context;
    this.#find.value = route.query.get("find") ?? "";
    debounceInput(this.#find, () => context.navigate(withQuery(this.#route, { find: this.#find.value }), true));
    this.element = h(
      "div",
      { class: "connections" },
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Connections"),
        this.#countLabel,
        h("span", { class: "gap" }),
        this.#find,
      ),
      h(
        "div",
        { class: "connection-split" },
        h("section", { class: "panel flush", "aria-label": "Connections" }, this.#list, this.#none),
        this.#side,
      ),
    );
    this.#showSide();
  }

  onNavigate(route: Route): boolean {
    if (route.path[0] !== "connections") return false;
    this.#route = route;
    this.#showSide();
    return true;
  }

  async refresh(signal: AbortSignal): Promise<void> {
    const find = this.#route.query.get("find") ?? "";
    const { connections, total } = await ask(
      "connections",
      { limit: 200, ...(find === "" ? {} : { find }) },
      { signal, shared: true },
    );
    setText(
      this.#countLabel,
      total > connections.length
        ? `the newest ${count(connections.length)} of ${count(total)}`
        : plural(total, "connection"),
    );
    set(this.#none, "hidden", total > 0);
    const chosen = this.#chosen;
    updateRows(
      this.#list,
      connections,
      ({ id }) => id,
      () => h("li", {}, h("a", {}, h("b"), h("span", { class: "protocol" }), h("span", { class: "muted" }))),
      (row, one) => this.#showRow(row, one, chosen),
    );
    await this.#refreshTrace(signal);
  }

  get #chosen(): number | undefined {
    return numberIn(this.#route.query.get("connection"));
  }

  #showRow(row: HTMLLIElement, one: ConnectionItem, chosen: number | undefined): void {
    const link = row.firstElementChild;
    if (link === null) return;
    set(link, "href", withQuery(this.#route, { connection: one.id }));
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
          "Choose a connection to record its messages. Recording ends when this page is closed.",
        ),
      );
    } else if (!isAllowed(this.#context, "connection")) {
      setChildren(
        this.#side,
        h("p", { class: "panel empty" }, "Messages can contain request bodies: only an admin may see them."),
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
      sequence.update(await ask("connection", { id: sequence.id, after: sequence.last }, { signal }));
    } catch (cause) {
      if (!(cause instanceof ApiError) || cause.status !== 400) throw cause;
      sequence.setClosed();
    }
  }
}
