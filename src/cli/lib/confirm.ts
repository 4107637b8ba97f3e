/** Questions before something that cannot be undone. */
import { createInterface } from "node:readline/promises";
import { badInput } from "../../base/errors.js";
import { escapeControls } from "./terminal/text.js";

/** Throws LABORO_BAD_INPUT where nobody can be asked. */
export function requireTerminal(verb: string): void {
  if (process.stdin.isTTY && process.stderr.isTTY) return;
  throw badInput(
    `laboro ${verb} asks before it does this, and there is no terminal: name the jobs by number, or add --yes`,
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
