/** Any program as a service. */
import { mkdirSync, rmSync } from "node:fs";
import type { Log } from "../../base/log.js";
import { openSlots, type SlotShell, type Slots } from "../processes/index.js";
import { FRAMINGS, type FramingName } from "./framing.js";
import { ObjectPool } from "./object-pool.js";
import { oneShot, type ProgramHandler } from "./one-shot.js";
import { PersistentProcess } from "./persistent-process.js";

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

export interface ProgramsOptions {
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

/** As many processes as concurrent calls. Each lives until it ends by itself or breaks the framing. */
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
    // A process that has just died is not released: `onGone` makes place for another one.
    while (!process.usable) process = await pool.acquire(signal);
    try {
      return await process.call(body, signal);
    } finally {
      if (process.usable) pool.release(process);
    }
  };
}
