/** What the output can display. Piped output is for programs: it is never shortened, coloured or redrawn. */

export interface Terminal {
  /** Columns; absent in a pipe, where nothing has to fit. */
  readonly width?: number;
  readonly colour: boolean;
  readonly unicode: boolean;
}

type Environment = Readonly<Record<string, string | undefined>>;

interface Output {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

export function detectTerminal(output: Output = process.stdout, env: Environment = process.env): Terminal {
  const unicode = hasUtf8Locale(env);
  if (output.isTTY !== true) return { colour: false, unicode };
  const given = Number(env.COLUMNS);
  const width = Number.isInteger(given) && given > 0 ? given : (output.columns ?? 80);
  // https://no-color.org: set to anything but the empty string.
  const colour = (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
  // A new pseudo-terminal may report 0 columns.
  return { width: width > 0 ? width : 80, colour, unicode };
}

/** The first of these that is set decides, as in setlocale(3). */
function hasUtf8Locale(env: Environment): boolean {
  const locale = [env.LC_ALL, env.LC_CTYPE, env.LANG].find((value) => value !== undefined && value !== "");
  return /utf-?8/i.test(locale ?? "");
}

const COLOURS = { red: 31, green: 32, yellow: 33, blue: 34, cyan: 36, grey: 90, bold: 1 } as const;
export type Colour = keyof typeof COLOURS;

export function paint(terminal: Terminal, colour: Colour | undefined, text: string): string {
  return terminal.colour && colour !== undefined && text !== "" ? `\u001b[${COLOURS[colour]}m${text}\u001b[0m` : text;
}

/** The colour of a state, the same in every list. */
export function stateColour(state: string): Colour | undefined {
  switch (state) {
    case "succeeded":
    case "ready":
    case "ok":
      return "green";
    case "failed":
    case "banned":
    case "FAIL":
      return "red";
    case "cancelled":
    case "held":
    case "draining":
    case "paused":
    case "suspended":
    case "disconnected":
    case "warn":
      return "yellow";
    case "running":
    case "busy":
      return "cyan";
    default:
      return undefined;
  }
}

/** Untrusted text (names, errors, commands) for one line of a terminal. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const UNSEEN = /[\p{Mn}\p{Me}\u200b-\u200f\u2028-\u202e\u2060-\u2064]/u;
/** Escape sequences and bidirectional marks could disguise a line. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

/** One line, with control characters escaped. */
export function escapeControls(text: string): string {
  return text.replace(UNSAFE, (character) => {
    if (character === "\n") return "\\n";
    if (character === "\t") return "\\t";
    const code = character.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** How many terminal columns the text takes. */
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
