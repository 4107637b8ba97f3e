/** Results that come by another connection than the one the task went out by. */
import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { resultOf } from "./peers.js";
import { openPlace } from "./place.js";

const echo = { kind: "command", argv: ["sh", "-c", "echo x; exit 4"] } as const;

describe("a late result", () => {
  it("counts while the task still waits", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: echo });
    const first = await join("vm");
    const { name, script } = await first.takes();
    first.cut();
    await until("it is gone", async () => (await client.workers()).length === 0);
    const again = await join("vm");
    const { text, status } = resultOf(name, script);
    await again.delivers(name, status, text);
    expect(await job.wait()).toBe("failed");
    const results = [];
    for await (const result of job.results()) results.push(result);
    expect(results).toMatchObject([{ code: 4, worker: "vm" }]);
    expect(await job.text(0)).toBe("x\n");
  });

  it("is acknowledged and thrown away where another has the task, or has done it", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: echo });
    const first = await join("one");
    const { name, script } = await first.takes();
    first.cut();
    const other = await join("two");
    const task = await other.takes();
    const { text, status } = resultOf(name, script);
    const back = await join("one");
    await back.delivers(name, status, text);
    expect((await job.info()).ended).toBeUndefined();
    await other.runs(task);
    expect(await job.wait()).toBe("failed");
    await back.delivers(name, status, text);
    const results = [];
    for await (const result of job.results()) results.push(result);
    expect(results).toMatchObject([{ worker: "two" }]);
  });

  it("is refused from a host that never had the task", async () => {
    const { client, join, complaints } = await openPlace();
    await client.submit({ recipe: echo });
    const first = await join("one");
    const { name } = await first.takes();
    first.cut();
    const stranger = await join("stranger");
    stranger.say(`REZULTO ${name} success 1`);
    await stranger.isClosed();
    expect(complaints.join()).toContain("LABORO_FORBIDDEN");
  });

  it("counts where the earlier connection of the same host only seems to be there", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: echo });
    const hanging = await join("vm");
    const { name, script } = await hanging.takes();
    const back = await join("vm");
    const { text, status } = resultOf(name, script);
    await back.delivers(name, status, text);
    expect(await job.wait()).toBe("failed");
    // The other one has lost it.
    await hanging.delivers(name, status, text);
    expect((await job.info()).counters).toMatchObject({ failed: 1 });
  });
});
