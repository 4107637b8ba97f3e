/** `~/.runexp`: defaults of a runner or a manager; the command line takes precedence. Lines `key=value`, `#` begins a comment. */
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { badInput, errnoOf } from "../../../base/errors.js";

export interface RunexpConfig {
  readonly port?: number;
  readonly qmanager?: string;
  readonly hostname?: string;
}

const KEYS = ["port", "qmanager", "hostname"] as const;

export function readRunexpConfig(file = join(process.env.HOME ?? homedir(), ".runexp")): RunexpConfig {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return {};
    throw badInput(`cannot read ${file}: ${String(cause)}`, cause);
  }
  const config: { port?: number; qmanager?: string; hostname?: string } = {};
  for (const line of text.split("\n").map((one) => one.trim())) {
    if (line === "" || line.startsWith("#")) continue;
    const [, key, value] = /^([A-Za-z0-9]+)\s*=\s*(.+)$/.exec(line) ?? [];
    const known = KEYS.find((one) => one === key?.toLowerCase());
    if (known === undefined || value === undefined) {
      throw badInput(`${file}: expected port=, qmanager= or hostname=, got ${line}`);
    }
    if (known === "port") config.port = portOf(value, file);
    else config[known] = value;
  }
  return config;
}

function portOf(text: string, file: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port > 0 && port < 65_536) return port;
  throw badInput(`${file}: ${text} is no port`);
}
