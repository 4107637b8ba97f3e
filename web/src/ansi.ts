/**
 * Output of programs as lines of styled text. Text styles (SGR), carriage return and erase in line are applied. Other
 * escape sequences are dropped. Nothing here makes HTML: a run is text and a style.
 *
 *   text      characters go to the end of the line
 *   escape    after ESC
 *   control   after ESC [: parameters, until a letter ends the sequence
 *   string    after ESC ], P, X, ^ or _, such as a title or a link: dropped until BEL or ESC \
 */

export interface Style {
  /** 0-15: the palette of the page; 16-255: the colours of xterm; or #rrggbb. */
  readonly colour?: number | string;
  readonly background?: number | string;
  readonly bold?: true;
  readonly dim?: true;
  readonly italic?: true;
  readonly underline?: true;
  readonly inverse?: true;
  readonly struck?: true;
  /** From the error stream. */
  readonly error?: true;
}

interface TextRun {
  readonly text: string;
  readonly style: Style;
}

export type StyledLine = readonly TextRun[];

const PLAIN: Style = {};
const MAX_LINE = 20_000;
const MAX_CONTROL = 64;

export class AnsiLines {
  /** The last line is incomplete. */
  readonly lines: StyledLine[] = [[]];
  /** Lines that were dropped before the first one. */
  dropped = 0;
  /** The first line, counted with the dropped ones, that has changed since this was set. */
  changedFrom = 0;
  readonly #maxLines: number;
  #state: "text" | "escape" | "control" | "string" = "text";
  #control = "";
  #style: Style = PLAIN;
  #length = 0;
  #sawReturn = false;
  #escapeInString = false;

  constructor(maxLines = 5_000) {
    this.#maxLines = maxLines;
  }

  /** `error`: it was written to the error stream. */
  feed(text: string, error = false): void {
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (this.#state === "text") {
        if (code >= 0x20 && code !== 0x7f) continue;
        if (code === 0x09) continue;
        this.#write(text.slice(from, at), error);
        this.#control = "";
        if (code === 0x1b) this.#state = "escape";
        else this.#handleControl(code);
        from = at + 1;
        continue;
      }
      this.#handleEscape(text[at] ?? "", code);
      from = at + 1;
    }
    if (this.#state === "text") this.#write(text.slice(from), error);
  }

