import { expect, it } from "vitest";
import { submission } from "../../../src/model/job-input.js";
import type { ScheduleChange, ScheduleSpec, ScheduleState } from "../../../src/model/schedule.js";
import { until } from "../../support/wait.js";
import { Broker, type MakeStore, newRangeId, request } from "./kit.js";

const spec = (over: Partial<ScheduleSpec> = {}): ScheduleSpec => ({
  everyMs: 60_000,
  jitterMs: 0,
  overlap: "allow",
  missed: "once",
  job: submission.read({ recipe: { kind: "command", argv: [new Uint8Array([0x2f, 0xff])] } }, ""),
  ...over,
});

const STATE: ScheduleState = { created: 1, changed: 1, paused: false, anchor: 1, runs: 0, skipped: 0 };

/** A schedule that is new. */
export const addSchedule = (name: string, nextAt?: number, revision = 1): ScheduleChange => ({
  name,
  expected: 0,
  next: { revision, spec: spec(), state: STATE, ...(nextAt === undefined ? {} : { nextAt }) },
  writes: [],
});

const submit = (key: string) =>
  ({ op: "submit", job: request({ idempotencyKey: key }), lease: 10, rangeId: newRangeId() }) as const;

export function describeSchedules(opened: () => Broker): void {
  const change = async (...changes: ScheduleChange[]) => (await opened().write({ op: "schedule", changes })).changes;
  const names = async (query: Partial<Parameters<Broker["store"]["schedules"]>[0]>) =>
    (await opened().store.schedules({ limit: 10, ...query })).schedules.map(({ name }) => name);

  it("keeps schedules with the bytes of their jobs, and lists them by name", async () => {
    const soon = Date.now() + 60_000;
    expect(await change(addSchedule("b", soon), addSchedule("B"), addSchedule("a", soon + 1))).toEqual(
      Array(3).fill({ changed: true, results: [] }),
    );
    expect(await names({})).toEqual(["B", "a", "b"]);
    expect(await names({ after: "B", limit: 1 })).toEqual(["a"]);
    const { schedules, earliest, now } = await opened().store.schedules({ name: "b", limit: 1 });
    expect(schedules).toMatchObject([{ name: "b", revision: 1, nextAt: soon, state: STATE }]);
    expect(schedules[0]?.spec).toMatchObject({ everyMs: 60_000, job: { recipe: { kind: "command" } } });
    const recipe = schedules[0]?.spec.job.recipe;
    const [word = ""] = recipe?.kind === "command" ? recipe.argv : [];
    expect(Buffer.from(word).toString("hex")).toBe("2fff");
    expect(earliest).toBe(soon);
    expect(Math.abs(now - Date.now())).toBeLessThan(5_000);
  });

  it("finds those that are due, in the order of their times", async () => {
    const now = Date.now();
    await change(
      addSchedule("late", now - 10),
      addSchedule("later", now - 20_000),
      addSchedule("soon", now + 60_000),
      addSchedule("paused"),
    );
    expect(await names({ due: true })).toEqual(["later", "late"]);
    expect(await names({ due: true, limit: 1 })).toEqual(["later"]);
    expect((await opened().store.schedules({ due: true, limit: 0 })).earliest).toBe(now - 20_000);
  });

  it("makes a run and the move to the next point together, or neither", async () => {
    const now = Date.now();
    await change(addSchedule("nightly", now - 10));
    const run = (key: string): ScheduleChange => ({
      name: "nightly",
      expected: 1,
      due: now - 10,
      next: { revision: 2, nextAt: now + 60_000, state: { ...STATE, runs: 1 } },
      writes: [submit(key)],
    });
    const [first] = await change(run("one"));
    const [job] = (await opened().store.jobs({ limit: 1 })).jobs;
    expect(first).toMatchObject({ changed: true, results: [{ op: "submit", taskRange: { first: 0, last: 9 } }] });
    expect(await change(run("two"))).toEqual([{ changed: false, results: [] }]);
    const { schedules } = await opened().store.schedules({ name: "nightly", limit: 1 });
    expect(schedules).toMatchObject([
      { revision: 2, nextAt: now + 60_000, state: { runs: 1 }, spec: { everyMs: 60_000 }, lastJob: job?.id },
    ]);
    const again = { ...run("three"), expected: 2, next: { revision: 3, state: STATE } };
    expect(await change(again)).toMatchObject([{ changed: true }]);
    const [newer] = (await opened().store.jobs({ limit: 1 })).jobs;
    expect((await opened().store.schedules({ name: "nightly", limit: 1 })).schedules).toMatchObject([
      { lastJob: newer?.id, formerJob: job?.id },
    ]);
    expect((await opened().store.jobs({ limit: 10 })).jobs.map(({ idempotencyKey }) => idempotencyKey)).toEqual([
      "three",
      "one",
    ]);
  });

  it("says which job has the key already, where one has", async () => {
    const { job } = await opened().submit({ idempotencyKey: "taken" });
    const [first] = await change({ ...addSchedule("a"), writes: [submit("taken")] });
    expect(first).toEqual({ changed: true, results: [{ op: "duplicate", job: job.id }] });
  });

  it("cancels the run that a new one replaces in the same write", async () => {
    const { job } = await opened().submit({ count: 3 });
    const ranges = [{ first: 0, last: 2 }];
    const [first] = await change({
      ...addSchedule("a"),
      writes: [submit("new"), { op: "cancel", job: job.id, ranges }],
    });
    expect(first?.results).toMatchObject([
      { op: "submit" },
      { op: "cancel", progress: { counters: { cancelled: 3 }, ended: "cancelled" } },
    ]);
    expect((await opened().job(job)).ended).toMatchObject({ state: "cancelled" });
  });

  it("changes and removes only the revision that is expected", async () => {
    await change(addSchedule("a", Date.now() + 60_000, 5));
    expect(await change(addSchedule("a"))).toMatchObject([{ changed: false }]);
    expect(await change({ name: "a", expected: 4, writes: [] })).toMatchObject([{ changed: false }]);
    expect(await change({ name: "b", expected: 4, writes: [] })).toMatchObject([{ changed: false }]);
    const paused = { revision: 6, state: { ...STATE, paused: true } };
    expect(await change({ name: "a", expected: 5, next: paused, writes: [] })).toMatchObject([{ changed: true }]);
    const { schedules, earliest } = await opened().store.schedules({ name: "a", limit: 1 });
    expect(schedules[0]).not.toHaveProperty("nextAt");
    expect(schedules[0]?.state.paused).toBe(true);
    expect(earliest).toBeUndefined();
    expect(await change({ name: "a", expected: 6, writes: [] })).toMatchObject([{ changed: true }]);
    expect(await names({})).toEqual([]);
  });
}

