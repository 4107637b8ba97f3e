/**
 * Filters output of tasks and peers for a terminal. Text, text styles (SGR), tab, newline and carriage return pass.
 * Other control characters and escape sequences are removed: they could overwrite what is on the screen, set the title
 * or the clipboard, or make the terminal type an answer into the shell.
 *
 *   text      characters pass
 *   escape    after ESC
 *   control   after ESC [: parameters, until a letter ends the sequence
 *   string    after ESC ], P, X, ^ or _: removed until BEL, ESC \ or the end of the line
 *
 * ESC is written only as part of a complete SGR sequence. So the terminal is never inside a sequence at the end of a
 * chunk.
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

  /** Filters the next chunk. Bytes that are not UTF-8 become U+FFFD, as a terminal shows them. */
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

  /** Ends the text: returns the sequence that resets its styles. */
  end(): string {
    const rest = this.filterText(this.#decoder.decode());
    const reset = this.#styled ? RESET : "";
    this.#state = "text";
    this.#styled = false;
    return rest + reset;
  }

  /** Handles a control character in text: ESC, or a C1 character that stands for ESC and another character. */
  #begin(code: number): void {
    if (code === 0x1b) this.#state = "escape";
    else if (code >= 0x80) this.#introduce(String.fromCharCode(code - 0x40));
  }

  #introduce(character: string): void {
    this.#parameters = "";
    this.#state = character === "[" ? "control" : "]PX^_".includes(character) ? "string" : "text";
  }

  /**
   * Handles a character inside a sequence and returns what is printed. Undefined if the character is not part of it:
   * then it ends the sequence and is text.
   */
  #continue(character: string, code: number): string | undefined {
    if (code === 0x1b) this.#state = "escape";
    else if (this.#state === "string") {
      if (code === 0x0a) return undefined;
      if (STRING_ENDS.includes(code)) this.#state = "text";
    } else if (code < 0x20 || code > 0x7e) return undefined;
    else if (this.#state === "escape") {
      // Sequences such as ESC ( B have one more character.
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

/** The text, filtered if the stream is a terminal. */
export function textFor({ isTTY }: Output, text: string): string {
  if (isTTY !== true) return text;
  const filter = new EscapeFilter();
  return filter.filterText(text) + filter.end();
}
