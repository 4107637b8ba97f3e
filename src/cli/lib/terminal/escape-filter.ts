/**
 * Output of tasks and peers for a terminal. Text, colours and other text styles (SGR) pass, and tab, newline and carriage return. All other
 * control characters and escape sequences are left out: they could move the cursor over what stands there, set the title or the
 * clipboard, or make the terminal type an answer into the shell.
 *
 *   text      characters pass
 *   escape    ESC has come
 *   control   ESC [ has come: parameters, until a letter ends it
 *   string    ESC ], P, X, ^ or _ has come: left out until BEL, ESC \ or the end of the line
 *
 * ESC is written only with a whole SGR sequence. So the terminal is in no other state than this filter, wherever the chunks end.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
const STYLE = /^[\d;:]*$/;
const MAX_PARAMETERS = 64;
/** BEL, CAN, SUB and ST. */
const STRING_ENDS: readonly number[] = [0x07, 0x18, 0x1a, 0x9c];
const RESET = "\u001b[0m";

export class EscapeFilter {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #state: "text" | "escape" | "control" | "string" = "text";
  #parameters = "";
  #styled = false;

  /** The next chunk. Bytes that are no UTF-8 become U+FFFD, as the terminal would show them. */
  filter(bytes: Uint8Array): string {
    return this.filterText(this.#decoder.decode(bytes, { stream: true }));
  }

  filterText(text: string): string {
    let shown = "";
    let at = 0;
    while (at < text.length) {
      if (this.#state === "text") {
        CONTROL.lastIndex = at;
        const found = CONTROL.exec(text)?.index ?? text.length;
        shown += text.slice(at, found);
        if (found < text.length) this.#begin(text.charCodeAt(found));
        at = found + 1;
      } else {
        const part = this.#continue(text[at] ?? "", text.charCodeAt(at));
        shown += part ?? "";
        if (part === undefined) this.#state = "text";
        else at++;
      }
    }
    return shown;
  }

  /** What was written ends: the next text has no style of it. */
  end(): string {
    const rest = this.filterText(this.#decoder.decode());
    const reset = this.#styled ? RESET : "";
    this.#state = "text";
    this.#styled = false;
    return rest + reset;
  }

  /** A control character in text: ESC, or one that stands for ESC and another character. */
  #begin(code: number): void {
    if (code === 0x1b) this.#state = "escape";
    else if (code >= 0x80) this.#introduce(String.fromCharCode(code - 0x40));
  }

  #introduce(character: string): void {
    this.#parameters = "";
    this.#state = character === "[" ? "control" : "]PX^_".includes(character) ? "string" : "text";
  }

  /** A character of a sequence: what it makes of it. Undefined if the character is none: it ends the sequence, and is text. */
  #continue(character: string, code: number): string | undefined {
    if (code === 0x1b) this.#state = "escape";
    else if (this.#state === "string") {
      if (code === 0x0a) return undefined;
      if (STRING_ENDS.includes(code)) this.#state = "text";
    } else if (code < 0x20 || code > 0x7e) return undefined;
    else if (this.#state === "escape") {
      // ESC ( B and the like: one more is to come.
      if (code > 0x2f) this.#introduce(character);
    } else if (code >= 0x40) return this.#endControl(character);
    else if (this.#parameters.length <= MAX_PARAMETERS) this.#parameters += character;
    return "";
  }

  #endControl(letter: string): string {
    this.#state = "text";
    if (letter !== "m" || !STYLE.test(this.#parameters) || this.#parameters.length > MAX_PARAMETERS) return "";
    this.#styled = !/^0*$/.test(this.#parameters);
    return `\u001b[${this.#parameters}m`;
  }
}

interface Output {
  readonly isTTY?: boolean;
}

/** A whole text as this stream may show it. */
export function textFor({ isTTY }: Output, text: string): string {
  if (isTTY !== true) return text;
  const filter = new EscapeFilter();
  return filter.filterText(text) + filter.end();
}
