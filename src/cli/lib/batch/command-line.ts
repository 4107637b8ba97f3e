/** The command of a task, as it could be typed in a shell. */

import { expandLine, expandWords } from "../../../model/placeholders.js";
import type { Bytes } from "../../../model/recipe.js";
import { taskNumber } from "../../../model/task-numbers.js";
import { shellQuote } from "../shell-quote.js";
import type { ParsedSubmission } from "../submission/options.js";

export function commandLine(submission: ParsedSubmission, index: number): string {
  const { recipe, entries } = submission;
  const number = taskNumber(submission, index);
  const entry = entries?.[index] ?? ("array" in recipe && recipe.array !== undefined ? String(number) : undefined);
  switch (recipe.kind) {
    case "command": {
      const [line = ""] = recipe.argv;
      if (recipe.shell === true) return text(expandLine(line, number, entry));
      return shellJoin(expandWords(recipe.argv, number, entry));
    }
    case "script":
      return shellJoin([`script${recipe.type}`, ...expandWords(recipe.args ?? [], number, entry)]);
    case "call":
      return shellJoin([recipe.service, ...(entry === undefined ? [] : [entry])]);
    case "noop":
      return "noop";
  }
}

const text = (bytes: Bytes): string => Buffer.from(bytes).toString();

const shellJoin = (words: readonly Bytes[]): string => words.map((word) => shellQuote(text(word))).join(" ");
