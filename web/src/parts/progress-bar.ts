/** One bar with a segment per state. */
import { h, set } from "../dom.js";
import { count } from "../format.js";

interface Counts {
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
  readonly running: number;
  readonly waiting: number;
}

const STATES = ["succeeded", "failed", "cancelled", "running", "waiting"] as const;

export class StackedBar {
  readonly element = h("div", { class: "progress", role: "img" });
  readonly #segments = new Map(STATES.map((name) => [name, h("span", { class: `part part-${name}` })]));

  constructor() {
    this.element.append(...this.#segments.values());
  }

  update(counts: Counts, total: number): void {
    for (const [name, part] of this.#segments) {
      const share = total === 0 ? 0 : counts[name] / total;
      // The style sheet gives a segment a minimum width: a state with few tasks stays visible.
      part.style.flexGrow = String(share);
      part.hidden = counts[name] === 0;
    }
    set(this.element, "aria-label", describe(counts, total));
    set(this.element, "title", describe(counts, total));
  }
}

function describe(counts: Counts, total: number): string {
  const parts = STATES.filter((name) => counts[name] > 0).map((name) => `${count(counts[name])} ${name}`);
  return `of ${count(total)} tasks ${parts.join(", ") || "none"}`;
}

/** How much of something is in use. */
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
