/** The manager's listener, spoken to literally. */

import { describe, expect, it } from "vitest";
import { sh } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { LiteralRunner } from "./peers.js";
import { openPlace } from "./place.js";

describe("a runner at the manager's listener", () => {
  it("runs a command: its output is the task's, its exit status decides", async () => {
    const { client, join, conversations } = await openPlace();
    const job = await client.submit({
      recipe: sh("echo out; echo RES:failed; exit $((LABORO_TASK * 3 - 3))"),
      count: 2,
    });
    const runner = await join("vm");
    const [heard] = conversations.all();
    heard?.messagesAfter(0);
    for (let i = 0; i < 2; i++) await runner.runs(await runner.takes());
    expect(await job.wait()).toBe("failed");
    const results = [];
    for await (const result of job.results()) results.push(result);
    expect(results).toMatchObject([
      { index: 0, number: 1, state: "succeeded", code: 0, worker: "vm" },
      { index: 1, number: 2, state: "failed", code: 3, worker: "vm" },
    ]);
    expect(await job.text(0)).toBe("out\nRES:failed\n");
    expect(heard?.messagesAfter(0).map(({ name }) => name)).toContain("REZULTO");
    expect(heard?.peer).toBe("vm");
  });

  it("runs a script, and nothing that a runner does not know", async () => {
    const { client, join } = await openPlace();
    const service = await client.submit({ recipe: { kind: "call", service: "x" } });
    const content = Buffer.from("echo script $1; exit 0");
    const job = await client.submit({
      recipe: { kind: "script", type: ".sh", content, args: ["{}"] },
      entries: ["a b"],
    });
    const runner = await join("vm");
    const task = await runner.takes();
    expect(task).toMatchObject({ name: `laboro-${job.id}.1`, kind: ".sh" });
    await runner.runs(task);
    expect(await job.wait()).toBe("succeeded");
    expect(await job.text(0)).toBe("script a b\n");
    runner.say("PETO");
    expect((await service.info()).ended).toBeUndefined();
  });

  it("gets the tasks of an array by their numbers, and their results are taken by these", async () => {
    const { client, join } = await openPlace();
    const recipe = { ...sh("echo $LABORO_TASK"), array: [{ first: 5, last: 7, step: 2 }] };
    const job = await client.submit({ recipe });
    const runner = await join("vm");
    const first = await runner.takes();
    expect(first.name).toBe(`laboro-${job.id}.5`);
    await runner.runs(first);
    const second = await runner.takes();
    expect(second.name).toBe(`laboro-${job.id}.7`);
    runner.cut();
    await until("it is gone", async () => (await client.workers()).every(({ connected }) => !connected));
    // Its result comes over another connection of the same host.
    const again = await join("vm");
    await again.runs(second);
    expect(await job.wait()).toBe("succeeded");
    expect([await job.text(0), await job.text(1)]).toEqual(["5\n", "7\n"]);
  });

  it("is in the listener's pool, which is the group it is offered", async () => {
    const { client, port } = await openPlace({ pool: "mine" });
    const elsewhere = await client.submit({ recipe: sh("true") });
    const job = await client.submit({ recipe: sh("true"), pool: "mine" });
    const runner = await LiteralRunner.join(port, "vm", "mine");
    await runner.runs(await runner.takes());
    expect(await job.wait()).toBe("succeeded");
    expect((await elsewhere.info()).ended).toBeUndefined();
    expect(await client.workers()).toMatchObject([{ name: "vm", protocol: "runexp", pool: "mine" }]);
    runner.cut();
  });

  it("waits for an answer where nothing is there and it has nothing to do", async () => {
    const { client, join } = await openPlace();
    const runner = await join("vm");
    runner.say("PETO");
    await until("it offers a slot", async () => (await client.workers())[0]?.total?.slots === 1);
    expect(runner.hasHeardNothing()).toBe(true);
    const job = await client.submit({ recipe: sh("echo later") });
    await runner.runs(await runner.takesAnswer());
    expect(await job.wait()).toBe("succeeded");
  });

  it("is told to wait while it has tasks out, so that their results come through", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: sh("echo x") });
    const runner = await join("vm");
    const task = await runner.takes();
    runner.say("PETO");
    await runner.hears("ATENDI");
    await runner.runs(task);
    expect(await job.wait()).toBe("succeeded");
    runner.say("PETO");
    const next = await client.submit({ recipe: sh("echo y") });
    await runner.runs(await runner.takesAnswer());
    expect(await next.wait()).toBe("succeeded");
  });

  it("takes JES and PETO, and PRETA and the next message, in one piece", async () => {
    const { client, port } = await openPlace();
    await client.submit({ recipe: sh("true"), count: 2 });
    const runner = await LiteralRunner.connect(port);
    runner.say("SALUTON; MI vm");
    await runner.hears("VERSIO 1.3");
    runner.say("KOMPRENAS");
    await runner.hears("ALIGI __defaulte__");
    runner.say("JESPETO");
    const task = await runner.takesAnswer();
    await runner.runs(task);
    await runner.leaves();
  });

  it("takes a message in pieces, after some quiet", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: sh("echo x") });
    const runner = await join("vm");
    const { name } = await runner.takes();
    runner.say(`REZULTO ${name} suc`);
    await until("the manager says nothing yet", () => runner.hasHeardNothing());
    runner.say("cess 3");
    await runner.hears("PRETA");
    runner.say("RE");
    runner.say("S");
    await runner.hears("RICEVIS");
    expect(await job.wait()).toBe("failed");
  });

  it("loses its tasks to another the moment it is gone", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: sh("echo done") });
    const first = await join("one");
    const task = await first.takes();
    const second = await join("two");
    second.say("PETO");
    first.cut();
    const again = await second.takesAnswer();
    expect(again.name).toBe(task.name);
    await second.runs(again);
    expect(await job.wait()).toBe("succeeded");
    const results = [];
    for await (const result of job.results()) results.push(result);
    expect(results).toMatchObject([{ worker: "two", attempt: 2 }]);
  });

  it("is sent home when it is drained or stopped, and its results are taken all the same", async () => {
    for (const how of ["drain", "stopWorker"] as const) {
      const { client, join } = await openPlace();
      const job = await client.submit({ recipe: sh("echo x"), count: 3 });
      const runner = await join("vm");
      const task = await runner.takes();
      await client[how]("vm");
      runner.say("PETO");
      await runner.hears("FINO");
      await runner.runs(task);
      runner.say("PETO");
      await runner.hears("FINO");
      await runner.leaves();
      await until("it is gone", async () => (await client.workers()).length === 0);
      expect((await job.info()).counters).toMatchObject({ succeeded: 1 });
    }
  });

  it("cannot be stopped in part, or now: there is no message for it", async () => {
    const { client, join } = await openPlace();
    await join("vm");
    await until("it is here", async () => (await client.workers()).length === 1);
    for (const how of [{ slots: 1 }, { now: true }]) {
      const refused = expect(client.stopWorker("vm", how)).rejects;
      await refused.toMatchObject({
        code: "LABORO_NOT_SUPPORTED",
        message: expect.stringMatching(/speaks runexp.*: it can only be stopped as a whole/),
      });
    }
    expect((await client.workers())[0]?.draining).toBe(false);
  });

  it("hears FINO at its open PETO when it is drained, and when the listener closes", async () => {
    const { client, join, listener } = await openPlace();
    const runner = await join("vm");
    runner.say("PETO");
    await until("it has asked", async () => (await client.workers())[0]?.total?.slots === 1);
    await client.drain("vm");
    await runner.hears("FINO");
    const other = await join("other");
    other.say("PETO");
    await until("it has asked", async () =>
      (await client.workers()).some(({ name, total }) => name === "other" && total?.slots === 1),
    );
    const closing = listener.close();
    await other.hears("FINO");
    await closing;
  });

  it("may go with tasks out: they are nobody's fault", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: sh("echo x"), crashLimit: 1 });
    const runner = await join("vm");
    await runner.takes();
    await runner.leaves();
    const other = await join("other");
    await other.runs(await other.takes());
    expect(await job.wait()).toBe("succeeded");
  });

  it("counts as lost when it goes without a word", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: sh("echo x"), crashLimit: 1 });
    const runner = await join("vm");
    await runner.takes();
    runner.cut();
    expect(await job.wait()).toBe("failed");
  });

  it("is told apart from another of the same name", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: sh("echo x"), count: 2 });
    const [one, two] = [await join("twin"), await join("twin")];
    const tasks = [await one.takes(), await two.takes()];
    expect(new Set(tasks.map(({ name }) => name)).size).toBe(2);
    for (const [i, runner] of [one, two].entries()) {
      const task = tasks[i];
      if (task !== undefined) await runner.runs(task);
    }
    expect(await job.wait()).toBe("succeeded");
  });

  it("cannot be stopped by a cancel: the task ends cancelled when its result comes", async () => {
    const { client, join } = await openPlace();
    const job = await client.submit({ recipe: sh("echo x"), count: 2 });
    const runner = await join("vm");
    const task = await runner.takes();
    await job.cancel();
    await runner.runs(task);
    expect(await job.wait()).toBe("cancelled");
    expect((await job.info()).counters).toMatchObject({ cancelled: 2 });
  });

  it("does not get what a runner cannot do at all", async () => {
    const { client, join } = await openPlace();
    const recipe = { kind: "script", type: ".m", content: Buffer.from("x"), args: ["1"] } as const;
    const bad = await client.submit({ recipe });
    const good = await client.submit({ recipe: sh("echo x") });
    const runner = await join("vm");
    await runner.runs(await runner.takes());
    expect(await good.wait()).toBe("succeeded");
    expect(await bad.wait()).toBe("failed");
  });
});
