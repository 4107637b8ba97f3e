/** Confirmation before changes that cannot be undone. */
import { createInterface } from "node:readline/promises";
import { badInput } from "../../base/errors.js";
import { escapeControls } from "./terminal/terminal.js";

/** Throws LABORO_BAD_INPUT if there is no terminal to ask at. */
export function requireTerminal(verb: string): void {
  if (process.stdin.isTTY && process.stderr.isTTY) return;
  throw badInput(
    `laboro ${verb} needs a confirmation, but there is no terminal: name the jobs by number, or add --yes`,
  );
}

export async function confirm(question: string): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${escapeControls(question)} [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}
