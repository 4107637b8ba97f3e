/** Text, or bytes where a file name or argument is not UTF-8. */
export type Bytes = string | Uint8Array;

/** The numbers first, first + step, … up to last. */
export interface Stride {
  readonly first: number;
  readonly last: number;
  readonly step: number;
}

export const strideLength = ({ first, last, step }: Stride): number => Math.floor((last - first) / step) + 1;

/** The number that stands at `index` of an array of strides. */
export function numberAt(array: readonly Stride[], index: number): number | undefined {
  let left = index;
  for (const stride of array) {
    const length = strideLength(stride);
    if (left < length) return stride.first + left * stride.step;
    left -= length;
  }
  return undefined;
}

/** A number that an array has twice; an array is a set. */
export function repeatedNumber(array: readonly Stride[]): number | undefined {
  const byFirst = [...array].sort((a, b) => a.first - b.first);
  for (const [i, stride] of byFirst.entries()) {
    for (const other of byFirst.slice(i + 1)) {
      if (other.first > stride.last) break;
      const common = commonNumber(stride, other);
      if (common !== undefined) return common;
    }
  }
  return undefined;
}

/** Goes through the numbers of the wider step, at most as many as it takes until they repeat modulo the other step. */
function commonNumber(a: Stride, b: Stride): number | undefined {
  const [wide, narrow] = a.step < b.step ? [b, a] : [a, b];
  if ((b.first - a.first) % greatestDivisor(a.step, b.step) !== 0) return undefined;
  const from = Math.max(a.first, b.first);
  const first = wide.first + Math.ceil((from - wide.first) / wide.step) * wide.step;
  for (let i = 0; i < narrow.step; i++) {
    const number = first + i * wide.step;
    if (number > Math.min(a.last, b.last)) return undefined;
    if ((number - narrow.first) % narrow.step === 0) return number;
  }
  return undefined;
}

const greatestDivisor = (a: number, b: number): number => (b === 0 ? a : greatestDivisor(b, a % b));

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
      /** The entry of a task is a number: a million of them cost as much as one. */
      readonly array?: readonly Stride[];
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
      readonly array?: readonly Stride[];
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
