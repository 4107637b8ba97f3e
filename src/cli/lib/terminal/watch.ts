/** Redraws a screen of lines every second, until it is complete or Ctrl-C ends the program. */
import { setTimeout as pause } from "node:timers/promises";
import { badInput } from "../../../base/errors.js";

const REDRAW_MS = 1_000;
const HOME = "\u001b[H";
const CLEAR_LINE = "\u001b[K";
const CLEAR_BELOW = "\u001b[J";

export interface Screen {
  readonly lines: readonly string[];
  /** Nothing will change any more. */
  readonly complete: boolean;
}

/** The lines must be safe for a terminal: tables and escaped texts. */
export async function watchScreen(render: () => Promise<Screen>): Promise<void> {
  const { stdout } = process;
  if (!stdout.isTTY) throw badInput("--watch needs a terminal; in a script use laboro wait, or --json repeatedly");
  stdout.write(`${HOME}${CLEAR_BELOW}`);
  for (;;) {
    const { lines, complete } = await render();
    // Line by line over the old ones: a cleared screen would flicker.
    // A new pseudo-terminal may say that it has no rows at all.
    const shown = complete ? lines : lines.slice(0, Math.max(1, (stdout.rows || 24) - 1));
    stdout.write(`${HOME}${shown.map((line) => `${line}${CLEAR_LINE}\n`).join("")}${CLEAR_BELOW}`);
    if (complete) return;
    await pause(REDRAW_MS);
  }
}
