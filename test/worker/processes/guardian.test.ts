import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, expect, it } from "vitest";
import { Guardian, openSlots, type ProcessEnd, SlotShell } from "../../../src/worker/processes/index.js";
import { atEnd } from "../../support/at-end.js";
import { isRunning } from "../../support/process-table.js";
import { until } from "../../support/wait.js";
import { only, run, sh, slotsForEachTest, temporaryFolder } from "./support.js";

const open = slotsForEachTest();
const dir = temporaryFolder();
/** vitest itself cannot be killed, so the agent is a process of its own, with the code as built. */
const built = process.env.LABORO_DIST ?? fileURLToPath(new URL("../../../dist", import.meta.url));
const agents: ChildProcess[] = [];

afterEach(() => {
  for (const agent of agents.splice(0)) agent.kill("SIGKILL");
});

interface Said {
  readonly stdout: string;
  readonly shell: number;
  readonly guardian: number;
}

interface Agent {
  readonly process: ChildProcess;
  readonly tmp: string;
  lines(count: number): Promise<string[]>;
}

function startAgent(slots: number, line: string, limit = ""): Agent {
  const tmp = mkdtempSync(join(dir, "agent-"));
  const args = [
    fileURLToPath(new URL("agent.mjs", import.meta.url)),
    join(built, "worker/processes/index.js"),
    String(slots),
    line,
  ];
  const child = spawn("/bin/sh", ["-c", `${limit} exec "$@"`, "sh", process.execPath, ...args], {
    env: { ...process.env, TMPDIR: tmp },
    stdio: ["ignore", "pipe", "inherit"],
  });
  agents.push(child);
  const said: string[] = [];
  createInterface({ input: child.stdout }).on("line", (text) => said.push(text));
  return {
    process: child,
    tmp,
    lines: async (count) => {
      await until(`the agent says ${count} lines`, () => said.length >= count, 10_000);
      return said.slice(0, count);
    },
  };
}

it("ends all commands, their children and itself within two seconds of the agent's death by SIGKILL", async () => {
  const agent = startAgent(3, "trap '' TERM; (trap '' TERM; exec sleep 60) & echo $$ $!; wait; sleep 60");
  const said = (await agent.lines(3)).map((line): Said => JSON.parse(line));
  const pids = said.flatMap(({ stdout, shell, guardian }) => [
    ...stdout.trim().split(" ").map(Number),
    shell,
    guardian,
  ]);
  expect(pids.every(isRunning)).toBe(true);
  agent.process.kill("SIGKILL");
  await until("all are gone", () => !pids.some(isRunning), 2_500);
  await until("the pipes are removed", () => readdirSync(agent.tmp).length === 0);
});

it("starts with the first command: an agent that runs none starts no process and makes no folder", async () => {
  const parent = mkdtempSync(join(dir, "unused-"));
  const slots = openSlots({ count: 1, dir: parent });
  atEnd(() => slots.close());
  expect([slots.guardian.pid, readdirSync(parent)]).toEqual([undefined, []]);
  await run(only(slots), sh("exit 0"));
  expect(isRunning(slots.guardian.pid ?? 0)).toBe(true);
  expect(readdirSync(parent)).toHaveLength(1);
});

it("gives commands a SIGTERM first when the agent is gone", async () => {
  const mark = join(dir, "terminated");
  const agent = startAgent(
    1,
    `exec 2>/dev/null; trap 'touch ${mark}; exit' TERM; echo $$; while :; do sleep 0.05; done`,
  );
  await agent.lines(1);
  agent.process.kill("SIGKILL");
  await until("the command saw SIGTERM", () => existsSync(mark));
  await until("the pipes are removed", () => readdirSync(agent.tmp).length === 0);
});

it("lives in a session of its own, as do the commands, out of reach of the terminal's signals", async () => {
  const slots = open();
  await run(only(slots), sh("exit 0"));
  const { stdout } = await run(
    only(slots),
    sh('cut -d" " -f5,6 /proc/$1/stat /proc/$PPID/stat', String(slots.guardian.pid)),
  );
  const [guardian, shell] = [slots.guardian.pid, only(slots).pid];
  expect(stdout.toString()).toBe(`${guardian} ${guardian}\n${shell} ${shell}\n`);
});

