/** How runexp hears of a worker's standing. */

import { describe, expect, it } from "vitest";
import { sh } from "../../support/recipes.js";
import type { LiteralRunner } from "./peers.js";
import { openPlace } from "./place.js";

const STANDING = { broker: { settings: { standing: true } } };

async function runAll(runner: LiteralRunner, count: number): Promise<void> {
  for (let i = 0; i < count; i++) await runner.runs(await runner.takes());
}

describe("with standing", () => {
  it("a runner that fails most is banned: ELIRI, and its last results are still taken", async () => {
    const { client, join } = await openPlace(STANDING);
    const job = await client.submit({ recipe: sh("exit 1"), count: 20 });
    const runner = await join("bad");
    await runAll(runner, 8);
    const [one, two] = [await runner.takes(), await runner.takes()];
    await runner.runs(one);
    const last = await runner.takes();
    await runner.runs(two);
    runner.say("PETO");
    await runner.hears("ELIRI");
    await runner.runs(last);
    runner.say("PETO");
    await runner.hears("ELIRI");
    await runner.leaves();
    expect((await job.info()).counters).toMatchObject({ failed: 11 });
  });

  it("one that has failed lately is held back, probed, and takes part again", async () => {
    const { client, join } = await openPlace(STANDING);
    const good = await client.submit({ recipe: sh("true"), count: 12 });
    const runner = await join("vm");
    await runAll(runner, 12);
    await good.wait();
    const bad = await client.submit({ recipe: sh("exit 1"), count: 3 });
    await runAll(runner, 3);
    await bad.wait();
    // Suspended, with nothing to probe it with.
    runner.say("PETO");
    await runner.hears("ATENDI");
    const more = await client.submit({ recipe: sh("true"), count: 6 });
    const probe = await runner.takes();
    runner.say("PETO");
    await runner.hears("ATENDI");
    await runner.runs(probe);
    await runner.runs(await runner.takes());
    const both = [await runner.takes(), await runner.takes()];
    for (const task of both) await runner.runs(task);
    await runAll(runner, 2);
    expect(await more.wait()).toBe("succeeded");
  });
});
