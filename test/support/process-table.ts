/** The process table, read from /proc. */
import * as fs from "node:fs";

export interface ProcessRow {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly state: string;
  readonly command: string;
}

/** Undefined for a process that is gone. */
export function processRow(pid: number): ProcessRow | undefined {
  const stat = textOf(`/proc/${pid}/stat`);
  if (stat === "") return undefined;
  // "pid (name) state ppid pgrp …", and the name may hold anything.
  const [state = "", parent, group] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const command = textOf(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
  return { pid, parent: Number(parent), group: Number(group), state, command };
}

/** There and not a zombie. */
export function isRunning(pid: number): boolean {
  const row = processRow(pid);
  return row !== undefined && row.state !== "Z" && row.state !== "X";
}

export function childrenOf(parent: number): ProcessRow[] {
  const rows = fs.readdirSync("/proc").map((name) => (/^\d+$/.test(name) ? processRow(Number(name)) : undefined));
  return rows.filter((row) => row !== undefined).filter((row) => row.parent === parent);
}

/** Running processes whose environment had this text when they were started. */
export function processesWith(environment: string): ProcessRow[] {
  const found: ProcessRow[] = [];
  for (const name of fs.readdirSync("/proc")) {
    if (!/^\d+$/.test(name) || !textOf(`/proc/${name}/environ`).includes(environment)) continue;
    const row = processRow(Number(name));
    if (row !== undefined && row.state !== "Z" && row.state !== "X") found.push(row);
  }
  return found;
}

/** What tells why a process is still there: its parents, its age, what it waits for, its descriptors. */
export function describeProcess(pid: number): string {
  const chain: string[] = [];
  for (let row = processRow(pid); row !== undefined && row.pid > 1; row = processRow(row.parent))
    chain.push(`${row.pid} ${row.state} group ${row.group}: ${row.command.slice(0, 200)}`);
  const stat = textOf(`/proc/${pid}/stat`);
  const startTicks = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
  const age = Number(textOf("/proc/uptime").split(" ")[0]) - startTicks / 100;
  const status = /^(State|Sig\w+|Shd\w+):.*$/gm;
  const files: string[] = [];
  try {
    for (const fd of fs.readdirSync(`/proc/${pid}/fd`)) files.push(`${fd}=${fs.readlinkSync(`/proc/${pid}/fd/${fd}`)}`);
  } catch {
    // It ended meanwhile.
  }
  return [
    `${chain.join(" <- ")}; ${age.toFixed(1)} s old; waits in ${textOf(`/proc/${pid}/wchan`)}`,
    (textOf(`/proc/${pid}/status`).match(status) ?? []).join(", "),
    files.join(" "),
    textOf(`/proc/${pid}/environ`).replaceAll("\0", " "),
  ].join("\n  ");
}

/** Resident memory in MiB: now, and the most it ever was. */
export function memoryOf(pid: number): { readonly now: number; readonly most: number } {
  const status = textOf(`/proc/${pid}/status`);
  const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) / 1024;
  return { now: field("VmRSS"), most: field("VmHWM") };
}

/** Empty where the process ended meanwhile, or is another user's. */
function textOf(path: string): string {
  try {
    return fs.readFileSync(path, "latin1");
  } catch {
    return "";
  }
}