it("knows of a shell before that gets its first line, so that an agent killed in between leaves none waiting for its pipes", async () => {
  const made: string[][] = [];
  class SlowGuardian extends Guardian {
    override watch(group: number): void {
      // The agent is not scheduled for this long; a shell with lines makes its pipes meanwhile.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
      made.push(readdirSync(join(this.open(), "slot0.1")));
      super.watch(group);
    }
  }
  const shell = ["/bin/sh"] as const;
  const guardian = new SlowGuardian({ shell, parent: mkdtempSync(join(dir, "slow-")) });
  const slot = new SlotShell({
    name: "slot0",
    guardian,
    shell,
    env: process.env,
    now: Date.now,
    memorySampleMs: 1_000,
  });
  atEnd(async () => {
    await slot.close();
    await guardian.close();
  });
  expect((await run(slot, sh("echo run"))).stdout.toString()).toBe("run\n");
  expect(made).toEqual([[]]);
});

it("makes the folder of pipes when it can remove it, also where the agent is killed in between", async () => {
  const parent = mkdtempSync(join(dir, "no-folder-"));
  const guardian = new Guardian({ shell: ["/bin/sh"], parent });
  atEnd(() => guardian.close());
  rmSync(parent, { recursive: true });
  expect(() => guardian.open()).toThrow(/ENOENT/);
  const { pid } = guardian;
  expect(isRunning(pid ?? 0)).toBe(true);
  mkdirSync(parent);
  const folder = guardian.open();
  expect([readdirSync(parent), guardian.pid]).toEqual([[basename(folder)], pid]);
});

it("is started again when it dies, and knows what to guard", async () => {
  const agent = startAgent(1, "echo $$; sleep 60; :");
  const [line] = await agent.lines(1);
  const said: Said = JSON.parse(line ?? "");
  process.kill(said.guardian, "SIGKILL");
  const [, again] = await agent.lines(2);
  expect(JSON.parse(again ?? "").guardian).not.toBe(said.guardian);
  agent.process.kill("SIGKILL");
  await until(
    "the command is gone",
    () => !isRunning(said.shell) && !isRunning(Number.parseInt(said.stdout, 10)),
    3_000,
  );
  await until("the pipes are removed", () => readdirSync(agent.tmp).length === 0);
});

it("runs eight slots with 128 descriptors", async () => {
  const agent = startAgent(8, "sleep 0.2; echo here", "ulimit -n 128;");
  const ends = endsIn(await agent.lines(16));
  expect(ends.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0, 0, 0, 0]);
  await until("the pipes are removed", () => readdirSync(agent.tmp).length === 0);
});

it("reports commands for which no descriptors are left, and runs the others", async () => {
  const agent = startAgent(16, "sleep 0.2", "ulimit -n 64;");
  const ends = endsIn(await agent.lines(16));
  for (const { code, error } of ends) expect(error ?? `exit ${code}`).toMatch(/^exit 0$|EMFILE/);
  expect(ends.some(({ code }) => code === 0)).toBe(true);
  await until("the pipes are removed", () => readdirSync(agent.tmp).length === 0);
});

const endsIn = (lines: readonly string[]): ProcessEnd[] =>
  lines.map((line) => JSON.parse(line)).flatMap(({ end }) => (end === undefined ? [] : [end]));

it("keeps the number of open descriptors when commands are killed again and again", async () => {
  const slots = open();
  const slot = only(slots);
  await run(slot, sh("exit 0"));
  const before = readdirSync("/proc/self/fd").length;
  for (let i = 0; i < 10; i += 1) {
    await new Promise<void>((resolve) => {
      const command = slot.run(sh("echo go; sleep 60"), { output: () => command.kill(), ended: () => resolve() });
    });
  }
  await run(slot, sh("sleep 0.05"));
  await until("descriptors are given back", () => readdirSync("/proc/self/fd").length <= before);
});
