/** Peers that do not keep to the protocol: each is sent away with a reason that is logged once, and nothing comes of what it said. */
import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { LiteralRunner } from "./peers.js";
import { openPlace } from "./place.js";

const LIMITS = { exchangeTimeoutMs: 300, maxResultBytes: 1_000 };
const echo = { kind: "command", argv: ["echo", "x"] } as const;

describe("the manager's listener sends away", () => {
  it.each([
    ["a bad hail", "SALUTON; MI b@d", "LABORO_BAD_MESSAGE"],
    ["another protocol", "GET / HTTP/1.1\r\n\r\n", "LABORO_BAD_MESSAGE"],
    ["a hail that never ends", "SALUTON; MI ".padEnd(20_000, "a"), "LABORO_BAD_MESSAGE"],
    ["one who says nothing", "", "LABORO_DEADLINE"],
    ["half a hail", "SALU", "LABORO_DEADLINE"],
  ])("%s", async (_what, text, code) => {
    const { port, complaints, client } = await openPlace({ greetingTimeoutMs: 300 });
    for (let i = 0; i < 3; i++) {
      const peer = await LiteralRunner.connect(port);
      peer.say(text);
      await peer.isClosed();
    }
    expect(complaints).toHaveLength(1);
    expect(complaints[0]).toContain(code);
    expect(await client.workers()).toEqual([]);
  });

  it.each([
    ["a result that it was never handed", "REZULTO nobody success 3", "LABORO_FORBIDDEN"],
    ["a result out of the folder", "REZULTO ../x success 3", "LABORO_FORBIDDEN"],
    ["a result of another's task", "REZULTO laboro-1.0 success 3", "LABORO_FORBIDDEN"],
    ["a result of a strange kind", "REZULTO NAME maybe\n3", "LABORO_BAD_MESSAGE"],
    ["nonsense", "\0\0\0\0", "LABORO_BAD_MESSAGE"],
    ["half a word", "REZUL", "LABORO_DEADLINE"],
    ["half a result", "REZULTO NAME success 3", "LABORO_DEADLINE"],
  ])("%s, and its task goes to another", async (_what, text, code) => {
    const { client, join, complaints } = await openPlace({ limits: LIMITS });
    // Out at somebody else, who is not the one that answers for it.
    await client.submit({ recipe: echo });
    const keeper = await join("keeper");
    const kept = await keeper.takes();
    const job = await client.submit({ recipe: echo });
    const bad = await join("bad");
    const { name } = await bad.takes();
    bad.say(text.replace("NAME", name));
    await bad.isClosed();
    expect(complaints).toHaveLength(1);
    expect(complaints[0]).toContain(code);
    expect(complaints[0]).toContain("bad is disconnected");
    const good = await join("good");
    const again = await good.takes();
    expect(again.name).toBe(name);
    await good.runs(again);
    expect(await job.wait()).toBe("succeeded");
    expect(await job.text(0)).toBe("x\n");
    await keeper.runs(kept);
  });

  it("nobody whose result is too large: its task has failed, and it goes on", async () => {
    const { client, join, complaints } = await openPlace({ limits: LIMITS });
    const job = await client.submit({ recipe: echo });
    const runner = await join("vm");
    const { name } = await runner.takes();
    await runner.delivers(name, "success", Buffer.alloc(1_001));
    expect(await job.wait()).toBe("failed");
    const results = [];
    for await (const result of job.results()) results.push(result);
    const error = "its result is not kept: it has 1001 bytes, 1000 are allowed";
    expect(results).toMatchObject([{ state: "failed", error }]);
    expect(complaints).toEqual([`LABORO_BODY_TOO_LARGE ${name} has failed: ${error}`]);
    const next = await client.submit({ recipe: echo });
    await runner.runs(await runner.takes());
    expect(await next.wait()).toBe("succeeded");
  });

  it("one that does not fetch what it asked for", async () => {
    const { client, join, complaints } = await openPlace({ limits: LIMITS });
    const job = await client.submit({ recipe: echo, crashLimit: 1 });
    const bad = await join("bad");
    bad.say("PETO");
    await bad.isClosed();
    expect(complaints[0]).toMatch(/LABORO_DEADLINE .*no bytes for \d+ ms in the state SendJob/);
    // It never had it: that is no crash.
    const good = await join("good");
    await good.runs(await good.takes());
    expect(await job.wait()).toBe("succeeded");
  });

  it("nobody who asks fifteen thousand times at once, which costs the manager nothing", async () => {
    const { client, join, complaints } = await openPlace();
    const job = await client.submit({ recipe: echo });
    const eager = await join("eager");
    const task = await eager.takes();
    eager.say("PETO".repeat(15_000));
    await eager.hears("ATENDI".repeat(15_000));
    await eager.runs(task);
    expect(await job.wait()).toBe("succeeded");
    expect(complaints).toEqual([]);
  });

  it("nobody who is silent for long while its job runs, or while it waits for one", async () => {
    const { client, join, complaints } = await openPlace({ limits: LIMITS });
    const idle = await join("idle");
    idle.say("PETO");
    const job = await client.submit({ recipe: echo });
    const task = await idle.takesAnswer();
    const other = await join("other");
    other.say("PETO");
    const begun = Date.now();
    await until("longer than the limit", () => Date.now() - begun > 2 * LIMITS.exchangeTimeoutMs);
    await idle.runs(task);
    expect(await job.wait()).toBe("succeeded");
    expect([idle.closed, other.closed, complaints.length]).toEqual([false, false, 0]);
  });
});
