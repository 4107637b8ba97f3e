import type { Strides } from "./task-numbers.js";

/** Text, or bytes where a file name or argument is not UTF-8. */
export type Bytes = string | Uint8Array;

/** A counter `{#}` `{%}`, or an entry or one column of it, or a part of that: `{}` `{2}` `{2/.}`. Explained in placeholders.ts. */
export const PLACEHOLDER = /\{(?:([#%])|([1-9]\d{0,3})?(\.|\/\/|\/\.|\/)?)\}/;

/** What a task is: run a command, run a shipped script, call a service, or nothing (for measuring). */
export type Recipe =
  | {
      readonly kind: "command";
      /** Placeholders (placeholders.ts) are replaced task by task where `placeholders` is set. */
      readonly argv: readonly Bytes[];
      readonly placeholders?: boolean;
      /** The one argument of argv is a line for /bin/sh. */
      readonly shell?: boolean;
      /** The entry of a task is its number, one of these: a million of them cost as much as one. */
      readonly array?: Strides;
      /** A file at the worker that gets the output too; `{#}` in it is the task's number. It is never overwritten. */
      readonly log?: string;
      readonly dir?: Bytes;
      readonly env?: Readonly<Record<string, Bytes>>;
      readonly stdin?: Uint8Array;
    }
  | {
      readonly kind: "script";
      readonly content: Uint8Array;
      /** The file's extension, `.sh` or `.m`; decides what runs it where it has no #! line. */
      readonly type: string;
      readonly args?: readonly Bytes[];
      readonly array?: Strides;
      readonly dir?: Bytes;
      readonly env?: Readonly<Record<string, Bytes>>;
      readonly stdin?: Uint8Array;
    }
  | { readonly kind: "call"; readonly service: string; readonly body?: Uint8Array };

/**
 * What a worker must know how to do. `numbered` is a command that gets the task's number and nothing else: the only kind that some old
 * workers know, and one that every worker for commands can do.
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

/** Named amounts: what a worker has, or what one task needs. `slots` is always there. */
export type Resources = Readonly<Record<string, number>> & { readonly slots: number };

/** What a worker must have to take a piece of work. */
export interface Requirement {
  readonly pool: string;
  readonly tags: readonly string[];
  readonly service?: string;
  readonly needs: Resources;
}

export const DEFAULT_POOL = "default";
export const ONE_SLOT: Resources = { slots: 1 };
