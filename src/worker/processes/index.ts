/** Starts commands quickly for any memory size of the agent, and leaves none behind. */
import { tmpdir } from "node:os";
import { checkTemporaryFolder } from "../../base/files/temporary.js";
import { Guardian } from "./guardian.js";
import { SlotShell } from "./slot-shell.js";

export { Guardian } from "./guardian.js";
export type { CommandSpec, ProcessEnd, ProcessSink, RunningCommand } from "./script.js";
export { SlotShell } from "./slot-shell.js";

interface SlotsOptions {
  readonly count: number;
  /** The environment that every command starts from; the agent's own where absent. */
  readonly env?: NodeJS.ProcessEnv;
  /** Where the folder of named pipes is created; the system's temporary folder if absent. Not a network filesystem. */
  readonly dir?: string;
  /** The shell and its arguments: dash, bash and busybox are tested. */
  readonly shell?: readonly [string, ...string[]];
  readonly now?: () => number;
  readonly memorySampleMs?: number;
}

export interface Slots {
  readonly slots: readonly SlotShell[];
  readonly guardian: Guardian;
  /** Raises the number of slots to `count`, if that is more. */
  grow(count: number): void;
  /** Ends all commands, shells and the guardian; resolves when no process and no file is left. */
  close(): Promise<void>;
}

/** Slots that share a guardian. Guardian and shells start at first use. */
export function openSlots(options: SlotsOptions): Slots {
  const parent = options.dir ?? tmpdir();
  checkTemporaryFolder(parent);
  const shell = options.shell ?? (["/bin/sh"] as const);
  const guardian = new Guardian({ shell, parent });
  const { OLDPWD: _, ...env } = options.env ?? process.env;
  const { now = Date.now, memorySampleMs = 1_000 } = options;
  const slots: SlotShell[] = [];
  const grow = (count: number): void => {
    for (let index = slots.length; index < count; index++) {
      slots.push(new SlotShell({ name: `slot${index}`, guardian, shell, env, now, memorySampleMs }));
    }
  };
  grow(options.count);
  return {
    slots,
    guardian,
    grow,
    close: async () => {
      await Promise.all(slots.map((slot) => slot.close()));
      await guardian.close();
    },
  };
}
