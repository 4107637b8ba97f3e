/**
 * The name of a process that no other process ever had: machine, boot, process id and the time it started. A process id
 * alone is used again, and means another process after a boot or in another container.
 */
import * as fs from "node:fs";
import { hostname } from "node:os";
import { errnoOf } from "../errors.js";

export interface ProcessIdentity {
  readonly host: string;
  readonly pid: number;
  /** The machine, by /etc/machine-id: host names can be equal. */
  readonly machine?: string;
  readonly boot?: string;
  /** The namespace in which the process id counts. */
  readonly pids?: string;
  /** In clock ticks since the boot. */
  readonly started?: string;
}

export function thisProcess(): ProcessIdentity {
  const machine = read("/etc/machine-id");
  const boot = read("/proc/sys/kernel/random/boot_id");
  const pids = link("/proc/self/ns/pid");
  const [, started] = statOf(process.pid);
  return {
    host: hostname(),
    pid: process.pid,
    ...(machine !== undefined && { machine }),
    ...(boot !== undefined && { boot }),
    ...(pids !== undefined && { pids }),
    ...(started !== undefined && { started }),
  };
}

export function parseProcessIdentity(text: string): ProcessIdentity | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const { host, pid, ...rest } = value as Record<string, unknown>;
  if (typeof host !== "string" || typeof pid !== "number" || !Number.isInteger(pid) || pid <= 0) return undefined;
  const known = ["machine", "boot", "pids", "started"].filter((name) => typeof rest[name] === "string");
  return { host, pid, ...Object.fromEntries(known.map((name) => [name, rest[name]])) };
}

/** Whether this process is alive; true where that cannot be known from here. */
export function isAlive(name: ProcessIdentity, self: ProcessIdentity = thisProcess()): boolean {
  const differs = (field: "machine" | "boot" | "pids"): boolean =>
    name[field] !== undefined && self[field] !== undefined && name[field] !== self[field];
  // The same boot is the same machine, whatever a container calls itself.
  const sameBoot = name.boot !== undefined && name.boot === self.boot;
  if (!sameBoot && (name.host !== self.host || differs("machine"))) return true;
  if (differs("boot")) return false;
  if (differs("pids") || (name.pids === undefined && name.host !== self.host)) return true;
  try {
    process.kill(name.pid, 0);
  } catch (cause) {
    // EPERM is a process of another user.
    if (errnoOf(cause) === "ESRCH") return false;
  }
  const [state, started] = statOf(name.pid);
  // A zombie: it has ended, and its parent has not read its exit code yet.
  if (state === "Z") return false;
  return name.started === undefined || started === undefined || started === name.started;
}

/** State and start of a process: fields 3 and 22 of its stat, counted behind the command, which may contain anything. */
function statOf(pid: number): [state: string | undefined, started: string | undefined] {
  const stat = read(`/proc/${pid}/stat`);
  const fields = stat?.slice(stat.lastIndexOf(")") + 2).split(" ");
  return [fields?.[0], fields?.[19]];
}

function read(path: string): string | undefined {
  try {
    return fs.readFileSync(path, "utf8").trim();
  } catch {
    // Not Linux, or gone meanwhile: the field is left out.
    return undefined;
  }
}

function link(path: string): string | undefined {
  try {
    return fs.readlinkSync(path);
  } catch {
    return undefined;
  }
}
