import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { isRunning } from "../../support/process-table.js";
import { until } from "../../support/wait.js";
import {
  describeEachShell,
  inSubshell,
  only,
  outcomeOf,
  run,
  type Shell,
  sh,
  slotsForEachTest,
  start,
} from "./support.js";

const open = slotsForEachTest();

/** A shell that says "ready" and then, instead of opening its report pipe, does something else. */
const insteadOfReports = (shell: Shell, line: string): Shell => [
  ...shell,
  "-c",
  `while read -r line; do case $line in "exec >"*) ${line};; *) eval "$line";; esac; done`,
];

describeEachShell((shell) => {
  it("reports every exit code as the code it is, those above 128 too", async () => {
    const slot = only(open(shell));
    for (const code of [0, 1, 2, 125, 126, 127, 128, 129, 130, 131, 134, 137, 139, 141, 143, 159, 255]) {
      expect(outcomeOf((await run(slot, sh(`exit ${code}`))).end)).toEqual({ code });
      expect(outcomeOf((await run(slot, inSubshell(sh(`exit ${code}`)))).end)).toEqual({ code });
    }
  });

  it("reports death by a signal as that signal", async () => {
    const slot = only(open(shell));
    for (const name of [
      "HUP",
      "QUIT",
      "ILL",
      "TRAP",
      "ABRT",
      "FPE",
      "KILL",
      "USR1",
      "SEGV",
      "USR2",
      "ALRM",
      "TERM",
      "XCPU",
      "SYS",
    ]) {
      for (const spec of [sh(`kill -${name} $$`), inSubshell(sh(`kill -${name} $$`))]) {
        const { end, stderr } = await run(slot, spec);
        expect([outcomeOf(end), stderr.toString()]).toEqual([{ signal: `SIG${name}` }, ""]);
      }
    }
  });

  it("keeps what a command wrote apart from what its shell says about a signal, soon and late", async () => {
    const slot = only(open(shell));
    for (const pause of ["", "sleep 0.1;"]) {
      const text = async (line: string): Promise<[object, string]> => {
        const { end, stderr } = await run(slot, sh(`${pause}${line}`));
        return [outcomeOf(end), stderr.toString()];
      };
      expect(await text("echo Killed >&2; kill -KILL $$")).toEqual([{ signal: "SIGKILL" }, "Killed\n"]);
      expect(await text("printf half >&2; kill -KILL $$")).toEqual([{ signal: "SIGKILL" }, "half"]);
      // The message of a shell inside the command is the command's own.
      expect(await text("echo Killed >&2; exit 137")).toEqual([{ code: 137 }, "Killed\n"]);
      const long = `${"x".repeat(300)}\n`;
      expect(await text(`echo ${long.trim()} >&2; echo last >&2`)).toEqual([{ code: 0 }, `${long}last\n`]);
    }
  });

  it("reports a signal that dumped core as that signal", async () => {
    const slot = only(open(shell));
    const { end } = await run(slot, sh("ulimit -c unlimited; cd /; kill -ABRT $$"));
    expect(outcomeOf(end)).toEqual({ signal: "SIGABRT" });
  });

  it("takes death by SIGINT and SIGPIPE, of which no shell tells, for exit 130 and 141", async () => {
    const slot = only(open(shell));
    expect(outcomeOf((await run(slot, sh("kill -INT $$"))).end)).toEqual({ code: 130 });
    expect(outcomeOf((await run(slot, sh("kill -PIPE $$"))).end)).toEqual({ code: 141 });
  });

  it("survives a command that signals its whole process group", async () => {
    const slot = only(open(shell));
    const { end } = await run(
      slot,
      sh("trap '' HUP INT QUIT TERM USR1 USR2; for s in HUP INT QUIT TERM USR1 USR2; do kill -$s 0; done; exit 3"),
    );
    expect(outcomeOf(end)).toEqual({ code: 3 });
    const { pid } = slot;
    expect(outcomeOf((await run(slot, sh("kill -TERM 0; sleep 60"))).end)).toEqual({ signal: "SIGTERM" });
    expect(slot.pid).toBe(pid);
  });

  it("gives commands default signal dispositions and an empty signal mask", async () => {
    const slot = only(open(shell));
    const { stdout } = await run(slot, { argv: ["cat", "/proc/self/status"] });
    const masks = [...stdout.toString().matchAll(/^(Sig(?:Blk|Ign|Cgt)):\s*([0-9a-f]+)$/gm)].map(([, name, mask]) => [
      name,
      BigInt(`0x${mask}`),
    ]);
    expect(masks).toEqual([
      ["SigBlk", 0n],
      ["SigIgn", 0n],
      ["SigCgt", 0n],
    ]);
  });

  it("reports a slot shell that someone killed, and runs the next command in a new one", async () => {
    const slot = only(open(shell));
    await run(slot, sh("exit 0"));
    const { pid } = slot;
    if (pid === undefined) throw new Error("the slot has no shell");
    const { end, stdout } = await run(slot, { argv: ["sh", "-c", `echo before; kill -9 ${pid}; sleep 60`] });
    expect(end.signal).toBe("SIGKILL");
    expect(end.error).toContain("shell ended");
    expect(stdout.toString()).toBe("before\n");
    expect(outcomeOf((await run(slot, sh("exit 4"))).end)).toEqual({ code: 4 });
    expect(slot.pid).not.toBe(pid);
  });

  it("reports a slot shell that died right after it was ready", async () => {
    const slot = only(open(insteadOfReports(shell, "kill -9 $$")));
    const { end } = await run(slot, sh("exit 0"));
    expect(end.signal).toBe("SIGKILL");
    expect(end.error).toContain("shell ended");
  });

  it("kills a command, and closes, where the slot's shell is ready but not yet at its report pipe", async () => {
    const slots = open(insteadOfReports(shell, "exec sleep 60"));
    const slot = only(slots);
    const { command, finished } = start(slot, sh("exit 0"));
    const { pid = 0 } = slot;
    await until("it says ready", () => readFileSync(`/proc/${pid}/comm`, "utf8") === "sleep\n");
    command.kill();
    await finished;
    await slots.close();
    expect(isRunning(pid)).toBe(false);
  });

  it("tells when a command started and ended", async () => {
    const slot = only(open(shell));
    await run(slot, sh("exit 0"));
    const before = Date.now();
    const { end } = await run(slot, sh("sleep 0.1"));
    expect(end.started).toBeGreaterThanOrEqual(before);
    expect(end.ended - end.started).toBeGreaterThanOrEqual(95);
    expect(end.ended).toBeLessThanOrEqual(Date.now());
  });

  it("runs many commands one after the other without mixing them up", async () => {
    const slots = open(shell, 2);
    await Promise.all(
      slots.slots.map(async (slot, which) => {
        for (let i = 0; i < 150; i += 1) {
          const { end, stdout, stderr } = await run(
            slot,
            sh('echo "out $1"; echo "err $1" >&2; exit $2', `${which}.${i}`, String(i % 120)),
          );
          expect([end.code, stdout.toString(), stderr.toString()]).toEqual([
            i % 120,
            `out ${which}.${i}\n`,
            `err ${which}.${i}\n`,
          ]);
        }
      }),
    );
  });
});
