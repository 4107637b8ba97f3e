/** Runs jobs, one a thread: writes the script, lets bash run it, and makes a result of its output. */
import { closeSync, ftruncateSync, constants as mode, openSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { writeFully } from "../../../base/files/durable.js";
import { matlabLine } from "../../../worker/matlab.js";
import { openSlots, type ProcessEnd, type Slots } from "../../../worker/processes/index.js";
import { DEFAULT_PATH, findCommand } from "../../../worker/processes/lookup.js";
import { toWaitStatus, writeResHeader } from "../res-text.js";
import type { Job } from "./client-state-machine.js";
import { longDate } from "./dates.js";
import { JobOutput, type Outcome } from "./outcome.js";

export interface JobProcessesOptions {
  readonly host: string;
  readonly threads: number;
  /** Where scripts and long outputs are put. */
  readonly dir: string;
  /** What jobs write to standard error. */
  readonly onStderr?: (bytes: Buffer) => void;
}

export class JobProcesses {
  readonly #options: JobProcessesOptions;
  readonly #slots: Slots;
  /**
   * What the files of each thread are called. They are overwritten, job after job: to create a file is the most expensive part of a short
   * job.
   */
  readonly #names: readonly string[];
  readonly #bash = findCommand("bash", process.env.PATH ?? DEFAULT_PATH) ?? "bash";

  constructor(options: JobProcessesOptions) {
    this.#options = options;
    this.#names = Array.from({ length: options.threads }, randomName);
    this.#slots = openSlots({ count: options.threads });
  }

  /** The first jobs are about to come. */
  prepare(): void {
    for (const slot of this.#slots.slots) slot.prepare();
  }

  run(thread: number, job: Job, ended: (outcome: Outcome) => void): void {
    const { dir, onStderr } = this.#options;
    const id = this.#names[thread];
    const script = join(dir, `runexp_${id}${job.kind === ".m" ? ".m" : ".sh"}`);
    const proxy = join(dir, `matlabproxy_${id}.sh`);
    const output = new JobOutput(join(dir, `output_${id}`));
    const isMatlab = job.kind === ".m";
    const slot = this.#slots.slots[thread];
    if (slot === undefined) throw new Error(`there is no thread ${thread}`);
    const finish = (end: Pick<ProcessEnd, "code" | "signal" | "error" | "started" | "ended">): void => {
      if (end.error !== undefined) output.push(Buffer.from(`runexp: ${end.error}\n`));
      // As the original has it: without quotes for MATLAB.
      const command = isMatlab ? `bash ${proxy}` : `bash '${script}'`;
      ended(this.#outcome(job, output, command, end));
    };
    const failed = (why: string): void => {
      const now = Date.now();
      setImmediate(() => finish({ code: 1, error: why, started: now, ended: now }));
    };
    if (job.kind !== ".m" && job.kind !== ".sh") {
      failed(`Invalid job type '${job.kind}' for job '${job.name}'`);
      return;
    }
    try {
      writeOver(script, job.content);
      if (isMatlab) writeOver(proxy, Buffer.from(matlabProxy(script)));
      slot.run(
        { argv: [this.#bash, isMatlab ? proxy : script], asInPipe: true },
        {
          output: (stream, bytes) => (stream === "stdout" ? output.push(bytes) : onStderr?.(bytes)),
          ended: finish,
        },
      );
    } catch (cause) {
      failed(`the job cannot be started: ${cause instanceof Error ? cause.message : String(cause)}`);
    }
  }

  #outcome(job: Job, output: JobOutput, command: string, end: Parameters<typeof exitOf>[0]): Outcome {
    const header = writeResHeader({
      name: job.name,
      host: this.#options.host,
      command,
      started: longDate(end.started),
      ended: longDate(end.ended),
      waitStatus: toWaitStatus(exitOf(end)),
      status: output.status,
    });
    return output.outcome(job, header);
  }

  async close(): Promise<void> {
    await this.#slots.close();
  }
}

/**
 * MATLAB and Octave write much to standard error that belongs to the result. Their exit status does not, as in the original; and as there
 * they are called in the fourth line, which bash names where there is neither.
 */
const matlabProxy = (script: string): string =>
  `#!/bin/bash\n# Runs a job with MATLAB.\n\n${matlabLine(script)} </dev/null 2>&1\nexit 0\n`;

function writeOver(file: string, content: Uint8Array): void {
  const fd = openSync(file, mode.O_RDWR | mode.O_CREAT, 0o600);
  try {
    writeFully(fd, content, 0);
    ftruncateSync(fd, content.length);
  } finally {
    closeSync(fd);
  }
}

/** As a shell gives it. */
function exitOf({ code, signal }: Pick<ProcessEnd, "code" | "signal" | "started" | "ended">): number {
  if (signal === undefined) return code ?? 1;
  return 128 + (constants.signals[signal as NodeJS.Signals] ?? 0);
}

/** Letters and digits only: MATLAB takes it for part of a name. The folder is this runner's alone, so it need not be hard to guess. */
function randomName(): string {
  let name = "";
  while (name.length < 10) name += LETTERS[Math.floor(Math.random() * LETTERS.length)];
  return name;
}

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
