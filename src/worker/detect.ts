/**
 * What a machine has beside cores, read from files and variables, without any program:
 *
 *   gpu   NVIDIA: the folders in /proc/driver/nvidia/gpus, else the files /dev/nvidia0 …
 *         AMD: the nodes with compute units in /sys/class/kfd/kfd/topology/nodes
 *         fewer where CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES names fewer
 *   mem   MiB of memory: MemTotal, or less where the control group of this process has less
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The variables by which programs see the devices of one kind. */
export type GpuVariable = "CUDA_VISIBLE_DEVICES" | "ROCR_VISIBLE_DEVICES";

export interface DetectedResources {
  readonly resources: Readonly<Record<string, number>>;
  readonly gpuVariable: GpuVariable;
}

export function detectResources(env: NodeJS.ProcessEnv, root = "/"): DetectedResources {
  const nvidia = nvidiaCount(root);
  const amd = nvidia > 0 ? 0 : amdCount(root);
  const gpuVariable = amd > 0 ? "ROCR_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
  const gpu = visible(nvidia + amd, env[gpuVariable]);
  const mem = memoryMib(root);
  return { resources: { ...(gpu > 0 ? { gpu } : {}), ...(mem > 0 ? { mem } : {}) }, gpuVariable };
}

function nvidiaCount(root: string): number {
  const known = names(join(root, "proc/driver/nvidia/gpus")).length;
  return known > 0 ? known : names(join(root, "dev")).filter((name) => /^nvidia\d+$/.test(name)).length;
}

/** Nodes without compute units are processors. */
function amdCount(root: string): number {
  const nodes = join(root, "sys/class/kfd/kfd/topology/nodes");
  return names(nodes).filter((node) => /^simd_count [1-9]/m.test(text(join(nodes, node, "properties")))).length;
}

/** A list names the devices that this worker may use. `-1` and names that no device has end it. */
function visible(count: number, list: string | undefined): number {
  if (list === undefined) return count;
  const given = list.split(",").map((name) => name.trim());
  const end = given.findIndex((name) => name === "" || name === "-1" || name === "NoDevFiles");
  return Math.min(count, end < 0 ? given.length : end);
}

function memoryMib(root: string): number {
  const [, kibibytes = "0"] = /^MemTotal:\s+(\d+) kB/m.exec(text(join(root, "proc/meminfo"))) ?? [];
  const total = Number(kibibytes) * 1024;
  const limits = ["sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes", ownGroup(root)]
    .map((file) => text(join(root, file)).trim())
    .filter((limit) => /^\d+$/.test(limit))
    .map(Number);
  return Math.floor(Math.min(total, ...limits) / 1024 / 1024);
}

/** Of cgroup v2. */
function ownGroup(root: string): string {
  const [, path = ""] = /^0::(.*)$/m.exec(text(join(root, "proc/self/cgroup"))) ?? [];
  return join("sys/fs/cgroup", path, "memory.max");
}

function text(file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return "";
  }
}

function names(dir: string): readonly string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}
