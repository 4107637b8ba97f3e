/** Our runner, with a manager that reads as the original does, and with ours. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import type { Runner, RunnerOptions } from "../../../src/protocols/runexp/runner/index.js";
import { atEnd } from "../../support/at-end.js";
import { until } from "../../support/wait.js";
import { LiteralManager } from "./literal-manager.js";
import { openPlace } from "./place.js";
import { job, list, manager, newDir, normalized, start as startIn } from "./runner-kit.js";

let dir: string;
beforeEach(() => {
  dir = newDir();
});

const start = (port: number, options: Partial<RunnerOptions> = {}): Runner =>
  startIn(port, { dir: join(dir, "spool"), ...options });

interface Write {
  readonly text: string;
  readonly at: number;
}

/** What is written to connections that are opened to this port, each write as it is made: a reader may get two in one read. */
function recordWrites(port: number): readonly Write[] {
  const writes: Write[] = [];
  const record = (socket: Socket): void => {
    if (socket.remotePort !== port) return;
    const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
    socket.write = (bytes: Uint8Array | string, ...rest: unknown[]) => {
      writes.push({ text: Buffer.from(bytes).toString("latin1"), at: performance.now() });
      return write(bytes, ...rest);
    };
  };
  const opened = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket };
    socket.once("connect", () => record(socket));
  };
  subscribe("net.client.socket", opened);
  atEnd(() => unsubscribe("net.client.socket", opened));
  return writes;
}

