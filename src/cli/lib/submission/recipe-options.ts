/** The recipe that the words and options of `run` and `submit` make, and the default name of its job. */
import { basename } from "node:path";
import { badInput, type LaboroError } from "../../../base/errors.js";
import type { Recipe, Several } from "../../../model/recipe.js";
import { readInput } from "./entries.js";
import type { SubmissionOptions } from "./options.js";
import { filesOf } from "./output-files.js";
import { processPrefix } from "./parallel-options.js";

export function recipeOf(
  command: readonly string[],
  filled: readonly string[],
  isLine: boolean,
  several: Several | undefined,
  options: SubmissionOptions,
): Recipe {
  if (options.log !== undefined && (options.service !== undefined || options.script !== undefined))
    throw badInput("--log can only be used with a command");
  const [[file] = []] = filesOf(options);
  if (options.service !== undefined) {
    if (file !== undefined) throw badInput(`--${file} cannot be used with --service: the reply is the output`);
    if (command.length > 1) throw badInput("--service expects one body, or entries");
    const [body] = command;
    return { kind: "call", service: options.service, ...(body === undefined ? {} : { body: Buffer.from(body) }) };
  }
  if (options.output !== undefined && (options.stdout ?? options.stderr) !== undefined)
    throw badInput("--output is for all output: it excludes --stdout and --stderr");
  for (const [name, path] of filesOf(options))
    if (several !== undefined && /^\{[./]*\}$/.test(path))
      throw badInput(`--${name} ${path}: a task has several values; name one, as in {1}.out`);
  const processOptions = {
    ...Object.fromEntries(filesOf(options)),
    ...(several === undefined ? {} : { several }),
    dir: options.dir ?? process.cwd(),
    ...(options.env.length === 0 ? {} : { env: environmentOf(options.env) }),
    ...(options.stdin === undefined ? {} : { stdin: readInput(options.stdin, "--stdin") }),
  };
  if (options.script !== undefined) {
    const type = /\.[A-Za-z0-9]+$/.exec(options.script)?.[0] ?? ".sh";
    return {
      kind: "script",
      content: readInput(options.script, "--script"),
      type,
      args: filled,
      ...processOptions,
    };
  }
  if (command.length === 0 || command[0] === "") throw noCommand();
  const log = options.log === undefined ? {} : { log: options.log };
  const [line = ""] = filled;
  if (!isLine) {
    const argv = [...processPrefix(options), ...filled];
    return { kind: "command", argv, placeholders: true, ...log, ...processOptions };
  }
  const argv = [...processPrefix(options, "/bin/sh"), line];
  return { kind: "command", argv, placeholders: true, shell: true, ...log, ...processOptions };
}

/** The default name: the command without what other options put before it, or the name of the script. */
export function jobName(
  command: readonly string[],
  isLine: boolean,
  { name, script, ...options }: SubmissionOptions,
): { readonly name?: string } {
  if (name !== undefined) return { name };
  if (script !== undefined) return { name: basename(script) };
  const [first] = command;
  const isFirst = processPrefix(options, isLine ? "/bin/sh" : undefined).length === 0;
  return isFirst || first === undefined ? {} : { name: first.slice(0, 200) };
}

function environmentOf(given: readonly string[]): Record<string, string> {
  const env: Record<string, string> = {};
  for (const text of given) {
    const equals = text.indexOf("=");
    const name = equals < 0 ? text : text.slice(0, equals);
    if (!/^[A-Za-z_]\w*$/.test(name))
      throw badInput(`--env ${text}: expected NAME=VALUE or the NAME of a variable, such as LANG=C`);
    const value = equals < 0 ? process.env[name] : text.slice(equals + 1);
    if (value === undefined)
      throw badInput(`--env ${name}: this variable is not set here; give its value, such as ${name}=1`);
    env[name] = value;
  }
  return env;
}

export const noCommand = (): LaboroError =>
  badInput("there is no command to run; give one, as in laboro run 'gzip {}' ::: *.log");
