/** Runs jobs, one per thread: writes the script, runs it with bash, and makes a result of its output. */
import { randomBytes } from "node:crypto";
import { closeSync, ftruncateSync, constants as mode, openSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { writeFully } from "../../../base/files/durable.js";
import { matlabLine } from "../../../worker/job-files.js";
import { openSlots, type ProcessEnd, type Slots } from "../../../worker/processes/index.js";
import { DEFAULT_PATH, findCommand } from "../../../worker/processes/start-error.js";
import { longDate, toWaitStatus, writeResHeader } from "../res-text.js";
import type { Job } from "./client-state-machine.js";
import { JobOutput, type Outcome } from "./spool.js";

interface JobProcessesOptions {
  readonly host: string;
  readonly threads: number;
  /** For scripts and long outputs. */
  readonly dir: string;
  readonly onStderr: ((bytes: Buffer) => void) | undefined;
}

export class JobProcesses {
  readonly #options: JobProcessesOptions;
  readonly #slots: Slots;
  /** The files of each thread are overwritten by each job: to create a file is the slowest part of a short job. */
  readonly #names: readonly string[];
  readonly #bash = findCommand("bash", process.env.PATH ?? DEFAULT_PATH) ?? "bash";

  constructor(options: JobProcessesOptions) {
    this.#options = options;
    // Letters and digits only, because MATLAB uses it as part of a name.
    this.#names = Array.from({ length: options.threads }, () => randomBytes(5).toString("hex"));
    this.#slots = openSlots({ count: options.threads });
  }

  /** Starts the processes that will run the first jobs. */
  prepare(): void {
    for (const slot of this.#slots.slots) slot.prepare();
  }

  run(thread: number, job: Job, ended: (outcome: Outcome) => void): void {
    const { dir, onStderr } = this.#options;
    const id = this.#names[thread];
    const isMatlab = job.kind === ".m";
    const script = join(dir, `runexp_${id}${isMatlab ? ".m" : ".sh"}`);
    const proxy = join(dir, `matlabproxy_${id}.sh`);
    const output = new JobOutput(join(dir, `output_${id}`));
    const slot = this.#slots.slots[thread];
    if (slot === undefined) throw new Error(`there is no thread ${thread}`);
    const finish = (end: Pick<ProcessEnd, "code" | "signal" | "error" | "started" | "ended">): void => {
      if (end.error !== undefined) output.push(Buffer.from(`runexp: ${end.error}\n`));
      const header = writeResHeader({
        name: job.name,
        host: this.#options.host,
        // The original has no quotes for MATLAB.
        command: isMatlab ? `bash ${proxy}` : `bash '${script}'`,
        started: longDate(end.started),
        ended: longDate(end.ended),
        waitStatus: toWaitStatus(exitOf(end)),
        status: output.status,
      });
      ended(output.outcome(job, header));
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

  close(): Promise<void> {
    return this.#slots.close();
  }
}

/**
 * As in the original: what MATLAB and Octave write to standard error belongs to the result, their exit status does not,
 * and they are started in the fourth line, which bash names in its message if there is neither.
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

/** As a shell reports it. */
function exitOf({ code, signal }: Pick<ProcessEnd, "code" | "signal">): number {
  if (signal === undefined) return code ?? 1;
  return 128 + (constants.signals[signal as NodeJS.Signals] ?? 0);
}
