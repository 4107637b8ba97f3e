/** A task's output: read page by page, followed while the task runs, shown like in a terminal. */
import { AnsiLines, type Style, type StyledLine, xtermColour } from "../ansi.js";
import { type Answer, ask, type JsonBytes, rawOutput } from "../api.js";
import { h, set, setChildren, setText } from "../dom.js";
import { size } from "../format.js";
import { errorMessage, type PageContext } from "../page-context.js";

/** How many bytes of the end are shown first. */
const TAIL = 256 * 1024;
const PAGE = 256 * 1024;
const WAIT_MS = 20_000;
/** Between two reads of output that is being written. */
const PAUSE_MS = 300;

export class OutputView {
  readonly element: HTMLElement;
  readonly #context: PageContext;
  readonly #job: number;
  readonly #index: number;
  readonly #name: string;
  readonly #text = h("div", { class: "output-text", tabindex: 0, role: "log", "aria-label": "Output" });
  readonly #status = h("span", { class: "muted" });
  readonly #follow = h("input", { type: "checkbox", checked: true, id: "follow" });
  readonly #whole = h("button", { class: "button small", hidden: true }, "From the start");
  #reading = new AbortController();
  #ansi = new AnsiLines();
  #decoders = decoders();
  #from = 0;
  #attempt: number | undefined;

  constructor(context: PageContext, job: number, index: number, name: string) {
    this.#context = context;
    this.#job = job;
    this.#index = index;
    this.#name = name;
    const download = h("button", { class: "button small", onclick: () => void this.#download() }, "Download");
    this.#whole.addEventListener("click", () => this.read(this.#attempt, 0));
    this.#follow.addEventListener("change", () => this.#scroll());
    const follow = h("label", { class: "check", for: "follow" }, this.#follow, "Follow");
    const bar = h(
      "div",
      { class: "output-bar" },
      h("h3", {}, "Output"),
      this.#status,
      h("span", { class: "gap" }),
      follow,
    );
    bar.append(this.#whole, download);
    this.element = h("section", { class: "output", "aria-label": "Output" }, bar, this.#text);
  }

  /** Starts again, with another attempt or from another offset. */
  read(attempt: number | undefined, from: number): void {
    this.#reading.abort();
    this.#reading = new AbortController();
    this.#attempt = attempt;
    this.#ansi = new AnsiLines();
    this.#decoders = decoders();
    this.#from = from;
    setChildren(this.#text);
    delete this.#text.dataset.first;
    set(this.#whole, "hidden", from === 0);
    if (from > 0) this.#ansi.note(`the first ${size(from)} are left out`);
    void this.#run(this.#reading.signal);
  }

  static tailOf(end: number): number {
    return end > TAIL ? end - TAIL : 0;
  }

  close(): void {
    this.#reading.abort();
  }

  async #run(signal: AbortSignal): Promise<void> {
    setText(this.#status, "reading…");
    while (!signal.aborted) {
      try {
        const page = await ask("output", this.#input(), { signal });
        if (signal.aborted) return;
        this.#show(page);
        if (page.next === undefined && page.ended) {
          setText(this.#status, page.endOffset === 0 ? "nothing was written" : `${size(page.endOffset)}, complete`);
          return;
        }
        setText(this.#status, page.next === undefined ? `${size(page.endOffset)} so far` : "reading…");
        if (page.next === undefined) await pause(PAUSE_MS);
      } catch (cause) {
        if (signal.aborted) return;
        setText(this.#status, errorMessage(cause));
        await pause(5_000);
      }
    }
  }

  #input() {
    const attempt = this.#attempt === undefined ? {} : { attempt: this.#attempt };
    return { job: this.#job, index: this.#index, from: this.#from, limit: PAGE, waitMs: WAIT_MS, ...attempt };
  }

  #show(page: Answer<"output">): void {
    let at = this.#from;
    for (const { stream, offset, bytes } of page.pieces) {
      if (offset > at) this.#ansi.note(`${size(offset - at)} are missing here`);
      const raw = bytesOf(bytes);
      this.#ansi.feed(this.#decoders[stream].decode(raw, { stream: true }), stream === "stderr");
      at = offset + raw.length;
    }
    this.#from = page.next ?? page.endOffset;
    this.#paint();
  }

  /** Makes elements only for lines that are new or have changed. */
  #paint(): void {
    const { lines, dropped } = this.#ansi;
    const shown = this.#text.childElementCount;
    let first = Number(this.#text.dataset.first ?? 0);
    for (let gone = Math.min(shown, dropped - first); gone > 0; gone--) this.#text.firstElementChild?.remove();
    first = dropped;
    this.#text.dataset.first = String(first);
    const from = Math.max(this.#ansi.changedFrom, dropped);
    while (this.#text.childElementCount > from - dropped) this.#text.lastElementChild?.remove();
    const fresh = document.createDocumentFragment();
    for (const line of lines.slice(from - dropped)) fresh.append(lineElement(line));
    this.#text.append(fresh);
    this.#ansi.changedFrom = dropped + lines.length - 1;
    this.#scroll();
  }

  #scroll(): void {
    if (this.#follow.checked) this.#text.scrollTop = this.#text.scrollHeight;
  }

  async #download(): Promise<void> {
    try {
      const url = URL.createObjectURL(await rawOutput(this.#job, this.#index));
      h("a", { href: url, download: `laboro-${this.#name}.log` }).click();
      URL.revokeObjectURL(url);
    } catch (cause) {
      this.#context.notify(errorMessage(cause), true);
    }
  }
}

const decoders = () => ({ stdout: new TextDecoder(), stderr: new TextDecoder() });
const encoder = new TextEncoder();
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function bytesOf(written: JsonBytes): Uint8Array {
  if (typeof written === "string") return encoder.encode(written);
  return Uint8Array.from(atob(written.base64), (one) => one.charCodeAt(0));
}

function lineElement(line: StyledLine): HTMLElement {
  const error = line.some(({ style }) => style.error === true);
  const element = h("div", { class: error ? "line from-error" : "line" });
  for (const { text, style } of line) element.append(isPlain(style) ? text : runElement(text, style));
  // So that an empty line has the height of a line.
  if (line.length === 0) element.append("\u200b");
  return element;
}

const isPlain = ({ error: _, ...style }: Style): boolean => Object.keys(style).length === 0;

function runElement(text: string, style: Style): HTMLElement {
  const { colour, background, inverse, bold, dim, italic, underline, struck } = style;
  const flags = { bold, dim, italic, underline, struck, inverse };
  const names = Object.entries(flags).flatMap(([name, on]) => (on === true ? [`ansi-${name}`] : []));
  const span = h("span", {}, text);
  paintPart(span, names, inverse === true ? background : colour, "color", "ansi-fg");
  paintPart(span, names, inverse === true ? colour : background, "backgroundColor", "ansi-bg");
  span.className = names.join(" ");
  return span;
}

function paintPart(
  span: HTMLElement,
  names: string[],
  colour: number | string | undefined,
  property: "color" | "backgroundColor",
  prefix: string,
): void {
  if (colour === undefined) return;
  if (typeof colour === "number" && colour < 16) names.push(`${prefix}-${colour}`);
  else span.style[property] = typeof colour === "number" ? xtermColour(colour) : colour;
}
