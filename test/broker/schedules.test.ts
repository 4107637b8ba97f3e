/** Schedules at one broker, whose clock the tests set. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { type Client, connect } from "../../src/entries/client.js";
import type { ScheduleChange } from "../../src/model/schedule.js";
import { startBroker } from "../../src/server.js";
import { openSqliteStore } from "../../src/store/sqlite/index.js";
import { addSchedule } from "../store/suite/schedules.js";
import { atEnd } from "../support/at-end.js";
import { freePort } from "../support/free-port.js";
import { TRUE } from "../support/recipes.js";
import { openTestBroker, type TestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** The wall clock of this process. The broker's own clock goes on as before, as it does when an operator sets the clock. */
function settableClock(): { set(at: number): void; ahead(ms: number): void; readonly now: number } {
  const real = Date.now.bind(Date);
  let offset = 0;
  const spy = vi.spyOn(Date, "now").mockImplementation(() => real() + offset);
  atEnd(() => spy.mockRestore());
  return {
    set: (at) => {
      offset = at - real();
    },
    ahead: (ms) => {
      offset += ms;
    },
    get now() {
      return real() + offset;
    },
  };
}

const job = { recipe: TRUE };
const runsOf = async (client: Client, name: string): Promise<number> => (await client.schedules.get(name)).runs;
const jobsOf = async (client: Client): Promise<number[]> =>
  (await client.jobs({})).jobs.map(({ id }) => id).sort((a, b) => a - b);
/** Lets the broker look at the clock: it does once a second, and after any change. */
const look = async (client: Client): Promise<void> => {
  await client.schedules.set("other", { everyMs: 100 * 24 * HOUR, job, paused: true });
  await client.schedules.remove("other");
};

const runs = async (client: Client, name: string, count: number): Promise<void> => {
  await look(client);
  await until(`${name} has run ${count} times`, async () => (await runsOf(client, name)) === count || undefined);
};

async function openScheduled(): Promise<TestBroker & { readonly clock: ReturnType<typeof settableClock> }> {
  const clock = settableClock();
  return { ...(await openTestBroker()), clock };
}

