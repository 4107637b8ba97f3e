/**
 * A table that fits the terminal. If it is too wide, columns with a `minWidth` are shortened; if that is not enough,
 * columns with a `dropPriority` are left out, the highest first. In a pipe it has every column at full width.
 *
 * Redraws a screen of lines every second, until it is complete or Ctrl-C ends the program.
 */
import { setTimeout as pause } from "node:timers/promises";
import { badInput } from "../../../base/errors.js";
import { printJson, printLines } from "../print.js";
import {
  type Colour,
  detectTerminal,
  displayWidth,
  escapeControls,
  pad,
  paint,
  type Terminal,
  truncate,
} from "./terminal.js";

export interface Column {
  readonly title: string;
  readonly align?: "left" | "right";
  /** May be shortened to this width. */
  readonly minWidth?: number;
  /** Cut in the middle: the values differ at their ends. */
  readonly keepEnd?: boolean;
  /** May be left out, the highest first. */
  readonly dropPriority?: number;
}

export type Cell = string | { readonly text: string; readonly colour?: Colour | undefined };

const GAP = "  ";

interface ListOutput {
  /** The document that --json prints. */
  readonly document: object;
  readonly json: boolean | undefined;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly Cell[])[];
  /** The line for an empty list. */
  readonly none: string;
}

export function printList({ document, json, columns, rows, none }: ListOutput): void {
  if (json === true) printJson(document);
  else if (rows.length === 0) printLines(none);
  else printLines(...table(columns, rows, detectTerminal()));
}

export function table(columns: readonly Column[], rows: readonly (readonly Cell[])[], terminal: Terminal): string[] {
  const texts = rows.map((row) => columns.map((_, i) => escapeControls(textOf(row[i]))));
  const shown = columns
    .map((column, at) => ({
      ...column,
      at,
      width: texts.reduce((most, row) => Math.max(most, displayWidth(row[at] ?? "")), column.title.length),
    }))
    // A column that is empty in every row is left out.
    .filter(({ at, dropPriority }) => dropPriority === undefined || texts.some((row) => row[at] !== ""));
  if (terminal.width !== undefined) fitToWidth(shown, terminal.width);
  const line = (cell: (column: SizedColumn) => string): string => shown.map(cell).join(GAP).trimEnd();
  const head = line((column) =>
    paint(terminal, "grey", pad(truncate(column.title, column.width, terminal), column.width, column.align ?? "left")),
  );
  const body = texts.map((row, i) =>
    line((column) => {
      const whole = row[column.at] ?? "";
      const short = truncate(whole, column.width, terminal, column.keepEnd === true ? "middle" : "end");
      const text = pad(short, column.width, column.align ?? "left");
      return paint(terminal, colourOfCell(rows[i]?.[column.at]), text);
    }),
  );
  return [head, ...body];
}

type SizedColumn = Column & { readonly at: number; width: number };

function fitToWidth(columns: SizedColumn[], width: number): void {
  for (;;) {
    let excess = columns.reduce((sum, column) => sum + column.width + GAP.length, -GAP.length) - width;
    if (excess <= 0) return;
    const spare = columns.reduce((sum, { minWidth, width: now }) => sum + now - Math.min(now, minWidth ?? now), 0);
    const droppable = columns.filter(({ dropPriority }) => dropPriority !== undefined);
    if (spare < excess && droppable.length > 0) {
      const first = droppable.reduce((a, b) => ((b.dropPriority ?? 0) > (a.dropPriority ?? 0) ? b : a));
      columns.splice(columns.indexOf(first), 1);
      continue;
    }
    // The widest is shortened first, so that columns end up equally wide.
    while (excess > 0) {
      const widest = columns
        .filter(({ minWidth, width: now }) => minWidth !== undefined && now > minWidth)
        .reduce<SizedColumn | undefined>((a, b) => (a === undefined || b.width > a.width ? b : a), undefined);
      if (widest === undefined) return;
      widest.width--;
      excess--;
    }
    return;
  }
}

const textOf = (cell: Cell | undefined): string => (typeof cell === "string" ? cell : (cell?.text ?? ""));
const colourOfCell = (cell: Cell | undefined): Colour | undefined =>
  typeof cell === "object" ? cell.colour : undefined;

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
    // Overwrites line by line, because a cleared screen would flicker. A new pseudo-terminal may report 0 rows.
    const shown = complete ? lines : lines.slice(0, Math.max(1, (stdout.rows || 24) - 1));
    stdout.write(`${HOME}${shown.map((line) => `${line}${CLEAR_LINE}\n`).join("")}${CLEAR_BELOW}`);
    if (complete) return;
    await pause(REDRAW_MS);
  }
}