describe("a runner", () => {
  it("runs what it is given, one message a write, and says what the original would say", async () => {
    const jobs = [
      job("ok", "echo hi; echo RES:done"),
      job("sub dir/exit 3", "echo RES:done; exit 3"),
      job("empty", ""),
      job("killed", "kill -9 $$"),
      job("stderr", "echo RES:failed; echo oops >&2"),
      job("where", 'pwd; echo "$0 $#"; read x; echo "got <$x>"; echo RES:done'),
    ];
    const complaints: string[] = [];
    const served = await manager(list(jobs));
    const writes = recordWrites(served.port);
    const runner = start(served.port, { on: { stderr: (bytes) => void complaints.push(String(bytes)) } });
    expect(await runner.ended).toMatchObject({ status: "finished", spooledResults: 0 });
    expect(served.faults).toEqual([]);
    const messages = writes.map(({ text }) =>
      text.replace(/^(REZULTO) .* (success|failure) \d+$/, "$1").replace(/^runexp summary: [\s\S]*$/, "OUTPUT"),
    );
    const exchanges = jobs.flatMap(() => ["PETO", "PRETA", "REZULTO", "OUTPUT"]);
    expect(messages).toEqual(["SALUTON; MI vm", "KOMPRENAS", "JES", ...exchanges, "PETO", "FINO ANKAU"]);
    // No answer comes to JES, nor to PRETA for an empty script. A timer may fire a millisecond early.
    const gap = (at: number): number => (writes[at + 1]?.at ?? 0) - (writes[at]?.at ?? 0);
    const empty = writes.findIndex(({ text }) => text.startsWith("REZULTO empty "));
    for (const at of [2, empty - 1]) expect(gap(at)).toBeGreaterThanOrEqual(99);
    expect(served.results.map(({ name, status }) => `${name}: ${status}`)).toEqual([
      "ok: success",
      "sub dir/exit 3: success",
      "empty: failure",
      "killed: failure",
      "stderr: failure",
      "where: success",
    ]);
    const texts = served.results.map(({ output }) => normalized(String(output)));
    const head = (name: string, status: string, exit: number): string =>
      `runexp summary: ${status}\n\nDATE -- [HOST] Running ${name}\n> bash 'FILE'\nDATE -- Finished running\n` +
      `Program exited with status ${exit}\nProgram output follows\n\n`;
    expect(texts).toEqual([
      `${head("ok", "success", 0)}hi\nRES:done\n`,
      `${head("sub dir/exit 3", "success", 768)}RES:done\n`,
      head("empty", "failure", 0),
      `${head("killed", "failure", 35072)}`,
      `${head("stderr", "failure", 0)}RES:failed\n`,
      `${head("where", "success", 0)}${process.cwd()}\nFILE 0\ngot <>\nRES:done\n`,
    ]);
    // Some shells say there what has ended a job.
    expect(complaints.filter((text) => text !== "Killed\n")).toEqual(["oops\n"]);
    expect(readdirSync(join(dir, "spool")).sort()).toEqual(["results"]);
  });

  it("runs so many at once over one connection", async () => {
    const gate = join(dir, "gate");
    const script = `touch ${gate}.$$; while [ $(ls ${gate}.* | wc -l) -lt 3 ]; do sleep 0.02; done; echo RES:done`;
    const served = await manager(list([job("a", script), job("b", script), job("c", script)]));
    expect(await start(served.port, { threads: 3 }).ended).toMatchObject({ status: "finished" });
    expect(served.results.map(({ status }) => status)).toEqual(["success", "success", "success"]);
    expect([served.connections, served.faults]).toEqual([1, []]);
  });

  it("delivers much output as it is", async () => {
    const served = await manager(list([job("much", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo RES:done")]));
    await start(served.port).ended;
    const [result] = served.results;
    expect(result?.status).toBe("success");
    expect(String(result?.output).endsWith(`${"x".repeat(3_000_000)}\nRES:done\n`)).toBe(true);
  });

  it("says that a job has failed whose kind it does not know", async () => {
    const served = await manager(list([job("x", "1", ".py")]));
    await start(served.port).ended;
    expect(served.results).toMatchObject([{ status: "failure" }]);
    expect(String(served.results[0]?.output)).toContain("Invalid job type '.py'");
  });

  it("waits after an ATENDI with the thread that was told, and asks with the others", async () => {
    const answers = [job("short", "sleep 0.3; echo RES:done"), "ATENDI", job("next", "echo RES:done")] as const;
    let asked = 0;
    const served = await manager({ answer: () => answers[asked++] ?? "FINO" });
    const heard: boolean[] = [];
    // The hold would last longer than the test.
    const runner = start(served.port, { threads: 2, holdMs: 100_000, on: { onHold: (held) => void heard.push(held) } });
    await runner.ended;
    expect(served.results.map(({ name }) => name).sort()).toEqual(["next", "short"]);
    expect(heard).toEqual([true, false]);
  });

  it("asks again when the hold is over", async () => {
    const answers = ["ATENDI", "ATENDI", job("next", "echo RES:done")] as const;
    let asked = 0;
    const served = await manager({ answer: () => answers[asked++] ?? "FINO" });
    await start(served.port, { threads: 1, holdMs: 50 }).ended;
    expect(served.results.map(({ name }) => name)).toEqual(["next"]);
  });

  it("waits for all that can still write to a job's output, and lets what cannot go on", async () => {
    const served = await manager(
      list([
        job("late", "(sleep 0.5; echo RES:done) & echo started"),
        job("other", `(sleep 0.3; touch ${join(dir, "went-on")}) >/dev/null 2>&1 & echo RES:done`),
        job("last", `while [ ! -e ${join(dir, "went-on")} ]; do sleep 0.02; done; echo RES:done`),
      ]),
    );
    await start(served.port, { threads: 1 }).ended;
    expect(served.results.map(({ name, status }) => `${name} ${status}`)).toEqual([
      "late success",
      "other success",
      "last success",
    ]);
    expect(String(served.results[0]?.output)).toMatch(/\n\nstarted\nRES:done\n$/);
  });

  it("ends when it has said that it goes, although the manager keeps the connection", async () => {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      // On a slow machine one read gives JES and PETO.
      const answers = { SALUTON: "VERSIO 1.3", KOMPRENAS: "ALIGI __defaulte__", PETO: "FINO" };
      socket.on("data", (bytes) => {
        for (const [word, answer] of Object.entries(answers)) if (bytes.includes(word)) socket.write(answer);
      });
      socket.on("error", () => {});
      atEnd(() => void socket.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    atEnd(() => new Promise<void>((resolve) => server.close(() => resolve())));
    const { port } = server.address() as AddressInfo;
    expect(await start(port, { threads: 1 }).ended).toMatchObject({ status: "finished" });
  });

  it("leaves in order when it is banned, with what it has run delivered", async () => {
    let asked = 0;
    const slow = job("slow", "sleep 0.3; echo RES:failed");
    const served = await manager({ answer: () => (asked++ === 0 ? slow : "ELIRI") });
    expect(await start(served.port, { threads: 2 }).ended).toMatchObject({ status: "banned", spooledResults: 0 });
    expect(served.results).toHaveLength(1);
  });

  it.each([
    ["another version", { version: "1.2" }, "the manager speaks version 1.2"],
    ["another group", { group: "alpha" }, "the manager's group is alpha"],
  ])("leaves a manager of %s", async (_what, options, why) => {
    const served = await manager({ ...options, answer: () => "FINO" });
    const end = await start(served.port).ended;
    expect(end.status).toBe("refused");
    expect(end.reason).toContain(why);
  });

  it("says at once that no manager is there", async () => {
    const served = await LiteralManager.open({ answer: () => "FINO" });
    const { port } = served;
    await served.close();
    expect(await start(port).ended).toMatchObject({ status: "unreachable" });
  });

  it("asks for nothing while memory is short", async () => {
    const served = await manager(list([job("a", "echo RES:done")]));
    const heard: boolean[] = [];
    const runner = start(served.port, {
      minMemory: 2 ** 60,
      on: { memory: (enough) => void heard.push(enough) },
    });
    await until("it says that memory is short", () => heard.length > 0);
    expect(heard).toEqual([false]);
    expect(served.said).toEqual(["VERSIO 1.3", "ALIGI __defaulte__"]);
    runner.stop(false);
    expect(await runner.ended).toMatchObject({ status: "stopped" });
  });

  it("stopped with nothing to do, ends, although the manager has no answer for it", async () => {
    const { port } = await openPlace();
    let joined = false;
    const runner = start(port, {
      on: {
        joined: () => {
          joined = true;
        },
      },
    });
    await until("it has joined", () => joined);
    runner.stop(false);
    expect(await runner.ended).toMatchObject({ status: "stopped", spooledResults: 0 });
  });

  it("goes on through a cut, and does not run twice what it is handed again", async () => {
    const go = join(dir, "go");
    const script = `echo x >>${dir}/runs; while [ ! -e ${go} ]; do sleep 0.02; done; echo RES:done`;
    let asked = 0;
    const served = await manager({ answer: () => (asked++ < 2 ? job("a", script) : asked > 3 ? "FINO" : "ATENDI") });
    const runner = start(served.port, { threads: 2, holdMs: 50 });
    await until("it runs", () => served.said.length >= 4);
    served.cut();
    await until("it is back", () => served.connections === 2);
    await until("it was handed the same again", () => asked >= 2);
    writeFileSync(go, "");
    expect(await runner.ended).toMatchObject({ status: "finished" });
    expect(served.results.map(({ name }) => name)).toEqual(["a"]);
    expect(readFileSync(join(dir, "runs"), "utf8")).toBe("x\n");
  });

  it("gives up a manager that lets it in and then breaks the protocol, each time", async () => {
    let connections = 0;
    const server = createServer((socket) => {
      connections++;
      const answers = { SALUTON: "VERSIO 1.3", KOMPRENAS: "ALIGI __defaulte__", PETO: "LABOR nonsense" };
      socket.on("data", (chunk) => {
        // JES and PETO can come in one chunk.
        for (const [word, answer] of Object.entries(answers)) if (chunk.includes(word)) socket.write(answer);
      });
      socket.on("error", () => {});
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    atEnd(() => new Promise<void>((resolve) => server.close(() => resolve())));
    const { port } = server.address() as AddressInfo;
    const end = await start(port, { threads: 1, reconnectTimeoutMs: 1_000 }).ended;
    expect(end).toMatchObject({ status: "unreachable" });
    expect(end.reason).toContain("the manager sent");
    // With longer and longer pauses.
    expect(connections).toBeGreaterThan(1);
    expect(connections).toBeLessThan(8);
  });

  it("stopped by force, leaves its tasks to others, and no process", async () => {
    const { client, port } = await openPlace();
    const submitted = await client.submit({
      recipe: { kind: "command", argv: ["sh", "-c", `echo $$ >${dir}/pid; exec sleep 60`] },
    });
    const runner = start(port);
    const pid = await until("it runs", () => pidIn(join(dir, "pid")));
    runner.stop(true);
    expect(await runner.ended).toMatchObject({ status: "stopped" });
    await until("the process is gone", () => !isThere(pid));
    expect((await submitted.info()).ended).toBeUndefined();
    await until("the task waits again", () => submitted.explain(0).then((why) => /worker/.test(why)));
  });
});

describe("our manager with our runner", () => {
  it("runs jobs of every kind, with entries, limits and failures", async () => {
    const { client, port } = await openPlace();
    const runner = start(port, { threads: 2, holdMs: 50 });
    const echo = await client.submit({
      recipe: { kind: "command", argv: ["printf", "<%s>", "{}"], placeholders: true },
      entries: ["a b", "ç", "'q'", "-n"],
    });
    const codes = await client.submit({
      recipe: { kind: "command", argv: ["exit {#}"], placeholders: true, shell: true },
      count: 3,
    });
    const late = await client.submit({ recipe: { kind: "command", argv: ["sleep", "60"] }, timeLimitMs: 200 });
    const flaky = await client.submit({
      recipe: { kind: "command", argv: ["sh", "-c", `test -e ${dir}/again || { touch ${dir}/again; exit 1; }`] },
      retries: 1,
    });
    expect(await echo.wait()).toBe("succeeded");
    expect(await Promise.all([0, 1, 2, 3].map((i) => echo.text(i)))).toEqual(["<a b>", "<ç>", "<'q'>", "<-n>"]);
    expect(await codes.wait()).toBe("failed");
    const ends = [];
    for await (const { code } of codes.results()) ends.push(code);
    expect(ends).toEqual([1, 2, 3]);
    expect(await late.wait()).toBe("failed");
    for await (const result of late.results()) expect(result).toMatchObject({ timedOut: true });
    expect(await flaky.wait()).toBe("succeeded");
    await client.stopWorker("vm");
    expect(await runner.ended).toMatchObject({ status: "finished" });
  });
});

function pidIn(file: string): number | undefined {
  try {
    return Number(readFileSync(file, "utf8")) || undefined;
  } catch {
    return undefined;
  }
}

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
