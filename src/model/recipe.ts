import type { Strides } from "./task-numbers.js";

/** Text, or bytes where a file name or argument is not UTF-8. */
export type Bytes = string | Uint8Array;

/**
 * A counter `{#}` `{%}`, or an entry or one column of it, or a part of that: `{}` `{2}` `{2/.}`. Explained in
 * placeholders.ts.
 */
export const PLACEHOLDER = /\{(?:([#%])|([1-9]\d{0,3})?(\.|\/\/|\/\.|\/)?)\}/;

/** What a task does: run a command, run a script that is sent to the worker, or call a service. */
export type Recipe =
  | {
      readonly kind: "command";
      /** If `placeholders` is set, placeholders (placeholders.ts) are replaced for each task. */
      readonly argv: readonly Bytes[];
      readonly placeholders?: boolean;
      /** The only word of argv is a line for /bin/sh. */
      readonly shell?: boolean;
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
    }
  | {
      readonly kind: "script";
      readonly content: Uint8Array;
      /** The extension of the file, `.sh` or `.m`. It selects the interpreter if there is no #! line. */
      readonly type: string;
      readonly args?: readonly Bytes[];
      readonly array?: Strides;
      readonly dir?: Bytes;
      readonly env?: Readonly<Record<string, Bytes>>;
      readonly stdin?: Uint8Array;
    }
  | { readonly kind: "call"; readonly service: string; readonly body?: Uint8Array };

/**
 * What a worker must be able to run. `numbered` is a command that gets only the number of the task. Some old workers
 * know no other kind, and every worker for commands can run it.
 */
export type TaskKind = "command" | "numbered" | "script" | "call";

export function kindOf(recipe: Recipe): TaskKind {
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

/** What a worker must have to run a task or request. */
export interface Requirement {
  readonly pool: string;
  readonly tags: readonly string[];
  readonly service?: string;
  readonly needs: Resources;
}

export const DEFAULT_POOL = "default";
export const ONE_SLOT: Resources = { slots: 1 };
