import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import { describeEachShell, only, run, sh, slotsForEachTest, start } from "./support.js";

const open = slotsForEachTest();

describeEachShell((shell) => {
  it("delivers both streams apart, without a final newline and whatever the bytes", async () => {
    const slot = only(open(shell));
    const { stdout, stderr } = await run(slot, sh("printf 'a\\000\\377b'; printf 'no newline' >&2"));
    expect([...stdout]).toEqual([97, 0, 255, 98]);
    expect(stderr.toString()).toBe("no newline");
  });

  it("delivers 100 MB complete and in order, before the end", async () => {
    const slot = only(open(shell));
    const hash = createHash("sha256");
    let bytes = 0;
    const code = await new Promise((resolve) => {
      slot.run(sh("yes 0123456789abcde | head -c 104857600"), {
        output: (stream, piece) => {
          if (stream === "stdout") {
            bytes += piece.length;
            hash.update(piece);
          }
        },
        ended: (end) => resolve(end.code),
      });
    });
    const expected = createHash("sha256").update("0123456789abcde\n".repeat(6_553_600)).digest("hex");
    expect([code, bytes, hash.digest("hex")]).toEqual([0, 104_857_600, expected]);
  });

  it("delivers output as it comes while the command runs", async () => {
    const slot = only(open(shell));
    const { command, printed, finished } = start(slot, sh("echo first; sleep 60"));
    await printed("first");
    command.kill();
    expect((await finished).stdout.toString()).toBe("first\n");
  });

  it("takes a command that closes its streams, early or late", async () => {
    const slot = only(open(shell));
    expect((await run(slot, sh("exec >&- 2>&-; exit 5"))).end.code).toBe(5);
    const { end, stdout } = await run(slot, sh("echo x; exec >&- 2>&-; sleep 0.1; exit 6"));
    expect([end.code, stdout.toString()]).toEqual([6, "x\n"]);
    expect((await run(slot, sh("echo y"))).stdout.toString()).toBe("y\n");
  });

  it("does not take output for a report", async () => {
    const slot = only(open(shell));
    const text = "ready\nKilled\n0123456789abcdef01234567 E0\n E9\nX127\n";
    const { end, stdout, stderr } = await run(slot, sh('printf %s "$1"; printf %s "$1" >&2; exit 7', text));
    expect([end.code, stdout.toString(), stderr.toString()]).toEqual([7, text, text]);
  });

  it("lets a command reopen its own output by name", async () => {
    const slot = only(open(shell));
    const { end, stdout, stderr } = await run(slot, sh("echo a >/dev/stdout; echo b >/dev/stderr"));
    expect([end.code, stdout.toString(), stderr.toString()]).toEqual([0, "a\n", "b\n"]);
  });

  it("is not disturbed by a command that leaves its streams non-blocking", async () => {
    const slot = only(open(shell));
    const setNonBlocking =
      "process.stdout.write('x'); process.stdout._handle?.setBlocking?.(false); process.kill(process.pid, 'SIGKILL')";
    expect((await run(slot, { argv: [process.execPath, "-e", setNonBlocking] })).end.signal).toBe("SIGKILL");
    const { end, stdout } = await run(slot, sh("head -c 3000000 /dev/zero"));
    expect([end.code, stdout.length]).toEqual([0, 3_000_000]);
  });
});
