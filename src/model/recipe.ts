/** What the tasks of a job run. */
import type { TaskFiles } from "./task-files.js";
import { type Strides, taskNumber } from "./task-numbers.js";

/** Text, or bytes where a file name or argument is not UTF-8. */
export type Bytes = string | Uint8Array;

/**
 * A counter `{#}` `{%}`, or an entry or one column of it, or a part of that: `{}` `{2}` `{2/.}`. Explained in
 * placeholders.ts.
 */
export const PLACEHOLDER = /\{(?:([#%])|([1-9]\d{0,3})?(\.|\/\/|\/\.|\/)?)\}/;

/**
 * An entry is several values, separated by tabs. `{}` is all of them, each a word, and `{2}` the second, or nothing.
 * With `repeated`, a word around `{}` is repeated for each value: x{} is xa xb; with `joined` it is xa b.
 */
export type Several = "joined" | "repeated";

/** What a task does: run a command, run a script that is sent to the worker, or call a service. */
export type Recipe =
  | {
      readonly kind: "command";
      /** If `placeholders` is set, placeholders (placeholders.ts) are replaced for each task. */
      readonly argv: readonly Bytes[];
      readonly placeholders?: boolean;
      /** The last word of argv is a line for the shell that the words before it start; for /bin/sh if it is alone. */
      readonly shell?: boolean;
      readonly several?: Several;
      /** The entry of each task is its number, one of these. */
      readonly array?: Strides;
      /**
       * A file at the worker that also gets the output. `{#}` in it is the number of the task. An existing file is not
       * overwritten.
       */
      readonly log?: string;
      readonly dir?: Bytes;
      readonly env?: Readonly<Record<string, Bytes>>;
      readonly stdin?: Uint8Array;
      /** Its tasks run in a folder of their own, so it has no `dir`. */
      readonly files?: TaskFiles;
    }
  | {
      readonly kind: "script";
      readonly content: Uint8Array;
      /** The extension of the file, `.sh` or `.m`. It selects the interpreter if there is no #! line. */
      readonly type: string;
      readonly args?: readonly Bytes[];
      readonly several?: Several;
      readonly array?: Strides;
      readonly dir?: Bytes;
      readonly env?: Readonly<Record<string, Bytes>>;
      readonly stdin?: Uint8Array;
      /** Its tasks run in a folder of their own, so it has no `dir`. */
      readonly files?: TaskFiles;
    }
  | { readonly kind: "call"; readonly service: string; readonly body?: Uint8Array };

/**
 * What a worker must be able to run. `numbered` is a command that gets only the number of the task. Some old workers
 * know no other kind, and every worker for commands can run it. `files`: files are sent or returned, which only laboro's
 * own workers do.
 */
export type TaskKind = "command" | "numbered" | "script" | "call" | "files";

export function kindOf(recipe: Recipe): TaskKind {
  if (recipe.kind !== "call" && recipe.files !== undefined) return "files";
  return recipe.kind === "command" && isNumbered(recipe) ? "numbered" : recipe.kind;
}

function isNumbered({ argv, placeholders, shell, env, stdin, dir }: Extract<Recipe, { kind: "command" }>): boolean {
  const [program, number] = argv;
  if (argv.length !== 2 || number !== "{#}" || placeholders !== true) return false;
  if (typeof program !== "string" || PLACEHOLDER.test(program)) return false;
  const bare = env === undefined || Object.keys(env).length === 0;
  return shell !== true && bare && stdin === undefined && typeof dir === "string";
}

/** Named amounts: what a worker has, or what one task needs. `slots` is always present. */
export type Resources = Readonly<Record<string, number>> & { readonly slots: number };

/** Of a need: all that the worker has of it. */
export const ALL = Number.MAX_SAFE_INTEGER;

/** What a need is at a worker that has so much. */
export const neededOf = (need: number, total: number): number => (need === ALL ? total : need);

/** What a worker must have to run a task or request. */
export interface Requirement {
  readonly pool: string;
  readonly tags: readonly string[];
  readonly service?: string;
  readonly needs: Resources;
}

export const DEFAULT_POOL = "default";
export const ONE_SLOT: Resources = { slots: 1 };

/** How workers of every protocol run a process recipe. */
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

/** The words before the line of a command with `shell`. */
export const shellOf = ({ argv }: Extract<Recipe, { kind: "command" }>): readonly Bytes[] =>
  argv.length > 1 ? argv.slice(0, -1) : ["/bin/sh", "-c"];
