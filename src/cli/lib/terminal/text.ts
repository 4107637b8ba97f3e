/** Untrusted text (names, errors, commands) for one line of a terminal. */
import type { Terminal } from "./terminal.js";

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const UNSEEN = /[\p{Mn}\p{Me}\u200b-\u200f\u2028-\u202e\u2060-\u2064]/u;
/** Escape sequences, and marks that turn the direction of writing, could make a line say something else. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

/** One line in which every control character is written out. */
export function escapeControls(text: string): string {
  return text.replace(UNSAFE, (character) => {
    if (character === "\n") return "\\n";
    if (character === "\t") return "\\t";
    const code = character.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** How many columns it takes. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const character of text) width += UNSEEN.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
  return width;
}

/** Cut to this many columns, with an ellipsis. `middle` keeps the start and the end. */
export function truncate(text: string, width: number, terminal: Terminal, where: "end" | "middle" = "end"): string {
  if (displayWidth(text) <= width) return text;
  const sign = terminal.unicode ? "…" : "..";
  const available = width - sign.length;
  if (available < 1) return sign.slice(0, Math.max(width, 0));
  const behind = where === "end" ? 0 : Math.floor(available / 2);
  const end = [...takeWidth([...text].reverse(), behind)].reverse().join("");
  return `${[...takeWidth(text, available - behind)].join("")}${sign}${end}`;
}

function* takeWidth(characters: Iterable<string>, width: number): Generator<string> {
  let used = 0;
  for (const character of characters) {
    used += displayWidth(character);
    if (used > width) return;
    yield character;
  }
}

export function pad(text: string, width: number, side: "left" | "right"): string {
  const blanks = " ".repeat(Math.max(0, width - displayWidth(text)));
  return side === "left" ? text + blanks : blanks + text;
}
