/** How workers of every protocol run a process recipe. */
import type { Bytes, Recipe } from "./recipe.js";
import { taskNumber } from "./task-numbers.js";

export type ScriptRecipe = Extract<Recipe, { kind: "script" }>;
export type ProcessRecipe = Extract<Recipe, { kind: "command" }> | ScriptRecipe;

/** In an array of numbers the entry is not sent: it follows from the index. */
export function withEntry<Task extends { readonly index: number; readonly entry?: Bytes | undefined }>(
  task: Task,
  recipe: ProcessRecipe,
): Task {
  if (task.entry !== undefined || recipe.array === undefined) return task;
  return { ...task, entry: String(taskNumber({ recipe }, task.index)) };
}

/** Whether a #! line names the interpreter. */
export const hasShebang = ({ content }: ScriptRecipe): boolean => content[0] === 0x23 && content[1] === 0x21;

/** The words before the script's path. */
export function interpreterOf(script: ScriptRecipe): readonly string[] {
  if (hasShebang(script)) return [];
  if (script.type === ".py") return ["python3"];
  return [script.type === ".bash" ? "bash" : "/bin/sh"];
}
