/** Any program as a service. */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { REPLY_LIMIT } from "../calls.js";
import { openSlots, type SlotShell, type Slots } from "../processes/index.js";
import type { Answer } from "../services.js";
import { ObjectPool } from "./object-pool.js";
import { describeEnd, FRAMINGS, type FramingName, PersistentProcess, StderrTail } from "./persistent-process.js";

/** Started for each call (`once`), or persistent, with one of the framings. */
export type ServiceMode = "once" | FramingName;

export const SERVICE_MODES: readonly ServiceMode[] = ["once", "lines", "length"];

/** A program that answers requests. */
export interface ServiceProgram {
  /** A command line for /bin/sh. */
  readonly command: string;
  /** `once` if absent: a process for each request. */
  readonly mode?: ServiceMode;
}

interface ProgramsOptions {
  /** Concurrent calls over all services; the maximum of processes of a persistent program. */
  readonly count: number;
  /** Holds the bodies of active calls. Created here, and removed at the end. */
  readonly dir: string;
  readonly env: NodeJS.ProcessEnv;
  /** Between SIGTERM and SIGKILL, for a program whose client no longer waits. */
  readonly graceMs: number;
  readonly log: Log;
  readonly now: () => number;
}

export interface Programs {
  readonly handlers: Readonly<Record<string, ProgramHandler>>;
  /** Raises the number of concurrent calls to `count`, if that is more. */
  grow(count: number): void;
  /** Processes have the grace between SIGTERM and SIGKILL. Resolves when no process and no file is left. */
  close(graceMs: number): Promise<void>;
}

export function openPrograms(programs: Readonly<Record<string, ServiceProgram>>, options: ProgramsOptions): Programs {
  const entries = Object.entries(programs);
  if (entries.length === 0) return { handlers: {}, grow: () => {}, close: () => Promise.resolve() };
  const { count, dir, env, now } = options;
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const slots = openSlots({ count, env, now });
  const shells = new ObjectPool<SlotShell>(slots.slots);
  const processes = new Set<PersistentProcess>();
  const pools: ObjectPool<PersistentProcess>[] = [];
  const handlers: Record<string, ProgramHandler> = {};
  for (const [service, { command, mode = "once" }] of entries) {
    handlers[service] =
      mode === "once"
        ? oneShot({ service, command, shells, dir, graceMs: options.graceMs })
        : persistentProgram(service, command, mode, slots, options, processes, pools);
  }
  return {
    handlers,
    grow: (more) => {
      const before = slots.slots.length;
      slots.grow(more);
      for (const shell of slots.slots.slice(before)) shells.release(shell);
      for (const pool of pools) pool.grow(more);
    },
    close: async (graceMs) => {
      await Promise.all([...processes].map((process) => process.close(graceMs)));
      await slots.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** As many processes as concurrent calls. A process is used until it ends or breaks the framing. */
function persistentProgram(
  service: string,
  command: string,
  mode: FramingName,
  { guardian }: Slots,
  { count, env, graceMs, log }: ProgramsOptions,
  processes: Set<PersistentProcess>,
  pools: ObjectPool<PersistentProcess>[],
): ProgramHandler {
  const pool = new ObjectPool<PersistentProcess>([], count, () => {
    const process = new PersistentProcess({
      ...{ service, command, framing: FRAMINGS[mode], env, guardian, graceMs, log },
      onGone: (gone) => {
        processes.delete(gone);
        pool.discard(gone);
      },
    });
    processes.add(process);
    return process;
  });
  pools.push(pool);
  return async (body, { signal }) => {
    let process = await pool.acquire(signal);
    // A process that has just died is not released: `onGone` has removed it from the pool.
    while (!process.usable) process = await pool.acquire(signal);
    try {
      return await process.call(body, signal);
    } finally {
      if (process.usable) pool.release(process);
    }
  };
}

/**
 * A program that is started for each call: the body is its standard input, its standard output is the reply. It runs in
 * slot shells as tasks do, but not in the same ones: the broker counts slots and does not know which shell is busy.
 */
type ProgramHandler = (body: Uint8Array, call: { readonly signal: AbortSignal }) => Promise<Answer>;

interface OneShotOptions {
  readonly service: string;
  readonly command: string;
  readonly shells: ObjectPool<SlotShell>;
  /** For the bodies of active calls. */
  readonly dir: string;
  readonly graceMs: number;
}

let files = 0;

function oneShot(options: OneShotOptions): ProgramHandler {
  return async (body, { signal }) => {
    const shell = await options.shells.acquire(signal);
    const file = body.length === 0 ? undefined : join(options.dir, `body${++files}`);
    try {
      if (file !== undefined) writeFileSync(file, body, { mode: 0o600 });
      return await run(options, shell, file, signal);
    } finally {
      options.shells.release(shell);
      if (file !== undefined) rmSync(file, { force: true });
    }
  };
}

function run(
  options: OneShotOptions,
  shell: SlotShell,
  file: string | undefined,
  signal: AbortSignal,
): Promise<Buffer> {
  const { service, command, graceMs } = options;
  return new Promise((resolve, reject) => {
    const reply: Buffer[] = [];
    const tail = new StderrTail();
    let length = 0;
    const spec = {
      argv: ["/bin/sh", "-c", command],
      env: { LABORO_SERVICE: service },
      ...(file === undefined ? {} : { stdinFile: file }),
    };
    const running = shell.run(spec, {
      output: (stream, bytes) => {
        if (stream === "stdout") length += bytes.length;
        if (stream === "stderr") tail.push(bytes);
        else if (length <= REPLY_LIMIT) reply.push(bytes);
        else running.kill();
      },
      ended: (end) => {
        signal.removeEventListener("abort", stop);
        if (length > REPLY_LIMIT) {
          reject(
            new LaboroError("LABORO_BODY_TOO_LARGE", `the reply of ${service} is larger than ${REPLY_LIMIT} bytes`),
          );
        } else if (end.code === 0 && !signal.aborted) resolve(Buffer.concat(reply));
        else reject(new LaboroError("LABORO_SERVICE_FAILED", tail.text || describeEnd(service, end)));
      },
    });
    const stop = (): void => (graceMs > 0 ? running.terminate(graceMs) : running.kill());
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
