/** What is done to a job at one broker is known at the others. */
import { describe, expect, it } from "vitest";
import { CALL_NOTHING, NOTHING, TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { joined, openGroup, PATIENCE_MS } from "./kit.js";

const sleepy = (seconds: number) => ({ kind: "command", argv: ["sleep", String(seconds)] }) as const;

describe("a job given to one broker", () => {
  it("is done by a worker of another, and awaited at either", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    b.worker({ services: NOTHING });
    const job = await a.client.submit({ recipe: CALL_NOTHING, count: 100 });
    const [here, there] = await Promise.all([job.wait(), b.client.job(job.id).wait()]);
    expect([here, there]).toEqual(["succeeded", "succeeded"]);
  });

  it("and to another with the same key is one job, and runs once", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    let calls = 0;
    for (const one of [a, b]) one.worker({ services: { count: () => void calls++ } });
    const submission = { recipe: { kind: "call", service: "count" }, count: 10, idempotencyKey: "once" } as const;
    const [here, there] = await Promise.all([a.client.submit(submission), b.client.submit(submission)]);
    expect(there.id).toBe(here.id);
    expect([await here.wait(), await there.wait()]).toEqual(["succeeded", "succeeded"]);
    expect([calls, (await a.client.jobs()).jobs.length]).toEqual([10, 1]);
  });

  it("is shared by the workers of all", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    await Promise.all([joined(a.worker({ name: "at-a" })), joined(b.worker({ name: "at-b" }))]);
    const job = await a.client.submit({ recipe: sleepy(0.4), count: 8 });
    expect(await job.wait()).toBe("succeeded");
    const workers = new Set<string>();
    for await (const { worker } of b.client.job(job.id).results()) workers.add(worker);
    expect([...workers].sort()).toEqual(["at-a", "at-b"]);
  });

  it("is held, released and cancelled by way of any", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    await joined(a.worker());
    const job = await a.client.submit({ recipe: sleepy(60), count: 10 });
    await until("it runs", async () => (await job.info()).counters.running === 2, PATIENCE_MS);
    const there = b.client.job(job.id);
    await there.hold();
    await until("the hold is heard", () => a.broker.core.state.jobs.get(job.id as never)?.held === true, PATIENCE_MS);
    expect((await job.info()).state).toBe("held");
    await there.release();
    await until("so is its end", () => a.broker.core.state.jobs.get(job.id as never)?.held === false, PATIENCE_MS);
    await there.cancel();
    expect(await job.wait()).toBe("cancelled");
    expect(await there.wait()).toBe("cancelled");
  });

  it("tells its events at the others, and its end to jobs that wait for it there", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    await joined(a.worker());
    const first = await a.client.submit({ recipe: sleepy(0.2), count: 1 });
    const second = await b.client.submit({ recipe: TRUE, count: 1, after: [{ job: first.id }] });
    expect(await second.wait()).toBe("succeeded");
    await until(
      "b has heard of the first job's end",
      async () => {
        const { events } = await b.client.ask("events", { after: 0, job: first.id });
        return events.some(({ kind }) => kind === "job-ended");
      },
      PATIENCE_MS,
    );
    const { events } = await b.client.ask("events", { after: 0, job: first.id });
    expect(events.map(({ kind }) => kind)).toEqual(expect.arrayContaining(["job-added", "job-ended"]));
    await expect(b.client.submit({ recipe: TRUE, count: 1, after: [{ job: 999 }] })).rejects.toMatchObject({
      code: "LABORO_NO_SUCH_JOB",
    });
  });

  it("runs again at the word of another broker", async () => {
    const { members } = await openGroup(2);
    const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
    await joined(a.worker());
    const job = await a.client.submit({ recipe: { kind: "command", argv: ["false"] }, count: 3 });
    expect(await job.wait()).toBe("failed");
    expect(await b.client.job(job.id).rerun()).toBe(3);
    expect(await b.client.job(job.id).wait()).toBe("failed");
    const { counters } = await b.client.job(job.id).info();
    expect(counters.failed).toBe(3);
  });
});
