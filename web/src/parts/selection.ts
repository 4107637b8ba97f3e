/** Chosen rows of a list, and a bar with what can be done with all of them. */
import { h, set, setText } from "../dom.js";
import { plural } from "../format.js";
import { errorMessage, type PageContext } from "../page-context.js";
import { confirmDialog } from "./confirm-dialog.js";
import { icon } from "./icons.js";

export interface BulkAction<Key> {
  /** A verb. */
  readonly label: string;
  /** What will happen, for the question before it. */
  readonly text: string;
  readonly destructive?: boolean;
  /** Performs the action on all, and returns what was done. */
  perform(keys: readonly Key[]): Promise<string>;
}

/** Boxes that are kept for rows out of view. */
const MAX_BOXES = 2_000;

export class Selection<Key extends string | number> {
  readonly element: HTMLElement;
  readonly #chosen = new Set<Key>();
  readonly #boxes = new Map<Key, HTMLInputElement>();
  readonly #count = h("b");
  readonly #noun: string;

  constructor(context: PageContext, noun: string, actions: readonly BulkAction<Key>[]) {
    this.#noun = noun;
    const buttons = actions.map((action) =>
      h(
        "button",
        {
          class: action.destructive === true ? "button small destructive" : "button small",
          onclick: () => void this.#act(context, action),
        },
        action.label,
      ),
    );
    const clear = h("button", { class: "button small quiet", onclick: () => this.clear() }, "Clear");
    this.element = h("div", { class: "selection", role: "group", hidden: true }, this.#count, ...buttons, clear);
    set(this.element, "aria-label", `Chosen ${noun}s`);
  }

  /** The same element for the same row. */
  box(key: Key, label: string): HTMLInputElement {
    const known = this.#boxes.get(key);
    if (known !== undefined) return known;
    const box = h("input", { type: "checkbox", "aria-label": `Choose ${label}`, onchange: () => this.toggle(key) });
    box.checked = this.#chosen.has(key);
    if (this.#boxes.size >= MAX_BOXES) this.#boxes.clear();
    this.#boxes.set(key, box);
    return box;
  }

  /** Chooses all rows that are listed, or none if all are chosen. */
  boxOfAll(listed: () => readonly Key[]): HTMLButtonElement {
    const choose = (): void => this.#toggleAll(listed());
    const label = `Choose all listed ${this.#noun}s`;
    return h(
      "button",
      { class: "button quiet all", "aria-label": label, title: label, onclick: choose },
      icon("check"),
    );
  }

  toggle(key: Key): void {
    if (!this.#chosen.delete(key)) this.#chosen.add(key);
    this.#show();
  }

  #toggleAll(keys: readonly Key[]): void {
    const all = keys.every((key) => this.#chosen.has(key));
    for (const key of keys) {
      if (all) this.#chosen.delete(key);
      else this.#chosen.add(key);
    }
    this.#show();
  }

  clear(): void {
    this.#chosen.clear();
    this.#show();
  }

  #show(): void {
    for (const [key, box] of this.#boxes) box.checked = this.#chosen.has(key);
    set(this.element, "hidden", this.#chosen.size === 0);
    setText(this.#count, `${plural(this.#chosen.size, this.#noun)} chosen`);
  }

  async #act(context: PageContext, { label, text, destructive, perform }: BulkAction<Key>): Promise<void> {
    const keys = [...this.#chosen];
    const many = plural(keys.length, this.#noun);
    const confirmLabel = `${label} ${many}`;
    const options = { title: `${confirmLabel}?`, text, confirmLabel, ...(destructive ? { destructive } : {}) };
    if ((await confirmDialog(options)) === undefined) return;
    try {
      context.notify(await perform(keys));
      this.clear();
    } catch (cause) {
      context.notify(errorMessage(cause), true);
    }
  }
}

/** Calls one after the other. Says how many were done, and why the first of the others was not. */
export async function forEach<Key>(
  keys: readonly Key[],
  call: (key: Key) => Promise<unknown>,
  done: (many: number) => string,
): Promise<string> {
  const refusals: string[] = [];
  for (const key of keys) await call(key).catch((cause) => refusals.push(errorMessage(cause)));
  const [first] = refusals;
  const said = done(keys.length - refusals.length);
  return first === undefined ? said : `${said}; ${plural(refusals.length, "refusal")}: ${first}`;
}
