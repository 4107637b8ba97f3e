import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe } from "vitest";
import type { OutputStream } from "../../../src/model/outcome.js";
import {
  type CommandSpec,
  openSlots,
  type ProcessEnd,
  type RunningCommand,
  type SlotShell,
  type Slots,
} from "../../../src/worker/processes/index.js";

export type Shell = readonly [string, ...string[]];

/** A folder of the test file's own, removed when the file is done. */
export function temporaryFolder(): string {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), "processes-test-")));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** The same tests for each kind of shell that may be /bin/sh somewhere; those not installed here are skipped. */
export function describeEachShell(tests: (shell: Shell) => void): void {
  const names = temporaryFolder();
  for (const kind of ["dash", "bash", "busybox"]) {
    const file = ["/bin", "/usr/bin"].map((dir) => `${dir}/${kind}`).find((path) => existsSync(path));
    describe.skipIf(file === undefined)(`with ${kind} as sh${file === undefined ? " (not installed)" : ""}`, () => {
      if (kind === "busybox") return tests([file ?? kind, "sh"]);
      const link = join(names, kind, "sh");
      execFileSync("mkdir", ["-p", join(names, kind)]);
      if (file !== undefined && !existsSync(link)) symlinkSync(file, link);
      return tests([link]);
    });
  }
}

/** Opens slots for one test; they are closed after it. */
export function slotsForEachTest(): (
  shell?: Shell,
  count?: number,
  env?: NodeJS.ProcessEnv,
  memorySampleMs?: number,
) => Slots {
  const open: Slots[] = [];
  afterEach(async () => {
    await Promise.all(open.splice(0).map((slots) => slots.close()));
  });
  return (shell = ["/bin/sh"], count = 1, env = process.env, memorySampleMs = 1_000) => {
    const slots = openSlots({ count, shell, env, memorySampleMs });
    open.push(slots);
    return slots;
  };
}

export function only(slots: Slots): SlotShell {
  const [slot] = slots.slots;
  if (slot === undefined) throw new Error("no slot was opened");
  return slot;
}

export interface Finished {
  readonly end: ProcessEnd;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

export interface Started {
  readonly command: RunningCommand;
  readonly finished: Promise<Finished>;
  /** Resolves when the output so far contains the text. */
  printed(text: string): Promise<void>;
}

export function start(slot: SlotShell, spec: CommandSpec): Started {
  const pieces: Record<OutputStream, Buffer[]> = { stdout: [], stderr: [] };
  const waiting: { readonly text: string; readonly resolve: () => void }[] = [];
  let finish: (finished: Finished) => void = () => {};
  const finished = new Promise<Finished>((resolve) => {
    finish = resolve;
  });
  const all = (): string => Buffer.concat([...pieces.stdout, ...pieces.stderr]).toString();
  const command = slot.run(spec, {
    output: (stream, bytes) => {
      pieces[stream].push(bytes);
      if (waiting.length === 0) return;
      const text = all();
      for (const one of waiting) if (text.includes(one.text)) one.resolve();
    },
    ended: (end) => finish({ end, stdout: Buffer.concat(pieces.stdout), stderr: Buffer.concat(pieces.stderr) }),
  });
  return {
    command,
    finished,
    printed: (text) =>
      new Promise((resolve) => {
        if (all().includes(text)) resolve();
        else waiting.push({ text, resolve });
      }),
  };
}

export function run(slot: SlotShell, spec: CommandSpec): Promise<Finished> {
  return start(slot, spec).finished;
}

/** By its path, so that the slot's shell runs it without a subshell where it can. */
export const sh = (line: string, ...args: string[]): CommandSpec => ({ argv: ["/bin/sh", "-c", line, "sh", ...args] });

/** By its name, for which the slot's shell needs a subshell. */
export const inSubshell = ({ argv: [, ...rest], ...spec }: CommandSpec): CommandSpec => ({
  ...spec,
  argv: ["sh", ...rest],
});

export const outcomeOf = ({ code, signal, error }: ProcessEnd): Pick<ProcessEnd, "code" | "signal" | "error"> => ({
  ...(code === undefined ? {} : { code }),
  ...(signal === undefined ? {} : { signal }),
  ...(error === undefined ? {} : { error }),
});
