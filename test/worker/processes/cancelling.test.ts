import { expect, it } from "vitest";
import { isRunning } from "../../support/process-table.js";
import { until } from "../../support/wait.js";
import { describeEachShell, only, outcomeOf, run, sh, slotsForEachTest, start } from "./support.js";

const open = slotsForEachTest();
const firstNumber = (bytes: Buffer): number => Number(/[0-9]+/.exec(bytes.toString())?.[0]);

describeEachShell((shell) => {
  it("ends a command and its children by SIGTERM, and keeps its shell", async () => {
    const slot = only(open(shell));
    const { command, printed, finished } = start(slot, sh("sleep 60 & echo $! go; wait"));
    await printed("go");
    const { pid } = slot;
    command.terminate(20_000);
    const { end, stdout } = await finished;
    expect(outcomeOf(end)).toEqual({ signal: "SIGTERM" });
    await until("the child is gone", () => !isRunning(firstNumber(stdout)));
    expect(outcomeOf((await run(slot, sh("exit 2"))).end)).toEqual({ code: 2 });
    expect(slot.pid).toBe(pid);
  });

  it("reports the exit code of a command that answers SIGTERM by exiting", async () => {
    const slot = only(open(shell));
    const { command, printed, finished } = start(
      slot,
      sh("trap 'echo bye; exit 9' TERM; echo go; while :; do sleep 0.05; done"),
    );
    await printed("go");
    command.terminate(20_000);
    const { end, stdout } = await finished;
    expect([end.code, stdout.toString()]).toEqual([9, "go\nbye\n"]);
  });

  it("kills a command that ignores SIGTERM when the grace is over, and starts a new shell for the next", async () => {
    const slot = only(open(shell));
    const { command, printed, finished } = start(slot, sh("trap '' TERM; echo $$ go; while :; do sleep 0.05; done"));
    await printed("go");
    command.terminate(100);
    command.terminate(100);
    const { end, stdout } = await finished;
    expect(outcomeOf(end)).toEqual({ signal: "SIGKILL" });
    expect(isRunning(firstNumber(stdout))).toBe(false);
    expect(slot.busy).toBe(false);
    expect(outcomeOf((await run(slot, sh("exit 2"))).end)).toEqual({ code: 2 });
  });

  it("terminates at any moment after the start, also before the command has begun", async () => {
    const slot = only(open(shell));
    await run(slot, sh("exit 0"));
    for (let i = 0; i < 25; i += 1) {
      const { command, finished } = start(slot, { argv: ["sleep", "60"] });
      for (const end = performance.now() + i / 10; performance.now() < end; );
      command.terminate(20_000);
      expect(outcomeOf((await finished).end)).toEqual({ signal: "SIGTERM" });
    }
  });

  it("terminates a command that is stopped", async () => {
    const slot = only(open(shell));
    const { command, printed, finished } = start(slot, sh("echo go; kill -STOP $$; sleep 60"));
    await printed("go");
    command.terminate(20_000);
    expect(outcomeOf((await finished).end)).toEqual({ signal: "SIGTERM" });
  });

  it("does not start a command that was cancelled while it waited for its shell", async () => {
    const slot = only(open(shell));
    const { command, finished } = start(slot, sh("exit 0"));
    command.terminate(1_000);
    expect(outcomeOf((await finished).end)).toEqual({ error: "cancelled before it was started" });
    expect(slot.busy).toBe(false);
    const next = start(slot, sh("exit 0"));
    next.command.kill();
    expect((await next.finished).end.error).toBe("cancelled before it was started");
    expect((await run(slot, sh("exit 8"))).end.code).toBe(8);
  });

  it("ignores the end of a command that is long over", async () => {
    const slot = only(open(shell));
    const first = start(slot, sh("exit 0"));
    await first.finished;
    const second = start(slot, sh("sleep 0.1; exit 4"));
    first.command.kill();
    first.command.terminate(0);
    expect(outcomeOf((await second.finished).end)).toEqual({ code: 4 });
  });

  it("ends what a command left running, at once in report and out of the next command's output", async () => {
    const slot = only(open(shell));
    const { end, stdout } = await run(slot, sh("(while :; do echo noise; sleep 0.01; done) & echo $!; exit 3"));
    expect(end.code).toBe(3);
    expect(end.ended - end.started).toBeLessThan(1_000);
    const next = await run(slot, sh("sleep 0.1; echo clean"));
    expect(next.stdout.toString()).toBe("clean\n");
    await until("the leftover is gone", () => !isRunning(firstNumber(stdout)));
  });

  it("ends a leftover that holds no output too", async () => {
    const slot = only(open(shell));
    const { stdout } = await run(slot, sh("sleep 60 >/dev/null 2>&1 & echo $!"));
    await until("the leftover is gone", () => !isRunning(firstNumber(stdout)));
  });

  it("kills a leftover that ignores SIGTERM and holds the output, before the next command runs", async () => {
    const slot = only(open(shell));
    const { end, stdout } = await run(
      slot,
      sh("(trap '' TERM; while :; do echo noise; sleep 0.01; done) & echo $!; exit 3"),
    );
    expect(end.code).toBe(3);
    const next = await run(slot, sh("echo clean"));
    expect([next.stdout.toString(), next.end.code]).toEqual(["clean\n", 0]);
    expect(isRunning(firstNumber(stdout))).toBe(false);
  });

  it("keeps the output of a leftover that has fled into its own session out of the next command's", async () => {
    const slot = only(open(shell));
    const { stdout } = await run(slot, sh("setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2"));
    const fled = firstNumber(stdout);
    try {
      const next = await run(slot, sh("echo clean"));
      expect(next.stdout.toString()).toBe("clean\n");
      expect(isRunning(fled)).toBe(true);
    } finally {
      process.kill(fled, "SIGKILL");
    }
  });

  it("leaves no process when it is closed while commands run", async () => {
    const slots = open(shell, 3);
    const commands = slots.slots.map((slot) => start(slot, sh("trap '' TERM; sleep 60 & echo $$; wait")));
    await Promise.all(commands.map(({ printed }) => printed("\n")));
    const shells = slots.slots.map(({ pid }) => pid ?? 0);
    const guardian = slots.guardian.pid ?? 0;
    await slots.close();
    for (const { finished } of commands) {
      const { end, stdout } = await finished;
      expect(outcomeOf(end)).toEqual({ signal: "SIGKILL" });
      expect(isRunning(firstNumber(stdout))).toBe(false);
    }
    for (const pid of [...shells, guardian]) expect(isRunning(pid)).toBe(false);
    expect(() => only(slots).run(sh("exit 0"), { output: () => {}, ended: () => {} })).toThrow("closed");
  });
});
