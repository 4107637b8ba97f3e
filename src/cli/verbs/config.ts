/** `laboro config`: the configuration of the workers, in numbered versions. */
import { readFileSync } from "node:fs";
import { Argument, Command, Option } from "commander";
import { badInput } from "../../base/errors.js";
import { ago } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import { type Config, type ConfigValue, isConfig } from "../../model/worker-settings.js";
import { CONFIG_TYPES, configTypeOf, parseConfig, writeConfig } from "../../protocols/scale0/config-formats.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { collect, wholeNumber } from "../lib/option-parsers.js";
import { openOutput, printJson, printLines } from "../lib/print.js";
import { type Column, printList } from "../lib/terminal/table.js";

interface Options extends BrokerChoice {
  readonly at?: number;
  readonly format?: string;
  readonly file?: string;
  readonly unset: readonly string[];
  readonly json?: boolean;
}

export function config(): Command {
  const command = new Command("config")
    .description(
      "Show or change the configuration of the workers. Each change makes a new version, which connected workers get within a heartbeat. " +
        "A NAME can be a path: workers.node17.slots is for one worker, pools.gpu.slots for the workers of a pool.",
    )
    .addArgument(new Argument("[action]", "what to do").choices(["show", "set", "history"]).default("show"))
    .argument("[name=value...]", "for set: VALUE is JSON if it can be parsed as JSON, otherwise text")
    .option("--file <file>", "for set: replace all settings by those in this JSON file; - is standard input")
    .option("--unset <name>", "for set: remove this setting; may be repeated", collect, [])
    .option("--at <version>", "for show: the version to show (default: the last)", wholeNumber(3))
    .addOption(
      new Option("--format <format>", "for show: output format").choices(CONFIG_TYPES.map((one) => one.toLowerCase())),
    )
    .option("--json", "print one JSON document, with version and time")
    .addHelpText("after", EXAMPLES)
    .action(run);
  return addBrokerOptions(command);
}

const EXAMPLES = `
Examples:
  laboro config
  laboro config set heartbeat_interval=5000 environment.OMP_NUM_THREADS=1
  laboro config set workers.node17.slots=4
  laboro config set --file workers.json
  laboro config history`;

async function run(action: string, words: readonly string[], options: Options): Promise<void> {
  const { at, file, unset } = options;
  const changes = words.length > 0 || unset.length > 0 || file !== undefined;
  if (action !== "set" && changes) throw badInput(`laboro config ${action} changes nothing; use laboro config set`);
  if (action !== "show" && at !== undefined) throw badInput("--at can only be used with show");
  if (action !== "show" && options.format !== undefined) throw badInput("--format can only be used with show");
  if (action === "set" && !changes) throw badInput("nothing to set: give NAME=VALUE, --unset NAME or --file FILE");
  await withBroker(options, async (client) => {
    if (action === "set") await set(client, words, options);
    else if (action === "history") await history(client, options);
    else await show(client, options);
  });
}

async function show(client: Client, { at, format, json }: Options): Promise<void> {
  const found = await client.ask("config", at === undefined ? {} : { version: at });
  if (json === true) {
    printJson(found);
    return;
  }
  const text = writeConfig(configTypeOf(format ?? "json") ?? "JSON", found.settings, found.version);
  openOutput(process.stdout)(Buffer.from(text));
}

async function set(client: Client, words: readonly string[], options: Options): Promise<void> {
  const { file, unset, json } = options;
  const before = await client.ask("config", {});
  let settings = file === undefined ? before.settings : parseConfig(textOf(file));
  for (const name of unset) settings = withoutValue(settings, pathOf(name), name);
  for (const word of words) {
    const [, name = "", value = ""] = /^([^=]+)=(.*)$/s.exec(word) ?? [];
    if (name === "") throw badInput(`expected NAME=VALUE, got ${word}`);
    settings = withValue(settings, pathOf(name), valueOfText(value));
  }
  // Refused if the version has changed meanwhile.
  const after = await client.ask("configSet", { settings, expectedVersion: before.version });
  if (json === true) printJson(after);
  else printLines(`config version ${after.version}`);
}

function textOf(file: string): string {
  try {
    return readFileSync(file === "-" ? 0 : file, "utf8");
  } catch (cause) {
    throw badInput(`${file}: ${cause instanceof Error ? cause.message : cause}`, cause);
  }
}

const pathOf = (name: string): string[] => {
  const path = name.split(".");
  if (path.includes("")) throw badInput(`${name} is not a valid name: a part between dots is empty`);
  return path;
};

function valueOfText(text: string): ConfigValue {
  try {
    return JSON.parse(text) as ConfigValue;
  } catch {
    return text;
  }
}

function withValue(settings: Config, [first = "", ...rest]: readonly string[], value: ConfigValue): Config {
  const inner = Object.hasOwn(settings, first) ? settings[first] : undefined;
  const next = rest.length === 0 ? value : withValue(isConfig(inner) ? inner : {}, rest, value);
  return Object.fromEntries([...Object.entries(settings).filter(([name]) => name !== first), [first, next]]);
}

function withoutValue(settings: Config, [first = "", ...rest]: readonly string[], whole: string): Config {
  const inner = Object.hasOwn(settings, first) ? settings[first] : undefined;
  if (inner === undefined) throw badInput(`--unset: ${whole} is not set`);
  const others = Object.entries(settings).filter(([name]) => name !== first);
  if (rest.length === 0) return Object.fromEntries(others);
  return Object.fromEntries([...others, [first, withoutValue(isConfig(inner) ? inner : {}, rest, whole)]]);
}

const COLUMNS: readonly Column[] = [
  { title: "VERSION", align: "right" },
  { title: "CHANGED" },
  { title: "DIFFERS IN", minWidth: 10 },
];

async function history(client: Client, { json }: Options): Promise<void> {
  const { versions } = await client.ask("configHistory", {});
  const rows = versions.map(({ version, changed, settings }, i) => [
    String(version),
    ago(changed),
    differences(versions[i + 1]?.settings ?? {}, settings).join(", "),
  ]);
  const none = "the config is empty; laboro config set NAME=VALUE sets a value";
  printList({ document: { versions }, json, columns: COLUMNS, rows, none });
}

/** Top-level names that were added, removed or changed. */
function differences(before: Config, after: Config): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
}
