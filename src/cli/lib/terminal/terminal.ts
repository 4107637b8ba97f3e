/** What the output can show. Piped output is for programs: it is never cut, coloured or redrawn. */

export interface Terminal {
  /** Columns; absent in a pipe, where nothing has to fit. */
  readonly width?: number;
  readonly colour: boolean;
  readonly unicode: boolean;
}

export type Environment = Readonly<Record<string, string | undefined>>;

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
  // A new pseudo-terminal may say that it has no columns at all.
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

/** One colour a state, in every list. */
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
