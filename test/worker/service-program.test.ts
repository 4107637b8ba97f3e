import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { isRunning } from "../support/process-table.js";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { text } from "../support/text.js";
import { until } from "../support/wait.js";

describe("a program as a service, started for each request", () => {
  it("reads the body and writes the answer", async () => {
    const { dir, client, worker } = await openTestBroker();
    worker({
      dir: join(dir, "w"),
      programs: { upper: { command: "tr a-z A-Z" }, who: { command: 'echo "$LABORO_SERVICE"' } },
    });
    expect(text(await client.request("upper", "hello"))).toBe("HELLO");
    expect(text(await client.request("who"))).toBe("who\n");
    const all = await Promise.all(Array.from({ length: 20 }, (_, i) => client.request("upper", `a${i}`)));
    expect(all.map(text)).toEqual(Array.from({ length: 20 }, (_, i) => `A${i}`));
    await until("no body is left lying about", () => readdirSync(join(dir, "w", "requests")).length === 0);
  });

  it("passes large bodies through untouched", async () => {
    const { client, worker } = await openTestBroker();
    worker({ programs: { echo: { command: "cat" } } });
    const body = Buffer.alloc(5_000_000, "0123456789abcdef");
    expect(Buffer.from(await client.request("echo", body)).equals(body)).toBe(true);
  });

  it("that fails is an error with the end of what it said", async () => {
    const { client, worker } = await openTestBroker();
    const long = "i=0; while [ $i -lt 400 ]; do echo line $i >&2; i=$((i+1)); done; exit 3";
    worker({
      programs: {
        long: { command: long },
        quiet: { command: "exit 3" },
        killed: { command: "kill -9 $$" },
        missing: { command: "no-such-program-here" },
      },
    });
    const failed = { code: "LABORO_SERVICE_FAILED" };
    const error = await client.request("long").catch((cause: Error) => cause);
    expect(error).toMatchObject({ ...failed, message: expect.stringMatching(/line 398\nline 399$/) });
    expect((error as Error).message.length).toBeLessThanOrEqual(2048);
    const quiet = { ...failed, message: "the program of quiet ended with code 3" };
    await expect(client.request("quiet")).rejects.toMatchObject(quiet);
    await expect(client.request("killed")).rejects.toMatchObject({
      ...failed,
      message: expect.stringContaining("SIGKILL"),
    });
    await expect(client.request("missing")).rejects.toMatchObject({
      ...failed,
      message: expect.stringContaining("not found"),
    });
  });

  it("is stopped, with all that it started, when nobody waits any more", async () => {
    const { dir, client, worker } = await openTestBroker();
    const pids = join(dir, "pids");
    const command = `sleep 60 & echo $! >${pids}.part; mv ${pids}.part ${pids}; wait`;
    worker({ slots: 1, programs: { slow: { command }, quick: { command: "echo ok" } } });
    const slow = client.request("slow", "", { timeoutMs: 700 });
    slow.catch(() => {});
    await until("it has started", () => existsSync(pids));
    const pid = readFileSync(pids, "utf8");
    expect(isRunning(Number(pid))).toBe(true);
    await expect(slow).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
    await until("its child is gone", () => !isRunning(Number(pid)));
    expect(text(await client.request("quick"))).toBe("ok\n");
  });

  it("runs beside tasks, each in shells of its own", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 2, programs: { upper: { command: "tr a-z A-Z" } } });
    const job = await client.submit({ recipe: { kind: "command", argv: ["true"] }, count: 60 });
    const answers = await Promise.all(Array.from({ length: 30 }, (_, i) => client.request("upper", `x${i}`)));
    expect(answers.map(text)).toEqual(Array.from({ length: 30 }, (_, i) => `X${i}`));
    expect(await job.wait()).toBe("succeeded");
  });

  it("answers the calls of a job too", async () => {
    const { client, worker } = await openTestBroker();
    worker({ programs: { half: { command: "read n; echo $((n / 2)) || exit 1" } } });
    const job = await client.submit({ recipe: { kind: "call", service: "half" }, entries: ["4\n", "10\n", "x y\n"] });
    expect(await job.wait()).toBe("failed");
    expect([await job.text(0), await job.text(1)]).toEqual(["2\n", "5\n"]);
    expect((await resultsOf(job))[2]).toMatchObject({ state: "failed", code: 1 });
  });

  it("may end what it is at when the worker stops", async () => {
    const { client, worker } = await openTestBroker();
    const stopping = worker({ programs: { slow: { command: "sleep 0.5; echo done" } } });
    await until("it has joined", () => stopping.joined);
    const asked = client.request("slow");
    await until("it has the request", async () => (await client.workers())[0]?.requests === 1);
    await Promise.all([stopping.stop(), expect(asked.then(text)).resolves.toBe("done\n")]);
  });
});
