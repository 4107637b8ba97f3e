/**
 * The machine of a worker: its resources, and whether it has room for another task. Resources besides cores are read
 * from files and variables, without any program:
 *
 *   gpu   NVIDIA: the folders in /proc/driver/nvidia/gpus, else the files /dev/nvidia0 …
 *         AMD: the nodes with compute units in /sys/class/kfd/kfd/topology/nodes
 *         fewer if CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES names fewer
 *   mem   MiB of memory: MemTotal, or less if the control group of this process has less
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The variables by which programs see the devices of one kind. */
export type GpuVariable = "CUDA_VISIBLE_DEVICES" | "ROCR_VISIBLE_DEVICES";

interface DetectedResources {
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

interface MemoryOptions {
  /** Bytes that must be available for a task to start. */
  readonly minBytes?: number | undefined;
  /** Processes that may be running or ready to run for a task to start, with those that have just been started. */
  readonly maxLoad?: number | undefined;
  /** Memory or load have become too low or high (`why`), or are good again. */
  readonly onChange: (why: string | undefined, available: number) => void;
  /** Called every second while no task may start, to check again. */
  readonly retry: () => void;
  /** The file in which the kernel reports it; /proc/meminfo if absent. */
  readonly file?: string;
  /** /proc/loadavg if absent. */
  readonly loadFile?: string;
}

const RETRY_MS = 1_000;

/**
 * No task starts while the machine is short of memory or its load is high. Both are read before each start. While none
 * may start, they are also read every second and when a task has ended.
 */
export class MemoryWatch {
  readonly #options: MemoryOptions;
  #shortage: string | undefined;
  /** Tasks started since `at`, which the load average may not include yet. */
  #started = { at: 0, count: 0 };
  #timer: NodeJS.Timeout | undefined;

  constructor(options: MemoryOptions) {
    this.#options = options;
  }

  /** Why no task starts, as of the last check. */
  get shortage(): string | undefined {
    return this.#shortage;
  }

  /** To be called before each start. After a negative answer `retry` is called later. */
  hasEnough(): boolean {
    const { minBytes = 0, maxLoad = Number.POSITIVE_INFINITY, onChange, retry } = this.#options;
    const available = minBytes > 0 ? this.#available() : 0;
    const isLoaded = Number.isFinite(maxLoad) && this.#load() >= maxLoad;
    const before = this.#shortage;
    this.#shortage = isLoaded ? `the load is ${maxLoad} or more` : undefined;
    if (available < minBytes) this.#shortage = `less than ${mebibytes(minBytes)} of memory are available`;
    if (before !== this.#shortage) onChange(this.#shortage, available);
    const enough = this.#shortage === undefined;
    if (!enough && this.#timer === undefined) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        retry();
      }, RETRY_MS);
    }
    return enough;
  }

  taskStarted(): void {
    this.#started.count++;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** The processes that run or are ready to run, without this one: the fourth number of the file. */
  #load(): number {
    if (Date.now() - this.#started.at > RETRY_MS) this.#started = { at: Date.now(), count: 0 };
    const [, running] = / (\d+)\//.exec(text(this.#options.loadFile ?? "/proc/loadavg")) ?? [];
    return running === undefined ? 0 : Number(running) - 1 + this.#started.count;
  }

  /** Infinite if the system does not report it: then no task waits. */
  #available(): number {
    const [, kilobytes] = /^MemAvailable:\s+(\d+) kB/m.exec(text(this.#options.file ?? "/proc/meminfo")) ?? [];
    return kilobytes === undefined ? Number.POSITIVE_INFINITY : Number(kilobytes) * 1024;
  }
}

export const mebibytes = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;
