/** How long the ended tasks of a job took: a histogram with steps of equal ratio, and what they used together. */
import type { Answer } from "../api.js";
import { h, set, setText, updateRows } from "../dom.js";
import { count, duration, plural, size } from "../format.js";

type Usage = Answer<"usage">;

const MAX_BARS = 24;
/** Steps of the broker in which a time doubles. */
const PER_DOUBLING = 4;

interface Bar {
  readonly fromMs: number;
  readonly toMs: number;
  readonly tasks: number;
}

export class DurationChart {
  readonly element = h("section", { class: "panel durations", "aria-label": "Durations", hidden: true });
  readonly #bars = h("div", { class: "bars", role: "img" });
  readonly #first = h("span");
  readonly #last = h("span");
  readonly #total = h("p", { class: "muted" });

  constructor() {
    const ends = h("div", { class: "bar-ends muted" }, this.#first, this.#last);
    this.element.append(h("h2", {}, "Durations"), this.#bars, ends, this.#total);
  }

  update(usage: Usage): void {
    set(this.element, "hidden", usage.tasks === 0);
    if (usage.tasks === 0) return;
    const bars = barsOf(usage);
    const most = Math.max(...bars.map(({ tasks }) => tasks));
    updateRows(
      this.#bars,
      bars,
      ({ fromMs }) => fromMs,
      () => h("i"),
      (bar, { fromMs, toMs, tasks }) => {
        // A bar of few tasks is still seen.
        bar.style.height = tasks === 0 ? "0" : `max(2px, ${(100 * tasks) / most}%)`;
        set(bar, "title", `${about(fromMs)} to ${about(toMs)}: ${plural(tasks, "task")}`);
      },
    );
    const [shortest, longest] = [about(bars[0]?.fromMs ?? 0), about(bars.at(-1)?.toMs ?? 0)];
    setText(this.#first, shortest);
    setText(this.#last, longest);
    const { tasks, runMs, cpuMs, peakMemory } = usage;
    const figures = [
      `p50 ${about(percentile(usage, 0.5))}, p95 ${about(percentile(usage, 0.95))}`,
      `total ${duration(runMs)}`,
      cpuMs > 0 && `CPU ${duration(cpuMs)}`,
      peakMemory > 0 && `peak memory ${size(peakMemory)}`,
    ].filter(Boolean);
    setText(this.#total, figures.join(" · "));
    set(this.#bars, "aria-label", `Durations of ${count(tasks)} tasks from ${shortest} to ${longest}`);
  }
}

const msOf = (step: number): number => (step <= 0 ? 0 : 2 ** (step / PER_DOUBLING));
/** Two digits are enough for the border of a step. */
const about = (ms: number): string => duration(Number(ms.toPrecision(2)));

/** With as many steps as needed for all values. */
function barsOf({ durations }: Usage): Bar[] {
  const first = durations[0]?.step ?? 0;
  const last = durations.at(-1)?.step ?? 0;
  const width = Math.ceil((last - first + 1) / MAX_BARS);
  const bars: Bar[] = [];
  for (let from = first; from <= last; from += width) {
    const within = durations.filter(({ step }) => step >= from && step < from + width);
    const tasks = within.reduce((sum, one) => sum + one.tasks, 0);
    bars.push({ fromMs: msOf(from), toMs: msOf(from + width), tasks });
  }
  return bars;
}

/** As exact as a step, within a tenth. */
function percentile({ durations, tasks }: Usage, part: number): number {
  let left = part * tasks;
  for (const { step, tasks: many } of durations) {
    left -= many;
    if (left <= 0) return msOf(step + 0.5);
  }
  return 0;
}
