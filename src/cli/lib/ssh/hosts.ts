/** Machines as they are named on the command line: `[USER@]HOST[:PORT][/SLOTS]`, lists of them, and `@FILE`. */
import { readFileSync } from "node:fs";
import { badInput, errnoOf } from "../../../base/errors.js";

export interface SshHost {
  /** As it was named, without slots. */
  readonly label: string;
  /** What ssh is called with: `[USER@]HOST`, or a name from its config. */
  readonly destination: string;
  readonly port?: number;
  readonly slots?: number;
}

export interface NamedHosts {
  readonly hosts: readonly SshHost[];
  /** `:` or `:/SLOTS` was named. 0 slots: the cores of this machine. */
  readonly local?: { readonly slots: number };
}

export const HOST_FORMAT = "[USER@]HOST[:PORT][/SLOTS], such as ada@node1:2222/8, or @FILE with one in each line";
/** The host cannot begin with a dash: ssh would take it for an option. */
const HOST =
  /^((?:[^\s@/:,'"\\-][^\s@/:,'"\\]*@)?(?:[\w.][\w.-]*|\[[\da-fA-F:.%\w]+\]))(?::(\d{1,5}))?(?:\/(\d{1,5}))?$/;
const MAX_HOSTS = 1_000;

/** Each word is a list with commas of machines and files. */
export function parseHosts(words: readonly string[], what = "host"): NamedHosts {
  const hosts: SshHost[] = [];
  let local: NamedHosts["local"];
  for (const name of words.flatMap((word) => word.split(",")).flatMap((name) => namesIn(name, what))) {
    const here = /^:(?:\/([1-9]\d{0,4}))?$/.exec(name);
    if (here !== null) local = { slots: Number(here[1] ?? 0) };
    else hosts.push(parseHost(name, what));
  }
  if (hosts.length === 0 && local === undefined && words.length > 0)
    throw badInput(`${what}: no machine is named; expected ${HOST_FORMAT}`);
  if (hosts.length > MAX_HOSTS) throw badInput(`${what}: at most ${MAX_HOSTS} machines, got ${hosts.length}`);
  const twice = hosts.find(({ label }, i) => hosts.findIndex((one) => one.label === label) !== i);
  if (twice !== undefined) throw badInput(`${what}: ${twice.label} is named twice; ${twice.label}/8 gives it 8 slots`);
  return local === undefined ? { hosts } : { hosts, local };
}

function namesIn(name: string, what: string): string[] {
  if (!name.startsWith("@")) return name === "" ? [] : [name];
  const file = name.slice(1);
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (cause) {
    throw badInput(`${what}: the file ${file} cannot be read: ${errnoOf(cause) ?? String(cause)}`, cause);
  }
  const lines = text.split("\n").map((line) => line.replace(/#.*/, "").trim());
  const names = lines.filter((line) => line !== "");
  if (names.length === 0) throw badInput(`${what}: the file ${file} names no machine; expected ${HOST_FORMAT}`);
  return names;
}

function parseHost(name: string, what: string): SshHost {
  const [, destination, port, slots] = HOST.exec(name) ?? [];
  const isWrong = destination === undefined || Number(port ?? 1) > 65_535 || port === "0" || slots === "0";
  if (isWrong) throw badInput(`${what}: expected ${HOST_FORMAT}, got ${JSON.stringify(name)}`);
  return {
    label: port === undefined ? destination : `${destination}:${port}`,
    // ssh takes an IPv6 address without brackets.
    destination: destination.replace(/[[\]]/g, ""),
    ...(port === undefined ? {} : { port: Number(port) }),
    ...(slots === undefined ? {} : { slots: Number(slots) }),
  };
}
