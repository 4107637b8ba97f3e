/**
 * What the tasks of a job run.
 *
 * Schemas of recipes, numbers and limits of tasks, for clients and for laboro's own link.
 */
import { badInput } from "../base/errors.js";
import { fields, optional, unexpectedValue } from "./input.js";
import { NO_OUTPUT_CAP } from "./job.js";
import * as s from "./schema.js";
import { checkedPath, MAX_FILE_BYTES, MAX_FILES, MAX_PATH, type TaskFiles } from "./task-files.js";
import { arrayFault, isRising, type Strides, taskNumber } from "./task-numbers.js";

/** Text, or bytes where a file name or argument is not UTF-8. */
export type Bytes = string | Uint8Array;

/** A counter `{#}` `{%}`, an entry, one of its columns, or a part: `{}` `{2}` `{2/.}`. See placeholders.ts. */
export const PLACEHOLDER = /\{(?:([#%])|([1-9]\d{0,3})?(\.|\/\/|\/\.|\/)?)\}/;

/**
 * An entry is several values, separated by tabs. `{}` is all of them, each a word, and `{2}` the second, or nothing.
 * With `repeated`, a word around `{}` is repeated for each value: x{} is xa xb; with `joined` it is xa b.
 */
export type Several = "joined" | "repeated";

/** Files at the worker that get the output instead of the broker, with placeholders. `output` is for both streams. */
export interface OutputFiles {
  readonly output?: string;
  readonly stdout?: string;
  readonly stderr?: string;
}

export const outputPaths = ({ output, stdout, stderr }: OutputFiles): readonly string[] =>
  [output, stdout, stderr].filter((path) => path !== undefined);

/** What a task does: run a command, run a script that is sent to the worker, or call a service. */
export type Recipe =
  | (OutputFiles & {
      readonly kind: "command";
      /** If `placeholders` is set, placeholders (placeholders.ts) are replaced for each task. */
      readonly argv: readonly Bytes[];
      readonly placeholders?: boolean;
      /** The last word of argv is a line for the shell that the words before it start; for /bin/sh if it is alone. */
      readonly shell?: boolean;
      readonly several?: Several;
      /** The entry of each task is its number, one of these. */
      readonly array?: Strides;
      /** A file at the worker that also gets the output. `{#}` is the task's number. No file is overwritten. */
      readonly log?: string;
      readonly dir?: Bytes;
      readonly env?: Readonly<Record<string, Bytes>>;
      readonly stdin?: Uint8Array;
      /** Its tasks run in a folder of their own, so it has no `dir`. */
      readonly files?: TaskFiles;
    })
  | (OutputFiles & {
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
    })
  | { readonly kind: "call"; readonly service: string; readonly body?: Uint8Array };

/**
 * What a worker must be able to run. `numbered`: a command that gets only the task's number. Some old workers know no
 * other kind; every worker for commands can run it. `files`: files are sent or returned, which only laboro's own
 * workers support.
 */
export type TaskKind = "command" | "numbered" | "script" | "call" | "files";

export function kindOf(recipe: Recipe): TaskKind {
  if (recipe.kind !== "call" && recipe.files !== undefined) return "files";
  return recipe.kind === "command" && isNumbered(recipe) ? "numbered" : recipe.kind;
}

function isNumbered(recipe: Extract<Recipe, { kind: "command" }>): boolean {
  const { argv, placeholders, shell, env, stdin, dir } = recipe;
  const [program, number] = argv;
  if (argv.length !== 2 || number !== "{#}" || placeholders !== true) return false;
  if (typeof program !== "string" || PLACEHOLDER.test(program)) return false;
  const bare = (env === undefined || Object.keys(env).length === 0) && outputPaths(recipe).length === 0;
  return shell !== true && bare && stdin === undefined && typeof dir === "string";
}

/** Named amounts: what a worker has, or what one task needs. `slots` is always present. */
export type Resources = Readonly<Record<string, number>> & { readonly slots: number };

/** As a need: all of the worker's amount. */
export const ALL = Number.MAX_SAFE_INTEGER;

/** A need at a worker with this total. */
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

/** In an array of numbers the entry is not sent, because it follows from the index. */
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

export const MAX_ENTRIES = 10_000_000;
const MAX_ARGUMENTS = 100_000;
export const MAX_STRIDES = 10_000;

const environment = s.mapped(s.record(s.argument()), (given, what) => {
  for (const name of Object.keys(given)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw unexpectedValue(what, "names of letters, digits and _", name);
  }
  return given;
});

const stride = s.mapped(
  s.object({
    first: s.count(),
    last: s.count(),
    step: s.withDefault(s.integer(1, Number.MAX_SAFE_INTEGER), 1),
  }),
  (given, what) => {
    if (given.last < given.first)
      throw unexpectedValue(what, "first to be at most last", `${given.first} and ${given.last}`);
    return given;
  },
);

export const array = s.mapped(s.list(stride, MAX_STRIDES), (given, what): Strides => {
  const fault = arrayFault(given);
  if (fault !== undefined) throw badInput(`${what}: expected each number once, but ${fault}`);
  return given;
});

export const numbers = s.mapped(s.list(stride, MAX_ENTRIES), (given, what): Strides => {
  if (!isRising(given)) throw badInput(`${what}: expected each number to be larger than the one before it`);
  return given;
});

export const readLinkNumbers = (value: unknown): Strides => numbers.read(value, "numbers");

const sha256 = s.mapped(s.text(64), (given, what) => {
  if (/^[0-9a-f]{64}$/.test(given)) return given;
  throw unexpectedValue(what, "64 hexadecimal digits", given);
});

export const sentFile = s.object({
  path: s.mapped(s.text(MAX_PATH), checkedPath),
  size: s.integer(0, MAX_FILE_BYTES),
  sha256,
  executable: s.optional(s.flag()),
});

const files = s.mapped(
  s.object({
    sent: s.optional(s.described(s.list(sentFile, MAX_FILES), "files whose bytes follow by sendFile")),
    use: s.optional(s.described(s.list(s.text(MAX_PATH), 100), "which of them a task gets, with placeholders")),
    returns: s.optional(
      s.described(s.list(s.text(MAX_PATH), 100), "what a task returns, with placeholders, *, ? and **"),
    ),
  }),
  (given, what) => {
    const { sent = [] } = given;
    // In this order, the contents of a folder follow it directly.
    const paths = sent.map(({ path }) => path.replaceAll("/", "\0")).sort();
    const clash = paths.findIndex((path, i) => paths[i + 1] === path || paths[i + 1]?.startsWith(`${path}\0`) === true);
    if (clash >= 0) {
      const path = sent.find((one) => one.path.replaceAll("/", "\0") === paths[clash])?.path;
      throw badInput(`${what}.sent: ${JSON.stringify(path)} occurs twice, or is also the folder of another file`);
    }
    const bytes = sent.reduce((sum, { size }) => sum + size, 0);
    if (bytes > MAX_FILE_BYTES) throw unexpectedValue(`${what}.sent`, `at most ${MAX_FILE_BYTES} bytes in all`, bytes);
    return given;
  },
);

const outputPath = (what: string) =>
  s.optional(
    s.described(
      s.text(4096),
      `a file at the worker that gets ${what} instead of the broker; with placeholders, {job} and {attempt}`,
    ),
  );
export const outputFiles = {
  output: outputPath("all output"),
  stdout: outputPath("the standard output"),
  stderr: outputPath("the standard error"),
};

/** Directory, environment and input of a process. */
const processFields = {
  several: s.optional(
    s.described(
      s.choice("joined", "repeated"),
      "an entry is several values, separated by tabs: {} is all of them; repeated: with the word around it",
    ),
  ),
  array: s.optional(s.described(array, "a task for each of these numbers, which is its number and its entry")),
  dir: s.optional(s.argument()),
  env: s.optional(environment),
  stdin: s.optional(s.bytes()),
  ...outputFiles,
  files: s.optional(s.described(files, "files that are sent to the worker and returned from it")),
};

const command = s.object({
  kind: s.choice("command"),
  argv: s.list(s.argument(), MAX_ARGUMENTS),
  placeholders: s.optional(s.flag("replace {} {.} {/} {//} {/.} {#} {%} and {1} {2} … in the arguments, task by task")),
  shell: s.optional(
    s.flag("the last argument is a line: for /bin/sh if it is alone, else for the shell before it, as in bash -c LINE"),
  ),
  log: s.optional(
    s.described(s.text(4096), "a file at the worker that gets the output too; {#} in it is the task's number"),
  ),
  ...processFields,
});

const script = s.object({
  kind: s.choice("script"),
  content: s.bytes(),
  type: s.described(s.text(16), "the file's extension: .sh"),
  args: s.optional(s.list(s.argument(), MAX_ARGUMENTS)),
  ...processFields,
});

const call = s.object({ kind: s.choice("call"), service: s.text(), body: s.optional(s.bytes()) });

const recipeKinds = { command, script, call };

export const recipe = s.mapped(s.unionByKind(recipeKinds), (given, what): Recipe => {
  if (given.kind !== "call" && given.files !== undefined && given.dir !== undefined)
    throw unexpectedValue(`${what}.dir`, "none beside files: such a task runs in a folder of its own", given.dir);
  if (given.kind !== "call" && given.output !== undefined && (given.stdout ?? given.stderr) !== undefined)
    throw unexpectedValue(`${what}.output`, "none beside stdout and stderr, which it is both of", given.output);
  if (given.kind !== "command") return given;
  if (given.argv.length === 0 || given.argv[0]?.length === 0)
    throw unexpectedValue(`${what}.argv`, "a command", "nothing");
  if (given.shell === true && given.argv.length > 1 && given.argv.at(-2) !== "-c")
    throw unexpectedValue(`${what}.argv`, "one line for the shell, or a shell, -c and the line", given.argv.join(" "));
  return given;
});

/** The recipe in a message of the link. Members that a newer version has added are ignored. */
export function readLinkRecipe(value: unknown, what: string): Recipe {
  const given = fields(value, what);
  const kind = Object.entries(recipeKinds).find(([name]) => name === given.kind)?.[1];
  return recipe.read(kind === undefined ? given : s.knownMembers<s.Shape>(kind, given), what);
}

export const timeLimitMs = s.positive();
export const timeLimitPercent = s.integer(
  101,
  1_000_000,
  "a time limit in percent of the median of the job's tasks that succeeded at the same worker, once three have",
);
/** Null means no cap. */
export const outputCap: s.Optional<number, number | null> = {
  ...s.optional(s.count()),
  read: (value, what) => (value === null ? NO_OUTPUT_CAP : (optional(value, what, s.count().read) as number)),
  json: () => ({ type: ["integer", "null"], minimum: 0, description: "output kept per task, in bytes; null for all" }),
};
export const relay = s.optional(s.flag());

/** The limits that workers apply. */
const taskLimits = s.object({
  timeLimitMs: s.optional(timeLimitMs),
  timeLimitPercent: s.optional(timeLimitPercent),
  timeRequestMs: s.optional(timeLimitMs),
  outputCap: s.count(),
  relay,
});

/** The limits in a message of the link. Members that a newer version has added are ignored. */
export const readLinkLimits = (value: unknown, what: string): s.ReadType<typeof taskLimits> =>
  taskLimits.read(s.knownMembers(taskLimits, fields(value, what)), what);
