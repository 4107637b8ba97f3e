/** `~/.runexp`: defaults of a runner or manager, in lines `key=value`. `#` begins a comment. */
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { badInput, errnoOf } from "../../../base/errors.js";

interface RunexpConfig {
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
    if (known !== "port") {
      config[known] = value;
      continue;
    }
    config.port = Number(value);
    if (!/^\d{1,5}$/.test(value) || config.port === 0 || config.port > 65_535)
      throw badInput(`${file}: expected a port from 1 to 65535, got ${value}`);
  }
  return config;
}
