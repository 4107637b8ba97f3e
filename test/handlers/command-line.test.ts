/** `laboro worker --handlers`: a worker in a process of its own, as it is started in production. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { defineTask } from "../../src/entries/client.js";
import type { Launched } from "../support/launched.js";
import { childrenOf, isRunning } from "../support/process-table.js";
import { openTestBroker, type TestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";
import { launchWorker } from "./launch.js";

const MODULE = fileURLToPath(new URL("./tasks.mjs", import.meta.url));
const double = defineTask<number, { doubled: number }>("double");
const block = defineTask<{ ms: number; marker?: string }, string>("block");
const pid = defineTask<null, number>("pid");
const flood = defineTask<string, never>("flood");

const launch = (setup: TestBroker, ...options: string[]): Launched => launchWorker(setup, "w", ...options);

describe("laboro worker --handlers", () => {
  it("runs the handlers of a module in threads, says which, and lets them end at SIGTERM", async () => {
    const setup = await openTestBroker();
    const worker = launch(setup, "--handlers", MODULE, "--slots", "2");
    await worker.says("handles block, crash, sum");
    expect(await (await setup.client.add(double, 21)).result()).toMatchObject({ doubled: 42 });
    const last = await setup.client.add(block, { ms: 500 });
    await until("it runs", async () => (await last.explain(0)).startsWith("it runs"));
    worker.signal("SIGTERM");
    expect(await last.result()).toBe("unblocked");
    await worker.ended();
    expect([worker.exitCode, worker.said]).toEqual([0, expect.stringContaining("w has stopped")]);
  });

  it("runs them in processes with --handler-memory, and leaves none when it is killed, busy or not", async () => {
    const setup = await openTestBroker();
    const worker = launch(setup, "--handlers", MODULE, "--slots", "2", "--handler-memory", "64M");
    await worker.says("handles ");
    const busy = await setup.client.add(block, { ms: 600_000 });
    await until("it runs", async () => (await busy.explain(0)).startsWith("it runs"));
    const idle = await (await setup.client.add(pid, null)).result();
    const processes = childrenOf(worker.pid).filter(({ command }) => command.includes("handler-thread"));
    expect(processes.map((one) => one.pid)).toContain(idle);
    expect(processes).toHaveLength(2);
    await worker.end("SIGKILL");
    await until("they have ended", () => !processes.some((one) => isRunning(one.pid)));
  });

  it("ends with an error that names the module where that cannot be loaded", async () => {
    const setup = await openTestBroker();
    const broken = join(setup.dir, "broken.mjs");
    writeFileSync(broken, "export const a = ;\n");
    for (const [file, why] of [
      [join(setup.dir, "missing.mjs"), /--handlers .*missing\.mjs: Cannot find module/],
      [broken, /--handlers .*broken\.mjs: .*Unexpected token/],
    ] as const) {
      const worker = launch(setup, "--handlers", file);
      await worker.ended();
      expect([worker.exitCode, worker.said]).toEqual([2, expect.stringMatching(why)]);
    }
  });

  it.each([
    ["blocks", [], block, { ms: 600_000 }],
    ["writes lines without end", [], flood, "log"],
    ["in a process writes lines without end", ["--handler-memory", "64M"], flood, "log"],
    ["reports progress without end", [], flood, "progress"],
  ] as const)("keeps its heartbeat while one %s, and ends it past its time limit", async (_what, how, task, input) => {
    const setup = await openTestBroker({ heartbeatMs: 500 });
    const kinds: string[] = [];
    setup.broker.core.events.onAdded(({ kind }) => kinds.push(kind));
    const worker = launch(setup, "--handlers", MODULE, "--slots", "2", "--cancel-grace", "100ms", ...how);
    await worker.says("handles ");
    // Longer than the three heartbeats after which a silent worker is disconnected.
    const job = await setup.client.add(task as typeof flood, input as string, { timeLimitMs: 3_000 });
    await expect(job.result()).rejects.toMatchObject({ message: /did not end within 100 ms/ });
    expect(await (await setup.client.add(double, 21)).result()).toMatchObject({ doubled: 42 });
    expect(kinds).not.toContain("worker-disconnected");
  });
});
