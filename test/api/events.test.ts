import { describe, expect, it } from "vitest";
import { Events } from "../../src/broker/events.js";
import { JobId } from "../../src/model/ids.js";
import { CALL_NOTHING, NOTHING } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { apiOf, openTestBroker, post } from "./kit.js";

interface Page {
  readonly events: readonly {
    readonly id: number;
    readonly kind: string;
    readonly job?: number;
    readonly [name: string]: unknown;
  }[];
  readonly last: number;
  readonly missed: boolean;
}

const released = (job: number) => ({ kind: "job-released", job: JobId(job) }) as const;

describe("the ring of events", () => {
  it("gives what came after an event, numbers them upwards, and says when it has lost some", () => {
    const ring = new Events(3, 5);
    const start = ring.last;
    for (let i = 1; i <= 4; i++) ring.add(released(i));
    const page = ring.after(start, 3);
    expect(page.events.map((event) => "job" in event && event.job)).toEqual([1, 2, 3]);
    expect(ring.after(page.last, 10)).toEqual({ events: [expect.objectContaining({ job: 4 })], last: start + 4 });
    for (let i = 5; i <= 9; i++) ring.add(released(i));
    expect(ring.after(page.last, 10)).toMatchObject({
      missedUntil: start + 4,
      events: [{ job: 5 }, { job: 6 }, { job: 7 }, { job: 8 }, { job: 9 }],
    });
    expect(ring.after(0, 10).events).toHaveLength(5);
    expect(ring.after(0, 10).missedUntil).toBeUndefined();
    expect(ring.after(ring.last, 10)).toEqual({ events: [], last: ring.last });
    expect(ring.after(ring.last + 1, 10).missedUntil).toBe(start + 4);
    expect(new Events(4).last).toBeGreaterThan(ring.last);
  });

  it("keeps no more stretches of tasks than memory is meant for", () => {
    const ring = new Events(1);
    const tasks = Array.from({ length: 50_000 }, (_, i) => ({ first: 2 * i, last: 2 * i }));
    for (let i = 0; i < 10; i++) ring.add({ kind: "job-cancelled", job: JobId(i), tasks });
    expect(ring.after(0, 100).events).toHaveLength(4);
  });

  it("goes on for ever in bounded room", () => {
    const ring = new Events(1, 10);
    for (let i = 0; i < 1_000; i++) ring.add(released(i));
    const { events, last } = ring.after(0, 100);
    expect(events).toHaveLength(10);
    expect(ring.after(last - 3, 100).events.map((event) => "job" in event && event.job)).toEqual([997, 998, 999]);
  });
});

describe("events", () => {
  it("are waited for, and tell of the tasks of a commit in stretches", async () => {
    const { broker, client, worker } = await openTestBroker();
    const api = apiOf(broker);
    const { last } = (await api("/events")).json as Page;
    const waiting = api(`/events?after=${last}&waitMs=10000`);
    const job = await client.submit({ recipe: CALL_NOTHING, count: 5_000 });
    expect((await waiting).json).toMatchObject({
      events: [{ kind: "job-added", job: job.id, count: 5_000 }],
      missed: false,
    });
    worker({ services: NOTHING });
    await job.wait();
    const { events } = (await api(`/events?after=${last}&job=${job.id}`)).json as Page;
    const ended = events.filter(({ kind }) => kind === "tasks-ended");
    const listed = ended.flatMap(({ succeeded }) => succeeded as { first: number; last: number }[]);
    expect(listed.reduce((sum, range) => sum + range.last - range.first + 1, 0)).toBe(5_000);
    // A storm of tasks is not a storm of events.
    expect(ended.length).toBeLessThan(500);
    expect(events.at(-1)).toMatchObject({ kind: "job-ended", state: "succeeded", counters: { succeeded: 5_000 } });
    const ids = events.map(({ id }) => id);
    expect(ids).toEqual([...ids].sort((a, b) => a - b));
  });

  it("tell of workers: joined, away, gone, draining", async () => {
    const { broker, worker } = await openTestBroker({ settings: { graceMs: 50 } });
    const api = apiOf(broker);
    const kinds = async (): Promise<string[]> =>
      ((await api("/events?after=0")).json as Page).events.map(({ kind }) => kind);
    const one = worker({ name: "one" });
    await until("it joined", async () => (await kinds()).includes("worker-joined"));
    await api("/jobs", post({ recipe: { kind: "command", argv: ["sleep", "30"] } }));
    await until("it has the task", () => broker.core.state.workers.get(one.id)?.assigned === 1);
    await api("/workers/one/drain", post());
    broker.core.portOf(one.id)?.close("cut by the test");
    await until("it is away", async () => (await kinds()).includes("worker-disconnected"));
    await until("it is back", async () => (await kinds()).filter((kind) => kind === "worker-joined").length === 2);
    await one.stop({ graceMs: 0 });
    await until("it is gone", async () => (await kinds()).includes("worker-left"));
    expect(await kinds()).toContain("worker-draining");
  });

  it("come with missed after a restart, and go on from there", async () => {
    const { broker } = await openTestBroker();
    const api = apiOf(broker);
    // A number of an epoch before this one.
    const page = (await api("/events?after=5&waitMs=5000")).json as Page;
    expect(page).toMatchObject({ missed: true });
    expect(page.last).toBe(broker.core.events.last);
  });
});
