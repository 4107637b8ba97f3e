/** What surrounds every page: navigation, theme, connection alert, and notices. */

import { h, set, setText } from "./dom.js";
import { errorMessage, isAllowed, type PageContext } from "./page-context.js";
import { icon } from "./parts/icons.js";
import { address } from "./route.js";
import { setTheme, type Theme, theme } from "./theme.js";

interface NavItem {
  readonly name: string;
  readonly label: string;
  readonly key: string;
  /** Shown if the user may call this operation; always if absent. */
  readonly needs?: string;
}

export const NAV_ITEMS: readonly NavItem[] = [
  { name: "overview", label: "Overview", key: "o" },
  { name: "jobs", label: "Jobs", key: "j" },
  { name: "schedules", label: "Schedules", key: "t", needs: "schedules" },
  { name: "workers", label: "Workers", key: "w" },
  { name: "allocators", label: "Allocators", key: "a", needs: "allocators" },
  { name: "services", label: "Services", key: "s" },
  { name: "limits", label: "Limits", key: "l", needs: "limits" },
  { name: "brokers", label: "Brokers", key: "b", needs: "brokers" },
  { name: "config", label: "Config", key: "c", needs: "config" },
  { name: "connections", label: "Connections", key: "v", needs: "connections" },
];

export const navAddress = (item: NavItem): string => address(item.name === "overview" ? [] : [item.name]);

const THEMES: Readonly<Record<Theme, { readonly label: string; readonly description: string }>> = {
  system: { label: "Auto", description: "the system's colours" },
  light: { label: "Light", description: "light colours" },
  dark: { label: "Dark", description: "dark colours" },
};
const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };
const NOTICE_MS = 6_000;

export class AppShell {
  readonly main = h("main", { id: "main", tabindex: -1 });
  readonly #links = new Map<string, HTMLAnchorElement>();
  readonly #connectionAlert = h("div", { class: "connection-alert", role: "alert", hidden: true });
  readonly #notices = h("div", { class: "notices", role: "status", "aria-live": "polite" });
  readonly #broker = h("span", { class: "muted" });

  constructor(context: PageContext, help: () => void) {
    const list = h("ul");
    for (const item of NAV_ITEMS.filter(({ needs }) => needs === undefined || isAllowed(context, needs))) {
      const link = h(
        "a",
        { href: navAddress(item), "aria-keyshortcuts": `g ${item.key}` },
        icon(item.name),
        h("span", {}, item.label),
      );
      this.#links.set(item.name, link);
      list.append(h("li", {}, link));
    }
    const role = context.permissions.role === "read" ? "read only" : `you are ${context.permissions.role}`;
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
      h("a", { href: "#main", class: "skip" }, "Skip to content"),
      side,
      h("div", { class: "page" }, this.#connectionAlert, this.main),
      this.#notices,
    );
  }

  /** Marks the current page in the navigation. */
  setCurrent(name: string): void {
    for (const [one, link] of this.#links) set(link, "aria-current", one === name ? "page" : undefined);
  }

  setVersion(version: string): void {
    setText(this.#broker, `laboro ${version}`);
  }

  showConnection(cause: unknown): void {
    this.#connectionAlert.hidden = cause === undefined;
    if (cause !== undefined)
      setText(this.#connectionAlert, `${errorMessage(cause)}. The page may be out of date. Retrying…`);
  }

  notify(text: string, bad: boolean): void {
    const notice = h("div", { class: bad ? "notice bad" : "notice" }, text);
    this.#notices.append(notice);
    setTimeout(() => notice.remove(), NOTICE_MS);
  }

  #themeButton(): HTMLButtonElement {
    const button = h("button", { class: "button quiet" });
    const show = (): void => {
      const { label, description } = THEMES[theme()];
      button.replaceChildren(icon(theme()), h("span", { class: "label" }, label));
      set(button, "aria-label", `${label}: ${description}`);
    };
    button.addEventListener("click", () => {
      setTheme(NEXT[theme()]);
      show();
    });
    show();
    return button;
  }
}