describe("a schedule", () => {
  it("submits a job at each of its points, with a key of its own, and the job is run", async () => {
    const { client, clock, worker } = await openScheduled();
    worker();
    const { due = 0 } = await client.schedules.set("tick", { everyMs: MINUTE, job });
    for (let point = 1; point <= 3; point++) {
      clock.set(due + (point - 1) * MINUTE + 5);
      await runs(client, "tick", point);
    }
    const found = await client.schedules.get("tick");
    expect(found).toMatchObject({
      runs: 3,
      skipped: 0,
      lastJob: 3,
      last: { due: due + 2 * MINUTE },
      due: due + 3 * MINUTE,
    });
    const keys = (await client.jobs({})).jobs.map(({ idempotencyKey, name }) => [name, idempotencyKey]);
    expect(keys[0]).toEqual(["tick", `schedule:tick:${new Date(due + 2 * MINUTE).toISOString()}`]);
    expect(await client.job(3).wait()).toBe("succeeded");
  });

  it("that is set again is one schedule, with the new times and the new job", async () => {
    const { client, clock } = await openScheduled();
    await client.schedules.set("nightly", { everyMs: MINUTE, job: { ...job, name: "old" } });
    await client.schedules.set("nightly", { everyMs: HOUR, job: { ...job, name: "new" } });
    clock.ahead(2 * MINUTE);
    await look(client);
    expect(await runsOf(client, "nightly")).toBe(0);
    clock.ahead(HOUR);
    await runs(client, "nightly", 1);
    await look(client);
    expect((await client.jobs({})).jobs.map(({ name }) => name)).toEqual(["new"]);
    const names: string[] = [];
    for await (const { name } of client.schedules.list()) names.push(name);
    expect(names).toEqual(["nightly"]);
  });

  it("that was removed runs no more, and one that is added in its place has no past", async () => {
    const { client, clock } = await openScheduled();
    await client.schedules.set("a", { everyMs: MINUTE, job });
    await client.schedules.run("a");
    await client.schedules.remove("a");
    clock.ahead(5 * MINUTE);
    await look(client);
    expect(await jobsOf(client)).toEqual([1]);
    await expect(client.schedules.get("a")).rejects.toMatchObject({ code: "LABORO_NO_SUCH_SCHEDULE" });
    expect(await client.schedules.set("a", { everyMs: MINUTE, job })).toMatchObject({ runs: 0 });
  });

  it("that is set again with the same times keeps its next point, also one that is due", async () => {
    const { client, clock } = await openScheduled();
    const { due = 0 } = await client.schedules.set("a", { everyMs: HOUR, job });
    clock.ahead(MINUTE);
    expect(await client.schedules.set("a", { everyMs: HOUR, job: { ...job, priority: 5 } })).toMatchObject({ due });
    expect(await client.schedules.edit("a", { overlap: "skip" })).toMatchObject({
      due,
      everyMs: HOUR,
      job: { priority: 5 },
    });
    expect(await client.schedules.edit("a", { cron: "0 3 * * *", timeZone: "Europe/Prague" })).not.toHaveProperty(
      "everyMs",
    );
    expect(await client.schedules.edit("a", { everyMs: HOUR })).not.toHaveProperty("cron");
  });

  it("that is paused runs nothing, and does not make up for it", async () => {
    const { client, clock } = await openScheduled();
    await client.schedules.set("a", { everyMs: MINUTE, job });
    expect(await client.schedules.pause("a")).toMatchObject({ state: "paused" });
    expect(await client.schedules.set("a", { everyMs: MINUTE, job })).toMatchObject({ state: "paused" });
    clock.ahead(10 * MINUTE);
    await look(client);
    const { due = 0 } = await client.schedules.resume("a");
    expect(due).toBeGreaterThan(clock.now);
    expect(await runsOf(client, "a")).toBe(0);
    clock.set(due + 1);
    await runs(client, "a", 1);
  });

  it("is over at its end, and may be set again then", async () => {
    const { client, clock } = await openScheduled();
    const when = { everyMs: MINUTE, end: clock.now + 90_000 };
    await client.schedules.set("a", { ...when, job });
    clock.ahead(MINUTE + 100);
    await runs(client, "a", 1);
    expect(await client.schedules.get("a")).toMatchObject({ state: "ended", upcoming: [] });
    clock.ahead(HOUR);
    expect(await client.schedules.set("a", { ...when, job })).toMatchObject({ state: "ended" });
    await expect(client.schedules.set("b", { ...when, job })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
  });

  it("with jitter starts within it, and its points stay where they are", async () => {
    const { client } = await openScheduled();
    const seen = new Set<number>();
    for (let i = 0; i < 10; i++) {
      const { due = 0, nextAt = 0 } = await client.schedules.set(`a${i}`, { cron: "0 3 * * *", jitterMs: HOUR, job });
      expect(new Date(due).toISOString()).toMatch(/T03:00:00.000Z$/);
      expect(nextAt - due).toBeGreaterThanOrEqual(0);
      expect(nextAt - due).toBeLessThanOrEqual(HOUR);
      seen.add(nextAt - due);
    }
    expect(seen.size).toBeGreaterThan(5);
  });

  it("with jitter skips no point whose jitter has not passed, however late the run before it was", async () => {
    const { client, clock } = await openScheduled();
    let next = await client.schedules.set("a", { everyMs: MINUTE, jitterMs: 59_000, job });
    for (let run = 1; run <= 12; run++) {
      const { due = 0, nextAt = 0 } = next;
      clock.set(nextAt + 30_000);
      await runs(client, "a", run);
      next = await client.schedules.get("a");
      expect(next.due).toBe(due + MINUTE);
      expect(next.nextAt).toBeGreaterThanOrEqual(Math.min(clock.now - 1_000, due + MINUTE + 59_000));
    }
  });

  it("is listed with the others although a later laboro refuses its job", async () => {
    const dir = mkdtempSync(join(tmpdir(), "laboro-test-"));
    atEnd(async () => rmSync(dir, { recursive: true, force: true }));
    const store = openSqliteStore({ dir, log: () => {} });
    await store.open(Date.now());
    const [old, good] = ["old", "good"].map((name) => addSchedule(name)) as [ScheduleChange, ScheduleChange];
    const argv = { kind: "command", argv: ["echo", "{}"], placeholders: true } as const;
    const refused = {
      ...old,
      next: { ...old.next, spec: { ...old.next?.spec, job: { recipe: argv } } },
    } as ScheduleChange;
    await store.commit([{ op: "schedule", changes: [refused, good] }], Date.now());
    await store.close();
    const { client } = await openTestBroker({ dir });
    const { schedules } = await client.ask("schedules", {});
    expect(schedules.map(({ name }) => name)).toEqual(["good", "old"]);
    expect(schedules[1]?.job.summary).toContain("cannot be submitted: ");
  });

  it("is refused where its job could not be submitted again and again", async () => {
    const { client } = await openScheduled();
    const set = (more: object) => client.schedules.set("a", { everyMs: MINUTE, job: { ...job, ...more } });
    await expect(set({ idempotencyKey: "k" })).rejects.toThrow("job.idempotencyKey: expected none");
    await expect(set({ after: [{ job: 1 }] })).rejects.toThrow("job.after: expected none");
    await expect(set({ at: Date.now() })).rejects.toThrow("job.at: expected none");
    await expect(set({ limits: ["api"] })).rejects.toMatchObject({ code: "LABORO_NO_SUCH_LIMIT" });
    await expect(set({ retries: -1 })).rejects.toThrow("job.retries");
    await expect(
      set({ recipe: { ...TRUE, stdin: Buffer.alloc(2_000_000 - 1_000_000 + 100_000) } }),
    ).rejects.toMatchObject({
      code: "LABORO_BODY_TOO_LARGE",
    });
    await expect(client.schedules.set("a b", { everyMs: MINUTE, job })).rejects.toThrow(/such as nightly, got "a b"/);
  });

  it("makes jobs with a delay, a limit and a key of theirs", async () => {
    const { client, worker } = await openScheduled();
    await client.ask("limitSet", { name: "api", running: 1 });
    const own = { ...job, delayMs: 200, limits: ["api"], key: "one", ifExists: "replace" } as const;
    await client.schedules.set("a", { everyMs: HOUR, job: own });
    const [first, second] = [await client.schedules.run("a"), await client.schedules.run("a")];
    expect(await first.wait()).toBe("cancelled");
    worker();
    expect(await second.wait()).toBe("succeeded");
    const { created, ended = 0 } = await second.info();
    expect(ended - created).toBeGreaterThanOrEqual(200);
  });

  it("tells of its runs by events", async () => {
    const { client } = await openScheduled();
    await client.schedules.set("a", { everyMs: MINUTE, overlap: "skip", job });
    const { id } = await client.schedules.run("a");
    await client.schedules.pause("a");
    await client.schedules.resume("a");
    await client.schedules.remove("a");
    const { events } = await client.ask("events", { after: 0 });
    expect(
      events.flatMap(({ kind, schedule, job }) => (schedule === undefined ? [] : [[kind, schedule, job]])),
    ).toEqual([
      ["schedule-set", "a", undefined],
      ["schedule-run", "a", id],
      ["schedule-paused", "a", undefined],
      ["schedule-resumed", "a", undefined],
      ["schedule-removed", "a", undefined],
    ]);
  });
});

describe("while the last run is open", () => {
  const twice = async (overlap: "allow" | "skip" | "queue" | "replace", points = 2) => {
    const setup = await openScheduled();
    const { client, clock } = setup;
    const { due = 0 } = await client.schedules.set("a", { everyMs: MINUTE, overlap, job });
    for (let point = 0; point < points; point++) {
      clock.set(due + point * MINUTE + 5);
      await look(client);
      await until("the point has passed", async () => {
        const { runs: made, skipped } = await client.schedules.get("a");
        return made + skipped === point + 1 || undefined;
      });
    }
    return setup;
  };
  const states = async (client: Client) => (await client.jobs({})).jobs.map(({ id, state }) => [id, state]).reverse();

  it("allow starts another", async () => {
    const { client } = await twice("allow");
    expect(await states(client)).toEqual([
      [1, "waiting"],
      [2, "waiting"],
    ]);
  });

  it("skip leaves the new one out, until the old one has ended", async () => {
    const { client, clock, worker } = await twice("skip");
    expect(await states(client)).toEqual([[1, "waiting"]]);
    expect(await client.schedules.get("a")).toMatchObject({
      runs: 1,
      skipped: 1,
      lastJob: 1,
      last: { skipped: "overlap", message: "job 1 has not ended" },
    });
    await expect(client.schedules.run("a")).rejects.toMatchObject({ code: "LABORO_JOB_OPEN" });
    worker();
    await client.job(1).wait();
    clock.ahead(MINUTE);
    await runs(client, "a", 2);
  });

  it("queue lets one wait for its end, and no more than one", async () => {
    const { client, worker } = await twice("queue", 4);
    expect(await states(client)).toEqual([
      [1, "waiting"],
      [2, "blocked"],
    ]);
    expect(await client.schedules.get("a")).toMatchObject({ runs: 2, skipped: 2 });
    worker();
    expect(await client.job(2).wait()).toBe("succeeded");
    const [first, second] = [await client.job(1).info(), await client.job(2).info()];
    expect(second.ended ?? 0).toBeGreaterThanOrEqual(first.ended ?? Number.POSITIVE_INFINITY);
  });

  it("queue lets it wait also for a run that fails", async () => {
    const { client, clock, worker } = await openScheduled();
    const { due = 0 } = await client.schedules.set("a", {
      everyMs: MINUTE,
      overlap: "queue",
      job: { recipe: { kind: "command", argv: ["false"] } },
    });
    clock.set(due + 5);
    await runs(client, "a", 1);
    clock.set(due + MINUTE + 5);
    await runs(client, "a", 2);
    worker();
    expect([await client.job(1).wait(), await client.job(2).wait()]).toEqual(["failed", "failed"]);
  });

  it("replace cancels the old one", async () => {
    const { client, worker } = await twice("replace", 3);
    expect(await states(client)).toEqual([
      [1, "cancelled"],
      [2, "cancelled"],
      [3, "waiting"],
    ]);
    expect((await client.job(1).info()).reason).toBe("replaced by the next run of schedule a");
    worker();
    expect(await client.job(3).wait()).toBe("succeeded");
  });

  it("replace leaves a job alone that somebody else submitted with the same key", async () => {
    const { client, clock } = await openScheduled();
    const own = await client.submit({ ...job, key: "k", held: true });
    const keyed = { ...job, key: "k", ifExists: "return" } as const;
    const { due = 0 } = await client.schedules.set("a", { everyMs: MINUTE, overlap: "replace", job: keyed });
    for (const run of [1, 2, 3]) {
      clock.set(due + (run - 1) * MINUTE + 5);
      await runs(client, "a", run);
    }
    expect((await client.job(own.id).info()).state).toBe("held");
    expect(await jobsOf(client)).toEqual([own.id]);
  });

  it("replace tells those who wait for the old one, and those who follow events", async () => {
    const { client, clock } = await openScheduled();
    const { due = 0 } = await client.schedules.set("a", { everyMs: MINUTE, overlap: "replace", job });
    const { last } = await client.ask("events", {});
    clock.set(due + 5);
    await runs(client, "a", 1);
    const ended = client.job(1).wait();
    clock.set(due + MINUTE + 5);
    await runs(client, "a", 2);
    expect(await ended).toBe("cancelled");
    const { events } = await client.ask("events", { after: last });
    const ofJobs = events.filter(({ kind }) => kind === "job-added" || kind === "job-ended");
    expect(ofJobs.map(({ kind, job: id }) => `${kind} ${id}`)).toEqual(["job-added 1", "job-added 2", "job-ended 1"]);
  });

  it("replace starts the new one when the running one has been stopped", async () => {
    const { client, clock, worker } = await openScheduled();
    worker();
    const { due = 0 } = await client.schedules.set("a", {
      everyMs: MINUTE,
      overlap: "replace",
      job: { recipe: { kind: "command", argv: ["sleep", "600"] } },
    });
    clock.set(due + 5);
    await runs(client, "a", 1);
    await until("it runs", async () => (await client.job(1).info()).state === "running" || undefined);
    clock.set(due + MINUTE + 5);
    expect(await client.job(1).wait()).toBe("cancelled");
    await until("the next runs", async () => (await client.job(2).info()).state === "running" || undefined);
    await client.schedules.remove("a");
    await client.job(2).cancel();
  });
});

describe("the clock", () => {
  it("set back does not start a run again", async () => {
    const { client, clock } = await openScheduled();
    const { due = 0 } = await client.schedules.set("a", { cron: "0 * * * *", job });
    clock.set(due + 10);
    await runs(client, "a", 1);
    clock.set(due - 5 * MINUTE);
    await look(client);
    clock.set(due + 20);
    await look(client);
    expect(await jobsOf(client)).toEqual([1]);
    // Nor where its times are set again meanwhile.
    clock.set(due - 5 * MINUTE);
    await client.schedules.set("a", { cron: "0 * * * *", jitterMs: 1, job });
    clock.set(due + 30);
    await look(client);
    expect(await jobsOf(client)).toEqual([1]);
    expect(await client.schedules.get("a")).toMatchObject({ due: due + HOUR, runs: 1 });
  });

  it.each([
    ["once", 1],
    ["skip", 0],
  ] as const)("set forward over many points: missed %s", async (missed, expected) => {
    const { client, clock } = await openScheduled();
    const { due = 0 } = await client.schedules.set("a", { everyMs: MINUTE, missed, job });
    clock.set(due + 5 * HOUR + 30_000);
    await until("the broker has noticed", async () => (await client.schedules.get("a")).last);
    await look(client);
    const found = await client.schedules.get("a");
    expect(await jobsOf(client)).toHaveLength(expected);
    expect(found).toMatchObject({ runs: expected, skipped: 1 - expected, due: due + 5 * HOUR + MINUTE });
  });

  it("that passed a point while the broker was down: the rule holds after its start", async () => {
    const clock = settableClock();
    const { client, broker, dir } = await openTestBroker();
    const { due = 0 } = await client.schedules.set("once", { everyMs: MINUTE, job });
    await client.schedules.set("skip", { everyMs: MINUTE, missed: "skip", job });
    client.close();
    await broker.stop();
    clock.set(due + 3 * HOUR);
    const again = await startBroker({ dir: `${dir}/data`, port: await freePort() });
    atEnd(() => again.stop());
    const second = await connect({ broker: again.url, token: again.token });
    atEnd(() => second.close());
    await runs(second, "once", 1);
    await until("the other was skipped", async () => (await second.schedules.get("skip")).skipped === 1 || undefined);
    expect(await jobsOf(second)).toEqual([1]);
    expect((await second.schedules.get("skip")).last).toMatchObject({ skipped: "missed" });
  });
});