  /** Adds a line of the dashboard between the lines of the output. */
  note(text: string): void {
    if (this.#length > 0) this.#newLine();
    this.#write(text, false, { dim: true, italic: true });
    this.#newLine();
  }

  #handleEscape(one: string, code: number): void {
    if (this.#state === "escape") {
      // Sequences such as ESC ( B have one more character.
      if (code >= 0x20 && code <= 0x2f) return;
      this.#state = one === "[" ? "control" : "]PX^_".includes(one) ? "string" : "text";
      this.#escapeInString = false;
    } else if (this.#state === "string") {
      if (code === 0x07 || (this.#escapeInString && one === "\\")) this.#state = "text";
      this.#escapeInString = code === 0x1b;
    } else if (code >= 0x40 && code <= 0x7e) {
      this.#state = "text";
      if (one === "m") this.#style = styled(this.#style, this.#control);
      else if (one === "K") this.#eraseLine();
    } else if (code < 0x20 || this.#control.length >= MAX_CONTROL) {
      // Not a valid sequence.
      this.#state = "text";
      if (code < 0x20) this.#handleControl(code);
    } else {
      this.#control += one;
    }
  }

  #handleControl(code: number): void {
    if (code === 0x0a) this.#newLine();
    else if (code === 0x0d) this.#sawReturn = true;
  }

  #write(text: string, error: boolean, style: Style = this.#style): void {
    if (text === "") return;
    if (this.#sawReturn) this.#eraseLine();
    const available = MAX_LINE - this.#length;
    if (available <= 0) return;
    const written = text.length > available ? `${text.slice(0, available)}…` : text;
    this.#length += written.length;
    const own: Style = error ? { ...style, error: true } : style;
    const line = this.lines.at(-1) ?? [];
    const before = line.at(-1);
    const same = before !== undefined && sameStyle(before.style, own);
    const run = same ? { text: before.text + written, style: own } : { text: written, style: own };
    this.lines[this.lines.length - 1] = [...(same ? line.slice(0, -1) : line), run];
    this.#touch();
  }

  #newLine(): void {
    this.#sawReturn = false;
    this.#length = 0;
    this.#touch();
    this.lines.push([]);
    if (this.lines.length <= this.#maxLines) return;
    // Many at once, because each removal moves all other lines.
    const many = Math.max(1, Math.floor(this.#maxLines / 50));
    this.lines.splice(0, many);
    this.dropped += many;
  }

  /** Text after a carriage return overwrites the line, as progress bars do. */
  #eraseLine(): void {
    this.#sawReturn = false;
    this.#length = 0;
    this.lines[this.lines.length - 1] = [];
    this.#touch();
  }

  #touch(): void {
    this.changedFrom = Math.min(this.changedFrom, this.dropped + this.lines.length - 1);
  }
}

const sameStyle = (a: Style, b: Style): boolean =>
  a === b ||
  (a.colour === b.colour &&
    a.background === b.background &&
    a.bold === b.bold &&
    a.dim === b.dim &&
    a.italic === b.italic &&
    a.underline === b.underline &&
    a.inverse === b.inverse &&
    a.struck === b.struck &&
    a.error === b.error);

/** ECMA-48 8.3.117, Select Graphic Rendition, with the colours that xterm added. */
function styled(before: Style, parameters: string): Style {
  const numbers = parameters.split(/[;:]/).map((one) => (one === "" ? 0 : Number(one)));
  let style: Mutable = { ...before };
  for (let at = 0; at < numbers.length; at++) {
    const number = numbers[at] ?? 0;
    if (number === 0) style = {};
    else if (number === 38 || number === 48) {
      const { colour, used } = extended(numbers.slice(at + 1));
      at += used;
      if (colour !== undefined) style[number === 38 ? "colour" : "background"] = colour;
    } else apply(style, number);
  }
  return style;
}

type Mutable = { -readonly [Name in keyof Style]: Style[Name] };

function apply(style: Mutable, number: number): void {
  const flag = FLAGS[number];
  if (flag !== undefined) style[flag] = true;
  else if (number === 22) {
    delete style.bold;
    delete style.dim;
  } else if (number === 23) delete style.italic;
  else if (number === 24) delete style.underline;
  else if (number === 27) delete style.inverse;
  else if (number === 29) delete style.struck;
  else if (number === 39) delete style.colour;
  else if (number === 49) delete style.background;
  else if (number >= 30 && number <= 37) style.colour = number - 30;
  else if (number >= 40 && number <= 47) style.background = number - 40;
  else if (number >= 90 && number <= 97) style.colour = number - 82;
  else if (number >= 100 && number <= 107) style.background = number - 92;
}

const FLAGS: Readonly<Record<number, "bold" | "dim" | "italic" | "underline" | "inverse" | "struck">> = {
  1: "bold",
  2: "dim",
  3: "italic",
  4: "underline",
  7: "inverse",
  9: "struck",
};

/** What follows 38 or 48: `5;n` or `2;r;g;b`. */
function extended([kind, ...rest]: readonly number[]): { colour?: number | string; used: number } {
  const [a = 0, b = 0, c = 0] = rest;
  if (kind === 5) return isByte(a) ? { colour: a, used: 2 } : { used: 2 };
  if (kind !== 2) return { used: 1 };
  return [a, b, c].every(isByte) ? { colour: hex(a, b, c), used: 4 } : { used: 4 };
}

const isByte = (value: number): boolean => Number.isInteger(value) && value >= 0 && value <= 255;
const hex = (...parts: readonly number[]): string =>
  `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;

/** The colours 16-255 of xterm: a cube of 6 × 6 × 6 and 24 greys. */
export function xtermColour(number: number): string {
  if (number >= 232) {
    const grey = 8 + (number - 232) * 10;
    return hex(grey, grey, grey);
  }
  const level = (value: number): number => (value === 0 ? 0 : 55 + value * 40);
  const at = number - 16;
  return hex(level(Math.floor(at / 36)), level(Math.floor(at / 6) % 6), level(at % 6));
}
