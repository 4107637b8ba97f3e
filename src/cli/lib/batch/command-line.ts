/** The command of a task, as it could be typed in a shell. */

import { expandLine, expandWords } from "../../../model/placeholders.js";
import { type Bytes, numberAt } from "../../../model/recipe.js";
import { shellQuote } from "../shell-quote.js";
import type { ParsedSubmission } from "../submission/options.js";

export function commandLine({ recipe, entries }: ParsedSubmission, index: number): string {
  const number = "array" in recipe && recipe.array !== undefined ? numberAt(recipe.array, index) : undefined;
  const entry = entries?.[index] ?? (number === undefined ? undefined : String(number));
  switch (recipe.kind) {
    case "command": {
      const [line = ""] = recipe.argv;
      if (recipe.shell === true) return text(expandLine(line, index, entry));
      return shellJoin(expandWords(recipe.argv, index, entry));
    }
    case "script":
      return shellJoin([`script${recipe.type}`, ...expandWords(recipe.args ?? [], index, entry)]);
    case "call":
      return shellJoin([recipe.service, ...(entry === undefined ? [] : [entry])]);
  }
}

const text = (bytes: Bytes): string => Buffer.from(bytes).toString();

const shellJoin = (words: readonly Bytes[]): string => words.map((word) => shellQuote(text(word))).join(" ");
