import { existsSync } from "node:fs";
import { expect, it } from "vitest";
import { sleep } from "../../support/wait.js";
import { describeEachShell, inSubshell, only, run, sh, slotsForEachTest, start } from "./support.js";

const open = slotsForEachTest();
const BUSY = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
const hasProc = existsSync("/proc/self/stat");

describeEachShell((shell) => {
  it.runIf(hasProc)("tells the CPU time of each command apart, with that of its children (needs /proc)", async () => {
    const slot = only(open(shell));
    const busy = await run(slot, sh(BUSY));
    const child = await run(slot, sh(`sh -c '${BUSY}'; exit 3`));
    const idle = await run(slot, { argv: ["sleep", "0.05"] });
    const again = await run(slot, inSubshell(sh(BUSY)));
    for (const { end } of [busy, child, again]) expect(end.cpuMs).toBeGreaterThan(0);
    expect(idle.end.cpuMs ?? 0).toBeLessThanOrEqual(10);
    const total = [busy, child, again].reduce((sum, { end }) => sum + end.ended - end.started, 0);
    expect([busy, child, again].reduce((sum, { end }) => sum + (end.cpuMs ?? 0), 0)).toBeLessThanOrEqual(total + 40);
  });
});

it.runIf(hasProc)(
  "sees the memory of a long command, of all of its processes, also if it is killed (needs /proc)",
  async () => {
    const slot = only(open(undefined, undefined, undefined, 20));
    const size = 48 * 2 ** 20;
    const short = await run(slot, sh("exit 0"));
    expect(short.end.peakMemory).toBeUndefined();
    // Two processes, each with half of it in a variable.
    const half = `sh -c 'v=$(head -c ${size / 2} /dev/zero | tr "\\0" x); echo "$0 holds"; sleep 60; echo "$v"'`;
    const holds = `${half} one & ${half} two; wait`;
    const { command, finished, printed } = start(slot, sh(holds));
    await Promise.all([printed("one holds"), printed("two holds")]);
    // Some samples.
    await sleep(200);
    command.kill();
    const { end } = await finished;
    expect(end.signal).toBe("SIGKILL");
    expect(end.peakMemory).toBeGreaterThanOrEqual(size);
    expect(end.peakMemory).toBeLessThan(4 * size);
  },
);
