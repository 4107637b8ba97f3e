import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defineTask } from "../../src/entries/task.js";
import { CALL_NOTHING, NOTHING, sh, TRUE } from "../support/recipes.js";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { until } from "../support/wait.js";

describe("a job", () => {
  it("runs its commands and keeps exit code, output and errors of each task apart", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const job = await client.submit({
      recipe: sh('echo "out $LABORO_TASK"; echo "err" >&2; exit $((LABORO_TASK - 1))'),
      count: 3,
    });
    expect(await job.wait()).toBe("failed");
    const results = await resultsOf(job);
    expect(results.map(({ index, number, code, state }) => [index, number, code, state])).toEqual([
      [0, 1, 0, "succeeded"],
      [1, 2, 1, "failed"],
      [2, 3, 2, "failed"],
    ]);
    expect(await job.text(1)).toBe("out 2\n");
    expect(await job.text(1, "stderr")).toBe("err\n");
    expect((await job.info()).counters).toEqual({ succeeded: 1, failed: 2, cancelled: 0, running: 0, waiting: 0 });
  });

  it("puts entries into its arguments as they are, whatever is in them", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const entries = ["a b", "it's", "$(echo no)", "line\nbreak", "-n", "", Uint8Array.of(0xff, 0xfe)];
    const job = await client.submit({
      recipe: { kind: "command", argv: ["printf", "%s|%s", "{}", "{#}"], placeholders: true },
      entries,
    });
    expect(await job.wait()).toBe("succeeded");
    for (const [index, entry] of entries.entries()) {
      const parts: Uint8Array[] = [];
      for await (const { bytes } of job.output(index)) parts.push(bytes);
      expect(Buffer.concat(parts)).toEqual(Buffer.concat([Buffer.from(entry), Buffer.from(`|${index + 1}`)]));
    }
  });

  it("quotes entries in a line for the shell", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const recipe = {
      kind: "command" as const,
      argv: ["echo {/} | tr a-z A-Z; echo {.}"],
      placeholders: true,
      shell: true,
    };
    const job = await client.submit({ recipe, entries: ["dir/it's; exit 9.txt"] });
    expect(await job.wait()).toBe("succeeded");
    expect(await job.text(0)).toBe("IT'S; EXIT 9.TXT\ndir/it's; exit 9\n");
  });

  it("has its own directory, environment and input", async () => {
    const { client, worker, dir } = await openTestBroker();
    worker();
    const recipe = {
      ...sh('pwd; echo "$COLOUR"; cat'),
      dir,
      env: { COLOUR: "deep blue" },
      stdin: Buffer.from("from the client"),
    };
    const job = await client.submit({ recipe });
    expect(await job.wait()).toBe("succeeded");
    expect(await job.text(0)).toBe(`${dir}\ndeep blue\nfrom the client`);
  });

  it("ships a script to the worker", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const recipe = {
      kind: "script" as const,
      type: ".sh",
      content: Buffer.from('echo "$1 and $LABORO_TASK"\n'),
      args: ["one"],
    };
    const job = await client.submit({ recipe, count: 2 });
    expect(await job.wait()).toBe("succeeded");
    expect(await job.text(1)).toBe("one and 2\n");
  });

  it("says why a command could not be started", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const missing = await client.submit({ recipe: { kind: "command", argv: ["no-such-program"] } });
    const nowhere = await client.submit({ recipe: { ...sh("true"), dir: "/no/such/folder" } });
    expect([await missing.wait(), await nowhere.wait()]).toEqual(["failed", "failed"]);
    expect((await resultsOf(missing))[0]?.error).toContain("no-such-program");
    expect((await resultsOf(nowhere))[0]?.error).toContain("/no/such/folder");
  });

  it("is tried again after a failure, on its retries, and keeps each attempt's output", async () => {
    const { client, worker, dir } = await openTestBroker({ settings: { retryBackoffMs: 20 } });
    worker();
    const job = await client.submit({
      recipe: { ...sh('echo "attempt $LABORO_ATTEMPT"; test "$LABORO_ATTEMPT" = 3'), dir },
      retries: 2,
    });
    expect(await job.wait()).toBe("succeeded");
    expect((await resultsOf(job))[0]).toMatchObject({ attempt: 3, code: 0 });
    for (const attempt of [1, 2, 3]) {
      const parts: Uint8Array[] = [];
      for await (const { bytes } of job.output(0, { attempt })) parts.push(bytes);
      expect(Buffer.concat(parts).toString()).toBe(`attempt ${attempt}\n`);
    }
  });

  it("is stopped at its time limit, which counts as a failure", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const job = await client.submit({ recipe: { kind: "command", argv: ["sleep", "60"] }, timeLimitMs: 500 });
    expect(await job.wait()).toBe("failed");
    expect((await resultsOf(job))[0]).toMatchObject({ timedOut: true, signal: "SIGTERM" });
  });

  it("can be held and released", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const job = await client.submit({ recipe: TRUE, count: 5, held: true });
    expect(await job.explain(0)).toBe("its job is held");
    await job.release();
    expect(await job.wait()).toBe("succeeded");
  });

  it("is cancelled: what runs is stopped, what waits never starts", async () => {
    const { client, worker, dir } = await openTestBroker();
    worker();
    const job = await client.submit({
      recipe: { ...sh('touch "started.$LABORO_TASK"; exec sleep 60'), dir },
      count: 10,
    });
    const started = (index: number): boolean => existsSync(join(dir, `started.${index + 1}`));
    await until("two tasks run", () => started(0) && started(1));
    await job.cancel();
    expect(await job.wait()).toBe("cancelled");
    expect((await job.info()).counters).toEqual({ succeeded: 0, failed: 0, cancelled: 10, running: 0, waiting: 0 });
    const ran = await resultsOf(job);
    expect(ran.map(({ index, state, signal }) => [index, state, signal])).toEqual([
      [0, "cancelled", "SIGTERM"],
      [1, "cancelled", "SIGTERM"],
    ]);
    expect(started(2)).toBe(false);
  });

  it("is cancelled in part", async () => {
    const { client, worker } = await openTestBroker();
    const job = await client.submit({ recipe: CALL_NOTHING, count: 100 });
    await job.cancel([{ first: 10, last: 19 }]);
    worker({ services: NOTHING });
    expect(await job.wait()).toBe("cancelled");
    expect((await job.info()).counters).toEqual({ succeeded: 90, failed: 0, cancelled: 10, running: 0, waiting: 0 });
    expect((await resultsOf(job)).map(({ index }) => index)).not.toContain(15);
  });

  it("that is cancelled while it runs rejects with the reason", async () => {
    const { client, worker } = await openTestBroker();
    const endless = defineTask<null, never>("endless");
    worker({ cancelGraceMs: 50 }).handle(endless, () => new Promise<never>(() => {}));
    const job = await client.add(endless, null);
    await until("it runs", async () => (await job.info()).state === "running");
    await job.cancel(undefined, "not needed");
    await expect(job.result()).rejects.toMatchObject({
      code: "LABORO_TASK_CANCELLED",
      message: `task 1 of job ${job.id} was cancelled: not needed`,
    });
  });

  it("waits for another to succeed, and goes with it when it fails", async () => {
    const { client, worker, dir } = await openTestBroker();
    const first = await client.submit({ recipe: { ...sh("echo first >> order"), dir } });
    const second = await client.submit({ recipe: { ...sh("echo second >> order"), dir }, after: [{ job: first.id }] });
    const bad = await client.submit({ recipe: sh("exit 1") });
    const never = await client.submit({ recipe: TRUE, after: [{ job: bad.id }] });
    const anyway = await client.submit({ recipe: TRUE, after: [{ job: bad.id, any: true }] });
    worker();
    expect(await second.wait()).toBe("succeeded");
    expect(readFileSync(join(dir, "order"), "utf8")).toBe("first\nsecond\n");
    expect([await never.wait(), await anyway.wait()]).toEqual(["cancelled", "succeeded"]);
    expect((await never.info()).reason).toContain(`job ${bad.id}`);
  });

  it("gives up once too many of its tasks have failed", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1 });
    const job = await client.submit({ recipe: sh("exit 1"), count: 1_000, maxFails: 3 });
    expect(await job.wait()).toBe("failed");
    const { counters, reason } = await job.info();
    expect(counters.failed).toBeGreaterThan(3);
    expect(counters.failed + counters.cancelled).toBe(1_000);
    expect(counters.cancelled).toBeGreaterThan(900);
    expect(reason).toBe("4 tasks failed, which halts the job");
  });

  it("of a million tasks is one row, and its last results are found by page", async () => {
    const { client } = await openTestBroker();
    const job = await client.submit({ recipe: TRUE, count: 1_000_000 });
    expect((await job.info()).count).toBe(1_000_000);
    expect(await job.explain(999_999)).toBe("no worker is connected");
    await job.cancel();
    expect(await job.wait()).toBe("cancelled");
  });

  it("keeps head and tail of more output than its cap", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const job = await client.submit({ recipe: sh("seq 1 100000"), outputCap: 10_000 });
    expect(await job.wait()).toBe("succeeded");
    const pieces = [];
    for await (const piece of job.output(0)) pieces.push(piece);
    const stored = pieces.reduce((sum, { bytes }) => sum + bytes.length, 0);
    const last = pieces.at(-1);
    expect(stored).toBeLessThanOrEqual(10_000);
    expect(Buffer.from(pieces[0]?.bytes ?? "").toString()).toMatch(/^1\n2\n3\n/);
    expect(Buffer.from(last?.bytes ?? "").toString()).toMatch(/\n99999\n100000\n$/);
    expect((last?.offset ?? 0) + (last?.bytes.length ?? 0)).toBe((await resultsOf(job))[0]?.outputBytes);
  });

  it("with large entries reaches a worker no faster than it reads, beside others, and its connection holds", async () => {
    const { client, worker } = await openTestBroker();
    const recipe = { kind: "call", service: "size" } as const;
    const sizes = [34_000_000, 34_000_000, 1];
    // All at once: the client's connection holds as well.
    const jobs = await Promise.all(sizes.map((size) => client.submit({ recipe, entries: [Buffer.alloc(size)] })));
    const warnings: string[] = [];
    const log = { info: () => {}, warn: (_: object, text: string) => warnings.push(text), error: () => {} };
    worker({ slots: 3, services: { size: (body) => String(body.length) }, log });
    expect(await Promise.all(jobs.map((job) => job.wait()))).toEqual(["succeeded", "succeeded", "succeeded"]);
    expect(await Promise.all(jobs.map((job) => job.text(0)))).toEqual(sizes.map(String));
    expect(warnings).toEqual([]);
  });
});
