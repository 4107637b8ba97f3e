/** How much of something is in use. */
import { h, set } from "../dom.js";

export class Meter {
  readonly element = h("span", { class: "meter", role: "meter", "aria-valuemin": 0 });
  readonly #filled = h("i");

  constructor(label: string) {
    set(this.element, "aria-label", label);
    this.element.append(this.#filled);
  }

  update(used: number, total: number): void {
    set(this.element, "aria-valuemax", total);
    set(this.element, "aria-valuenow", used);
    this.#filled.style.width = `${total === 0 ? 0 : Math.min(100, (100 * used) / total)}%`;
  }
}
