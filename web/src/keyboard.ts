/** Keyboard shortcuts: g and a letter opens a page, / its search, ? lists them. Ignored while the user types. */

import { NAV_ITEMS, navAddress } from "./app-shell.js";
import { h } from "./dom.js";

const SEQUENCE_TIMEOUT_MS = 1_500;

export function listenForKeys(go: (address: string) => void, allowed: (needs: string | undefined) => boolean): void {
  let goSince = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || dialogIsOpen()) return;
    const going = event.timeStamp - goSince < SEQUENCE_TIMEOUT_MS;
    goSince = 0;
    const item = going ? NAV_ITEMS.find(({ key, needs }) => key === event.key && allowed(needs)) : undefined;
    if (item !== undefined) go(navAddress(item));
    else if (event.key === "g") goSince = event.timeStamp;
    else if (event.key === "?") showKeys(allowed);
    else if (event.key === "/") {
      const search = document.querySelector<HTMLInputElement>("main input[type=search]");
      if (search === null) return;
      search.focus();
      search.select();
    } else return;
    event.preventDefault();
  });
}

const dialogIsOpen = (): boolean => document.querySelector("dialog[open]") !== null;

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);

export function showKeys(allowed: (needs: string | undefined) => boolean): void {
  const list = h("dl", { class: "keys" });
  const add = (keys: string, does: string): void => {
    list.append(h("dt", {}, ...keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, does));
  };
  for (const { key, label, needs } of NAV_ITEMS) if (allowed(needs)) add(`g ${key}`, label);
  add("/", "search on this page");
  add("↑ ↓", "from row to row; in a task map from cell to cell");
  add("Enter", "open what is marked");
  add("Esc", "close a dialog");
  const dialog = h("dialog", { class: "question", "aria-labelledby": "keys-title" });
  dialog.append(
    h("h2", { id: "keys-title" }, "Keys"),
    list,
    h(
      "div",
      { class: "answers" },
      h("button", { class: "button", autofocus: true, onclick: () => dialog.close() }, "Close"),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
