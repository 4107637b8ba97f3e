/**
 * Resources used by the commands of a slot's shell, from /proc. Absent on systems without it.
 *
 * CPU time: when a process waits for a child, the kernel adds the child's time, in clock ticks. So the difference
 * between the shell's counters at two ends is the time of the command between them, with all descendants that were
 * waited for. A command that uses less than a tick may count as one or none; the sum over many commands is right.
 *
 * Memory: sampled each second (`memorySampleMs`). A peak between two samples is seen only within one process.
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";

interface CommandUsage {
  cpuMs?: number;
  peakMemory?: number;
}

/** The same on every Linux on which Node runs. */
const MS_PER_TICK = 10;
const STAT_BYTES = 1_024;
/** Processes of one command; more are not counted. */
const MAX_PROCESSES = 1_000;

const buffer = Buffer.alloc(STAT_BYTES);

export class ShellUsage {
  readonly #pid: number;
  readonly #fd: number;
  readonly #sampleMs: number;
  /** CPU time of the commands that have ended. */
  #cpuMs: number;
  #peakMemory = 0;
  #timer: NodeJS.Timeout | undefined;
  #running = false;

  /** Undefined if the system does not tell. */
  static open(pid: number | undefined, sampleMs: number): ShellUsage | undefined {
    if (pid === undefined) return undefined;
    try {
      return new ShellUsage(pid, sampleMs);
    } catch {
      return undefined;
    }
  }

  private constructor(pid: number, sampleMs: number) {
    this.#pid = pid;
    this.#sampleMs = sampleMs;
    this.#fd = openSync(`/proc/${pid}/stat`, "r");
    this.#cpuMs = this.#readCpuMs() ?? 0;
  }

  begin(): void {
    this.#running = true;
    this.#peakMemory = 0;
    if (this.#timer === undefined) this.#timer = setTimeout(() => this.#sample(), this.#sampleMs).unref();
    else this.#timer.refresh();
  }

  /** The usage of the latest command. */
  end(): CommandUsage {
    this.#running = false;
    const usage: CommandUsage = {};
    const cpuMs = this.#readCpuMs();
    if (cpuMs !== undefined && cpuMs > this.#cpuMs) usage.cpuMs = cpuMs - this.#cpuMs;
    this.#cpuMs = cpuMs ?? this.#cpuMs;
    if (this.#peakMemory > 0) usage.peakMemory = this.#peakMemory;
    return usage;
  }

  close(): void {
    clearTimeout(this.#timer);
    closeSync(this.#fd);
  }

  #readCpuMs(): number | undefined {
    try {
      const text = buffer.toString("latin1", 0, readSync(this.#fd, buffer, 0, STAT_BYTES, 0));
      // The name, in parentheses, may contain anything. After it, cutime and cstime are the fields 14 and 15 from 0.
      const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
      return (Number(fields[13]) + Number(fields[14])) * MS_PER_TICK;
    } catch {
      // The shell is gone.
      return undefined;
    }
  }

  #sample(): void {
    if (!this.#running) return;
    this.#timer?.refresh();
    let sum = 0;
    let most = 0;
    for (const pid of descendants(this.#pid)) {
      const { now, peak } = memoryOf(pid);
      sum += now;
      most = Math.max(most, peak);
    }
    this.#peakMemory = Math.max(this.#peakMemory, sum, most);
  }
}

function descendants(root: number): number[] {
  const found: number[] = [];
  const pending = [root];
  while (pending.length > 0 && found.length < MAX_PROCESSES) {
    const children = childrenOf(pending.pop() ?? root);
    found.push(...children);
    pending.push(...children);
  }
  return found;
}

/** The children of its first thread. Most programs that start others have no other thread. */
function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "latin1").trim();
    return text === "" ? [] : text.split(" ").map(Number);
  } catch {
    return [];
  }
}

function memoryOf(pid: number): { readonly now: number; readonly peak: number } {
  try {
    const text = readFileSync(`/proc/${pid}/status`, "latin1");
    const bytes = (name: string): number =>
      1024 * Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(text)?.[1] ?? 0);
    return { now: bytes("VmRSS"), peak: bytes("VmHWM") };
  } catch {
    return { now: 0, peak: 0 };
  }
}
