import { constants } from "node:os";
import { expect, it } from "vitest";
import type { CommandSpec, ProcessEnd } from "../../../src/worker/processes/index.js";
import { isRunning } from "../../support/process-table.js";
import { sleep, until } from "../../support/wait.js";
import { describeEachShell, only, outcomeOf, run, slotsForEachTest, start } from "./support.js";

const open = slotsForEachTest();

const inPipe = (line: string, more: Partial<CommandSpec> = {}): CommandSpec => ({
  argv: ["/bin/sh", "-c", line],
  asInPipe: true,
  ...more,
});

/** What a shell would have in `$?`. */
function statusOf({ code, signal }: ProcessEnd): number | undefined {
  return signal === undefined ? code : 128 + constants.signals[signal as NodeJS.Signals];
}

describeEachShell((shell) => {
  it("runs one after the other in the same shell and tells each exit code", async () => {
    const slot = only(open(shell));
    await run(slot, inPipe("exit 0"));
    const { pid } = slot;
    for (const code of [0, 1, 2, 126, 127, 128, 137, 255]) {
      const { end, stdout, stderr } = await run(slot, inPipe(`echo out; echo err >&2; exit ${code}`));
      expect([outcomeOf(end), stdout.toString(), stderr.toString()]).toEqual([{ code }, "out\n", "err\n"]);
    }
    expect(slot.pid).toBe(pid);
  });

  it("tells a signal that ended it as a shell does, and what it wrote is as it was", async () => {
    const slot = only(open(shell));
    for (const name of ["HUP", "KILL", "TERM", "SEGV", "INT"] as const) {
      const { end, stdout } = await run(slot, inPipe(`echo before; kill -${name} $$`));
      expect([statusOf(end), stdout.toString()]).toEqual([128 + constants.signals[`SIG${name}`], "before\n"]);
    }
  });

  it("has default signal dispositions and an empty mask", async () => {
    const slot = only(open(shell));
    for (let i = 0; i < 2; i++) {
      const { stdout } = await run(slot, { argv: ["/bin/cat", "/proc/self/status"], asInPipe: true });
      const masks = [...stdout.toString().matchAll(/^Sig(?:Blk|Ign|Cgt):\s*([0-9a-f]+)$/gm)].map(([, mask]) => mask);
      expect(masks.map(Number)).toEqual([0, 0, 0]);
    }
  });

  it("is not over while something that it left behind can write", async () => {
    const slot = only(open(shell));
    const { stdout, end } = await run(slot, inPipe("(sleep 0.3; echo late) & echo soon; exit 3"));
    expect([end.code, stdout.toString()]).toEqual([3, "soon\nlate\n"]);
  });

  it("leaves alone what it left behind and what cannot write any more", async () => {
    const slot = only(open(shell));
    const { stdout } = await run(slot, inPipe("sleep 60 >/dev/null 2>&1 & echo $!"));
    const left = Number(stdout.toString());
    await run(slot, inPipe("exit 0"));
    expect(isRunning(left)).toBe(true);
    await slot.close();
    await until("it ends with the slot", () => !isRunning(left));
  });

  it("survives a command that signals its whole process group", async () => {
    const slot = only(open(shell));
    const { end } = await run(
      slot,
      inPipe("trap '' HUP INT TERM USR1; for s in HUP INT TERM USR1; do kill -$s 0; done; exit 3"),
    );
    const { pid } = slot;
    expect(end.code).toBe(3);
    expect(statusOf((await run(slot, inPipe("kill -TERM 0; sleep 60"))).end)).toBe(143);
    expect(slot.pid).toBe(pid);
  });

  it("ends by SIGTERM at any moment after its start, and by SIGKILL with what it has started", async () => {
    const slot = only(open(shell));
    await run(slot, inPipe("exit 0"));
    for (let i = 0; i < 25; i++) {
      const { command, finished } = start(slot, { argv: ["/bin/sleep", "60"], asInPipe: true });
      if (i % 5 > 0) await sleep(i % 5);
      command.terminate(20_000);
      expect(statusOf((await finished).end)).toBe(143);
    }
    const { command, finished, printed } = start(slot, inPipe("sleep 60 & echo $! go; wait"));
    await printed("go");
    command.kill();
    const { end, stdout } = await finished;
    expect(end.signal).toBe("SIGKILL");
    await until("its child is gone", () => !isRunning(Number.parseInt(stdout.toString(), 10)));
  });

  it("takes a directory, an environment, a file to read and a command by its name too", async () => {
    const slot = only(open(shell));
    const { stdout } = await run(slot, inPipe('pwd; echo "$A"', { dir: "/", env: { A: "1 2" } }));
    expect(stdout.toString()).toBe("/\n1 2\n");
    const read = await run(slot, { argv: ["cat"], asInPipe: true, stdinFile: "/proc/self/comm" });
    expect(read.stdout.toString()).toBe("cat\n");
    expect(outcomeOf((await run(slot, { argv: ["/nowhere/x"], asInPipe: true })).end)).not.toEqual({ code: 0 });
    expect((await run(slot, { argv: ["there-is-no-such"], asInPipe: true })).end.error).toContain("there-is-no-such");
  });
});
