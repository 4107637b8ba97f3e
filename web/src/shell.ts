/** What is around every page: the ways to the others, the theme, whether the broker answers, and words that go by. */
import { type Desk, may, wordsFor } from "./desk.js";
import { h, set, write } from "./dom.js";
import { icon } from "./parts/icons.js";
import { address } from "./place.js";
import { setTheme, type Theme, theme } from "./theme.js";

export interface Way {
  readonly name: string;
  readonly label: string;
  readonly key: string;
  /** Shown where the viewer may ask for this; always if absent. */
  readonly needs?: string;
}

export const WAYS: readonly Way[] = [
  { name: "overview", label: "Overview", key: "o" },
  { name: "jobs", label: "Jobs", key: "j" },
  { name: "workers", label: "Workers", key: "w" },
  { name: "services", label: "Services", key: "s" },
  { name: "brokers", label: "Brokers", key: "b", needs: "brokers" },
  { name: "config", label: "Config", key: "c", needs: "config" },
  { name: "conversations", label: "Conversations", key: "v", needs: "conversations" },
];

export const addressOf = (way: Way): string => address(way.name === "overview" ? [] : [way.name]);

const THEMES: Readonly<Record<Theme, { readonly label: string; readonly words: string }>> = {
  system: { label: "Auto", words: "colours as the system has them" },
  light: { label: "Light", words: "light colours" },
  dark: { label: "Dark", words: "dark colours" },
};
const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };
const SAID_MS = 6_000;

export class Shell {
  readonly main = h("main", { id: "main", tabindex: -1 });
  readonly #links = new Map<string, HTMLAnchorElement>();
  readonly #lost = h("div", { class: "lost", role: "alert", hidden: true });
  readonly #said = h("div", { class: "said", role: "status", "aria-live": "polite" });
  readonly #broker = h("span", { class: "muted" });

  constructor(desk: Desk, help: () => void) {
    const list = h("ul");
    for (const way of WAYS.filter(({ needs }) => needs === undefined || may(desk, needs))) {
      const link = h(
        "a",
        { href: addressOf(way), "aria-keyshortcuts": `g ${way.key}` },
        icon(way.name),
        h("span", {}, way.label),
      );
      this.#links.set(way.name, link);
      list.append(h("li", {}, link));
    }
    const role = desk.access.role === "read" ? "you may look" : `you are ${desk.access.role}`;
    const side = h(
      "header",
      { class: "side" },
      h(
        "a",
        { href: address([]), class: "brand", "aria-label": "laboro, to the overview" },
        h("span", { class: "mark" }),
        "laboro",
      ),
      h("nav", { "aria-label": "Pages" }, list),
      h(
        "div",
        { class: "foot" },
        this.#broker,
        h("span", { class: "muted" }, role),
        h(
          "div",
          { class: "tools" },
          this.#themeButton(),
          h("button", { class: "button quiet", onclick: help, "aria-keyshortcuts": "?" }, "Keys"),
        ),
      ),
    );
    document.body.append(
      h("a", { href: "#main", class: "skip" }, "To the content"),
      side,
      h("div", { class: "page" }, this.#lost, this.main),
      this.#said,
    );
  }

  /** Marks the way that leads here. */
  at(name: string): void {
    for (const [one, link] of this.#links) set(link, "aria-current", one === name ? "page" : undefined);
  }

  broker(version: string): void {
    write(this.#broker, `laboro ${version}`);
  }

  reached(cause: unknown): void {
    this.#lost.hidden = cause === undefined;
    if (cause !== undefined) write(this.#lost, `${wordsFor(cause)}. What you see may be old; looking again…`);
  }

  say(text: string, bad: boolean): void {
    const word = h("div", { class: bad ? "word bad" : "word" }, text);
    this.#said.append(word);
    setTimeout(() => word.remove(), SAID_MS);
  }

  #themeButton(): HTMLButtonElement {
    const button = h("button", { class: "button quiet" });
    const show = (): void => {
      const { label, words } = THEMES[theme()];
      button.replaceChildren(icon(theme()), h("span", { class: "label" }, label));
      set(button, "aria-label", `${label}: ${words}`);
    };
    button.addEventListener("click", () => {
      setTheme(NEXT[theme()]);
      show();
    });
    show();
    return button;
  }
}
