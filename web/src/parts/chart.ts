/** A chart over time: a few lines, with their current values in the legend above it. */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { h, setText } from "../dom.js";
import { timesOfDay } from "../format.js";
import { colour, onThemeChange } from "../theme.js";

interface Series {
  readonly label: string;
  /** The name of a colour of the style sheet. */
  readonly colour: string;
  readonly filled?: boolean;
  readonly dashed?: boolean;
}

interface ChartOptions {
  readonly title: string;
  readonly series: readonly Series[];
  /** Formats a value for the legend and the axis. */
  readonly format: (value: number) => string;
  /** The smallest maximum of the axis. */
  readonly minScale?: number;
}

const HEIGHT = 168;

export class Chart {
  readonly element: HTMLElement;
  readonly #options: ChartOptions;
  readonly #canvas = h("div", { class: "chart-canvas", role: "img" });
  readonly #values: readonly HTMLElement[];
  readonly #resizeObserver: ResizeObserver;
  readonly #removeThemeListener: () => void;
  #plot: uPlot | undefined;
  #data: uPlot.AlignedData = [[]];

  constructor(options: ChartOptions) {
    this.#options = options;
    this.#values = options.series.map(() => h("b", {}, "–"));
    const legend = h("div", { class: "legend" });
    options.series.forEach(({ label, colour: name }, at) => {
      legend.append(h("span", {}, h("i", { class: `swatch swatch-${name}` }), label, " ", this.#values[at]));
    });
    this.element = h(
      "figure",
      { class: "chart panel" },
      h("figcaption", {}, h("h2", {}, options.title), legend),
      this.#canvas,
    );
    this.#resizeObserver = new ResizeObserver(() => this.#resize());
    this.#resizeObserver.observe(this.#canvas);
    this.#removeThemeListener = onThemeChange(() => this.#draw());
  }

  /** `at` in milliseconds. A gap of more than two steps is left empty. */
  update(at: readonly number[], columns: readonly (readonly number[])[], stepMs: number): void {
    this.#data = withGaps(at, columns, stepMs);
    if (this.#plot === undefined) this.#draw();
    else this.#plot.setData(this.#data);
    this.#updateLegend(undefined);
  }

  close(): void {
    this.#resizeObserver.disconnect();
    this.#removeThemeListener();
    this.#plot?.destroy();
  }

  #resize(): void {
    const width = this.#canvas.clientWidth;
    if (this.#plot === undefined) this.#draw();
    else if (width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: HEIGHT });
  }

  #draw(): void {
    this.#plot?.destroy();
    this.#plot = undefined;
    const width = this.#canvas.clientWidth;
    if (width === 0) return;
    this.#plot = new uPlot(this.#plotOptions(width), this.#data, this.#canvas);
  }

  #plotOptions(width: number): uPlot.Options {
    const { series, format, minScale = 1 } = this.#options;
    const axis = { stroke: colour("muted"), font: "11px system-ui, sans-serif", ticks: { show: false } };
    const grid = { stroke: colour("grid"), width: 1 };
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      padding: [8, 18, 0, 0],
      scales: { x: { time: true }, y: { range: (_plot, _min, max) => [0, Math.max(minScale, (max ?? 0) * 1.1)] } },
      axes: [
        {
          ...axis,
          grid: { show: false },
          values: (_plot, splits) => timesOfDay(splits),
          space: 60,
          size: 22,
          gap: 4,
        },
        { ...axis, grid, values: (_plot, splits) => withoutRepeats(splits.map(format)), size: 54, space: 34 },
      ],
      series: [
        {},
        ...series.map(({ colour: name, filled = false, dashed = false, label }) => ({
          label,
          stroke: colour(name),
          width: 1.5,
          points: { show: false },
          spanGaps: false,
          ...(filled ? { fill: colour(`${name}-soft`) } : {}),
          ...(dashed ? { dash: [4, 3] } : {}),
        })),
      ],
      hooks: { setCursor: [(plot) => this.#updateLegend(plot.cursor.idx ?? undefined)] },
    };
  }

  /** The values under the pointer, or the latest. */
  #updateLegend(place: number | undefined): void {
    const { series, format, title } = this.#options;
    const [at = []] = this.#data;
    const where = place ?? at.length - 1;
    const texts = series.map((_, line) => {
      const value = this.#data[line + 1]?.[where];
      return typeof value === "number" ? format(value) : "–";
    });
    texts.forEach((text, line) => {
      const element = this.#values[line];
      if (element !== undefined) setText(element, text);
    });
    const words = series.map(({ label }, line) => `${label} ${texts[line]}`).join(", ");
    this.#canvas.setAttribute("aria-label", `${title}, chart over time. Now: ${words}`);
  }
}

/** A small range has labels that are equal once they are rounded. */
const withoutRepeats = (labels: readonly string[]): string[] =>
  labels.map((label, at) => (label === labels[at - 1] ? "" : label));

function withGaps(at: readonly number[], columns: readonly (readonly number[])[], stepMs: number): uPlot.AlignedData {
  const times: number[] = [];
  const lines: (number | null)[][] = columns.map(() => []);
  at.forEach((time, place) => {
    const before = at[place - 1];
    if (before !== undefined && time - before > 2.5 * stepMs) {
      times.push((before + stepMs) / 1000);
      for (const line of lines) line.push(null);
    }
    times.push(time / 1000);
    lines.forEach((line, which) => {
      line.push(columns[which]?.[place] ?? null);
    });
  });
  return [times, ...lines];
}
