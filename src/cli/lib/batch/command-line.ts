/** The command of a task, as it could be typed in a shell. */

import { expandWords, showLine } from "../../../model/placeholders.js";
import type { Bytes } from "../../../model/recipe.js";
import { taskNumber } from "../../../model/task-numbers.js";
import { shellQuote } from "../shell-quote.js";
import { ENTRY_AS_LINE, type ParsedSubmission } from "../submission/options.js";

export function commandLine(submission: ParsedSubmission, index: number): string {
  const { recipe, entries } = submission;
  const number = taskNumber(submission, index);
  const entry = entries?.[index] ?? ("array" in recipe && recipe.array !== undefined ? String(number) : undefined);
  const values = { number, entry };
  switch (recipe.kind) {
    case "command": {
      const [line = ""] = recipe.argv;
      if (recipe.shell === true) return showLine(line, values);
      if (entry !== undefined && recipe.argv.join(" ") === ENTRY_AS_LINE.join(" ")) return text(entry);
      return shellJoin(expandWords(recipe.argv, values));
    }
    case "script":
      return shellJoin([`script${recipe.type}`, ...expandWords(recipe.args ?? [], values)]);
    case "call":
      return shellJoin([recipe.service, ...(entry === undefined ? [] : [entry])]);
  }
}

const text = (bytes: Bytes): string => Buffer.from(bytes).toString();

const shellJoin = (words: readonly Bytes[]): string => words.map((word) => shellQuote(text(word))).join(" ");
