/** A job that waits for another never runs where that one failed, whatever happens in between. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it, vi } from "vitest";
import { connect } from "../../src/entries/client.js";
import { startWorker } from "../../src/entries/worker.js";
import { type JobId, TaskRangeId, WorkerId } from "../../src/model/ids.js";
import { readSubmission } from "../../src/model/job-input.js";
import type { Write } from "../../src/model/store.js";
import { startBroker } from "../../src/server.js";
import { openSqliteStore } from "../../src/store/sqlite/index.js";
import { CALL_NOTHING, NOTHING, TRUE } from "../support/recipes.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const fails = { kind: "command", argv: ["false"] } as const;
const ended: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0).reverse()) await end();
});

describe("a job that waits for another", () => {
  it("is cancelled where the other fails while it is being stored", async () => {
    const { broker, client, worker } = await openTestBroker();
    const { store } = broker.core;
    const first = await client.submit({ recipe: fails });
    const commit = store.commit.bind(store);
    const asked = vi.spyOn(broker.core, "commit");
    let second: ReturnType<typeof client.submit> | undefined;
    // The end of the first is on its way to the disk when the second is asked for, and so goes before it.
    vi.spyOn(store, "commit").mockImplementation(async (writes: readonly Write[], now: number) => {
      if (second === undefined && writes.some(({ op }) => op === "settle")) {
        second = client.submit({ recipe: TRUE, after: [{ job: first.id }] });
        await until("it has reached the core", () => asked.mock.calls.some(([{ op }]) => op === "submit"));
      }
      return commit(writes, now);
    });
    worker();
    await until("the second was asked for", () => second !== undefined);
    const job = await second;
    expect(await job?.wait()).toBe("cancelled");
    const { reason, counters } = (await job?.info()) ?? {};
    expect(reason).toBe(`job ${first.id}, which it waits for, failed`);
    expect(counters).toMatchObject({ succeeded: 0, cancelled: 1 });
  });

  it("is cancelled where the other has failed long ago, and let run where any end will do", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const first = await client.submit({ recipe: fails });
    await first.wait();
    const second = await client.submit({ recipe: TRUE, after: [{ job: first.id }] });
    expect(await second.wait()).toBe("cancelled");
    expect((await second.info()).reason).toBe(`job ${first.id}, which it waits for, failed`);
    const any = await client.submit({ recipe: TRUE, after: [{ job: first.id, any: true }] });
    expect(await any.wait()).toBe("succeeded");
  });

  it("never runs after a failed one, however close they follow each other", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 4 });
    const outcomes = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const first = await client.submit({ recipe: fails });
        return (await client.submit({ recipe: TRUE, after: [{ job: first.id }] })).wait();
      }),
    );
    expect(outcomes.filter((one) => one !== "cancelled")).toEqual([]);
  });

  it("is cancelled at the start of the broker that died between the other's end and its own", async () => {
    const dir = mkdtempSync(join(tmpdir(), "laboro-test-"));
    ended.push(() => rmSync(dir, { recursive: true, force: true }));
    const store = openSqliteStore({ dir });
    const { epoch } = await store.open(1);
    const id = (n: number): TaskRangeId => TaskRangeId(epoch * 2 ** 36 + n);
    const [a] = await store.commit(
      [{ op: "submit", job: readSubmission({ recipe: fails }).spec, lease: 10, rangeId: id(1) }],
      1,
    );
    const first = (a?.op === "submit" ? a.job.id : 0) as JobId;
    const after = readSubmission({ recipe: TRUE, after: [{ job: first }], name: "after success" }).spec;
    const any = readSubmission({ recipe: TRUE, after: [{ job: first, any: true }], name: "after any end" }).spec;
    const result = {
      index: 0,
      attempt: 1,
      state: "failed",
      worker: "w",
      started: 2,
      ended: 3,
      code: 1,
      outputBytes: 0,
    } as const;
    await store.commit(
      [
        { op: "submit", job: after, lease: 10, rangeId: id(2) },
        { op: "submit", job: any, lease: 10, rangeId: id(3) },
        { op: "claim", from: id(1), rangeId: id(4), first: 0, last: 0, attempt: 1, worker: WorkerId("w") },
        { op: "settle", job: first, rangeId: id(4), results: [result], empty: true },
      ],
      3,
    );
    await store.close();

    const broker = await startBroker({ dir, port: 0 });
    ended.push(() => broker.stop());
    const worker = startWorker({ broker: broker.url, token: broker.token });
    ended.push(() => worker.stop({ graceMs: 0 }));
    const client = await connect({ broker: broker.url, token: broker.token });
    ended.push(() => client.close());
    const { jobs } = await client.jobs();
    const named = (name: string) => client.job(jobs.find((job) => job.name === name)?.id ?? 0);
    expect(await named("after success").wait()).toBe("cancelled");
    expect((await named("after success").info()).reason).toContain(`job ${first}`);
    expect(await named("after any end").wait()).toBe("succeeded");
  });
});

describe("a job that is run again", () => {
  it("waits again for one that is run again, and is refused while that has failed", async () => {
    const { client, worker, dir } = await openTestBroker();
    worker();
    const first = await client.submit({
      recipe: { kind: "command", argv: ["test", "-e", join(dir, "there")] },
      held: true,
    });
    const second = await client.submit({ recipe: TRUE, after: [{ job: first.id }] });
    await first.release();
    expect([await first.wait(), await second.wait()]).toEqual(["failed", "cancelled"]);
    await expect(second.rerun()).rejects.toMatchObject({ code: "LABORO_JOB_ENDED" });
    await first.hold().catch(() => {});
    const { writeFileSync } = await import("node:fs");
    writeFileSync(join(dir, "there"), "");
    expect(await first.rerun()).toBe(1);
    expect(await second.rerun()).toBe(1);
    expect([await first.wait(), await second.wait()]).toEqual(["succeeded", "succeeded"]);
  });

  it("can be cancelled and run again as often as one likes, and its counters stay true", async () => {
    const { client, worker } = await openTestBroker();
    const job = await client.submit({ recipe: CALL_NOTHING, count: 100 });
    await job.cancel([{ first: 10, last: 29 }]);
    worker({ services: NOTHING });
    expect(await job.wait()).toBe("cancelled");
    expect(await job.rerun({ tasks: [{ first: 0, last: 14 }] })).toBe(5);
    expect(await job.wait()).toBe("cancelled");
    expect((await job.info()).counters).toEqual({ succeeded: 85, failed: 0, cancelled: 15, running: 0, waiting: 0 });
    expect(await job.rerun()).toBe(15);
    expect(await job.wait()).toBe("succeeded");
    expect(await job.rerun({ states: ["succeeded"] })).toBe(100);
    expect(await job.wait()).toBe("succeeded");
    expect((await job.info()).counters).toMatchObject({ succeeded: 100, cancelled: 0 });
    expect(await job.rerun()).toBe(0);
  });

  it("goes on among tasks of the same job that still run", async () => {
    const { client, worker } = await openTestBroker();
    // Two, so that each has its task for itself: what a worker holds of one piece is settled with the piece.
    for (const name of ["one", "two"]) worker({ slots: 1, name });
    await until("both have joined", async () => (await client.workers()).length === 2);
    const job = await client.submit({
      recipe: {
        kind: "command",
        argv: ["/bin/sh", "-c", 'test "$LABORO_TASK" = 1 && sleep 1; test "$LABORO_TASK$LABORO_ATTEMPT" != 21'],
      },
      count: 2,
    });
    await until("the second has failed", async () => (await job.info()).counters.failed === 1);
    expect(await job.rerun()).toBe(1);
    expect(await job.wait()).toBe("succeeded");
  });
});