/** Brokers that start the same run. */
export function describeSharedSchedules(make: MakeStore): void {
  it("gives a run to one of the brokers that try at the same time, and none before the store's clock has reached it", async () => {
    const harness = await make();
    const brokers = await Promise.all([1, 2, 3].map(() => Broker.at(harness.handle())));
    try {
      const [one] = brokers;
      const due = Date.now() + 1_000;
      await one?.write({
        op: "schedule",
        changes: [addSchedule("a", due), addSchedule("b", due), addSchedule("late", due + 3_600_000)],
      });
      const run = (name: string, at: number): ScheduleChange => ({
        name,
        expected: 1,
        due: at,
        next: { revision: 2, state: { ...STATE, runs: 1 } },
        writes: [submit(`${name} ${at}`)],
      });
      const early = await Promise.all(
        brokers.map((broker) => broker.write({ op: "schedule", changes: [run("late", due + 3_600_000)] })),
      );
      expect(early.flatMap(({ changes }) => changes.map(({ changed }) => changed))).toEqual([false, false, false]);
      await until(
        "it is due",
        async () => (await one?.store.schedules({ due: true, limit: 9 }))?.schedules.length === 2,
      );
      // Each in another order: they must not block each other.
      const tries = await Promise.all(
        brokers.map((broker, i) => {
          const changes = [run("a", due), run("b", due)];
          return broker.write({ op: "schedule", changes: i === 1 ? changes.reverse() : changes });
        }),
      );
      expect(tries.flatMap(({ changes }) => changes).filter(({ changed }) => changed)).toHaveLength(2);
      const jobs = (await one?.store.jobs({ limit: 10 }))?.jobs ?? [];
      expect(jobs.map(({ idempotencyKey }) => idempotencyKey).sort()).toEqual([`a ${due}`, `b ${due}`]);
      // Brokers that came too late have used no numbers.
      expect(jobs.map(({ id }) => Number(id)).sort()).toEqual([1, 2]);
    } finally {
      for (const { store } of brokers) await store.close();
      await harness.dispose();
    }
  });
}
