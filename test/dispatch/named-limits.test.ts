/** Named limits at one broker: never exceeded, and nothing waits for a limit that has room. In a group: histories.test.ts. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  loadLimits,
  nextTimerAt,
  onDone,
  onHold,
  onLimitRule,
  onLimitsFreed,
  onMayLease,
  onTimer,
} from "../../src/dispatch/index.js";
import { JobId, SessionId, WorkerId } from "../../src/model/ids.js";
import { LIMIT_BUCKET, type LimitRule, ruleFrom } from "../../src/model/limit.js";
import { ModelWorld } from "../store/model-store.js";
import { scaled } from "../support/scale.js";
import { Workbench } from "./workbench.js";

const RUNS = scaled(300);

/** Sets a limit as the broker does: stored first. */
function setLimit(broker: Workbench, name: string, rule: LimitRule | undefined): void {
  const value = rule === undefined ? null : JSON.stringify(rule);
  broker.world.apply([{ op: "put", bucket: LIMIT_BUCKET, key: name, value }], broker.state.epoch, broker.now);
  broker.step((out) => onLimitRule(broker.state, out, name, rule, broker.now));
}

/** The broker is started again: another opens on what it left. */
function restarted(broker: Workbench): Workbench {
  const { world } = broker;
  const rules = new Map(world.kept(LIMIT_BUCKET).map(({ key, value }) => [key, ruleFrom(value)]));
  // A bench opens its state at once; limits are loaded before that.
  let loaded = false;
  class Reopened extends Workbench {
    override step<T>(decide: Parameters<Workbench["step"]>[0]): T {
      if (!loaded) {
        loaded = true;
        this.now = broker.now;
        loadLimits(this.state, rules, world.limits.starts, this.now);
      }
      return super.step(decide) as T;
    }
  }
  return new Reopened(broker.state.settings, world);
}

const running = (broker: Workbench): number => [...broker.held.values()].reduce((sum, held) => sum + held.size, 0);

describe("at most so many running", () => {
  it("holds for all jobs that name the limit together, and for no other", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { running: 3 });
    broker.join("a", { slots: 4 });
    broker.join("b", { slots: 4 });
    broker.submit({ count: 2, named: ["api"] });
    broker.submit({ count: 10, named: ["api"], tags: [] });
    expect(running(broker)).toBe(3);
    broker.submit({ count: 4 });
    expect(running(broker)).toBe(7);
    expect(broker.why("2.9")).toBe("it waits for limit api (at most 3 running); 3 run here");
  });

  it("the end of a task starts the next at once, at whichever worker has room", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { running: 1 });
    broker.join("a", { slots: 1 });
    broker.join("b", { slots: 1 });
    broker.submit({ count: 3, named: ["api"], pool: "default" });
    expect([broker.at("a"), broker.at("b")]).toEqual([["1.0"], []]);
    broker.submit({ count: 1, priority: 5 });
    expect(broker.at("b")).toEqual(["2.0"]);
    broker.submit({ count: 1, priority: 5 });
    broker.finish("a");
    // The slot went to the job of higher priority; the limit has room, and no worker.
    expect(broker.at("a")).toEqual(["3.0"]);
    broker.finish("b");
    expect(broker.at("b")).toEqual(["1.1"]);
  });

  it("the end of a task starts the next at another worker, where its own slot goes to another job", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { running: 1 });
    broker.join("a", { slots: 1, tags: ["x"] });
    broker.join("b", { slots: 1 });
    const limited = broker.submit({ count: 2, named: ["api"] });
    expect(broker.at("a")).toEqual([`${limited}.0`]);
    const other = broker.submit({ count: 1, tags: ["x"], priority: 1 });
    // In the same step: not one commit later.
    const sent = broker.step((out) => {
      const done = { job: limited, index: 0, attempt: 1, code: 0, started: 0, ended: 1, outputBytes: 0 };
      onDone(broker.state, out, WorkerId("a"), [done], broker.now);
      return out.sends.map(({ worker }) => worker);
    });
    expect(sent).toEqual(["a", "b"]);
    expect([broker.at("a").at(-1), broker.at("b")]).toEqual([`${other}.0`, [`${limited}.1`]]);
  });

  it("a job with several limits waits for the one that is full", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { running: 5 });
    setLimit(broker, "disk", { running: 1 });
    broker.join("a", { slots: 9 });
    broker.submit({ count: 5, named: ["api", "disk"] });
    broker.submit({ count: 9, named: ["api"] });
    expect(broker.at("a")).toEqual(["1.0", "2.0", "2.1", "2.2", "2.3"]);
    expect(broker.why("1.1")).toContain("waits for limit api");
    broker.finish("a", ["2.0", "2.1"]);
    expect(running(broker)).toBe(5);
    expect(broker.why("1.1")).toMatch(/waits for limit (api|disk)/);
  });

  it("tasks that count against a limit are not prefetched", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { running: 100 });
    broker.join("a", { slots: 2, canPrefetch: true });
    broker.submit({ count: 60, named: ["api"] });
    for (let round = 0; round < 10; round++) {
      broker.now += 5;
      expect(broker.at("a")).toHaveLength(2);
      broker.finish("a");
    }
    const other = broker.submit({ count: 60, priority: 9 });
    for (let round = 0; round < 10; round++) {
      broker.now += 5;
      broker.finish("a", broker.at("a").slice(0, 2));
    }
    expect(broker.at("a").length).toBeGreaterThan(2);
    expect(broker.at("a").every((task) => task.startsWith(`${other}.`))).toBe(true);
  });

  it("a change holds at once: more are started, fewer let none follow until there is room", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { running: 1 });
    broker.join("a", { slots: 9 });
    broker.submit({ count: 20, named: ["api"] });
    setLimit(broker, "api", { running: 4 });
    expect(running(broker)).toBe(4);
    setLimit(broker, "api", { running: 2 });
    broker.finish("a", broker.at("a").slice(0, 2));
    expect(running(broker)).toBe(2);
    setLimit(broker, "api", { running: 0 });
    broker.finish("a");
    expect(running(broker)).toBe(0);
    setLimit(broker, "api", undefined);
    expect(running(broker)).toBe(9);
    // What was started without the limit counts when it is there again.
    setLimit(broker, "api", { running: 3 });
    broker.finish("a", broker.at("a").slice(0, 6));
    expect(running(broker)).toBe(3);
    broker.finish("a", broker.at("a").slice(0, 1));
    expect(running(broker)).toBe(3);
  });

  it("what workers still run counts after a restart of the broker", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { running: 2 });
    broker.join("a", { slots: 2 });
    broker.submit({ count: 9, named: ["api"] });
    expect(broker.at("a")).toEqual(["1.0", "1.1"]);
    const next = restarted(broker);
    next.join("b", { slots: 4 });
    expect(next.at("b")).toEqual([]);
    expect(next.why("1.2")).toContain("waits for limit api");
    next.pass(next.state.settings.graceMs + 1);
    expect(next.at("b")).toHaveLength(2);
  });
});

describe("at most so many starts", () => {
  it("are made within any interval, and the next when the oldest has left it", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { rate: { starts: 3, intervalMs: 1_000 } });
    broker.join("a", { slots: 9 });
    broker.submit({ count: 20, named: ["api"] });
    expect(broker.at("a")).toHaveLength(3);
    broker.finish("a");
    expect(broker.at("a")).toEqual([]);
    expect(broker.why("1.3")).toBe("it waits for limit api (3 starts in 1.0s); the next start is in 1 s");
    broker.pass(999);
    expect(broker.at("a")).toEqual([]);
    expect(nextTimerAt(broker.state)).toBe(broker.now + 1);
    broker.pass(1);
    expect(broker.at("a")).toHaveLength(3);
  });

  it("count for the interval under which they were made, also where a longer one follows", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { rate: { starts: 3, intervalMs: 1_000 } });
    broker.join("a", { slots: 9 });
    broker.submit({ count: 2, named: ["api"] });
    broker.pass(1_000);
    setLimit(broker, "api", { rate: { starts: 3, intervalMs: 60_000 } });
    broker.submit({ count: 20, named: ["api"] });
    expect(broker.at("a")).toHaveLength(2 + 3);
  });

  it("of a high rate are kept in steps: never more, and late by a thousandth of the interval at most", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { rate: { starts: 2_000, intervalMs: 100_000 } });
    // Not at the end of a step.
    broker.now += 50;
    broker.join("a", { slots: 5_000 });
    broker.submit({ count: 5_000, named: ["api"] });
    expect(broker.at("a")).toHaveLength(2_000);
    broker.pass(100_000 - 1);
    expect(broker.at("a")).toHaveLength(2_000);
    broker.pass(101);
    expect(broker.at("a")).toHaveLength(4_000);
  });

  it("count through a restart of the broker, and also if its clock was set back", () => {
    const broker = new Workbench();
    setLimit(broker, "api", { rate: { starts: 2, intervalMs: 60_000 } });
    broker.join("a", { slots: 5 });
    broker.submit({ count: 9, named: ["api"] });
    broker.finish("a");
    broker.pass(10_000);
    const next = restarted(broker);
    next.join("b", { slots: 5 });
    expect(next.at("b")).toEqual([]);
    next.pass(49_999);
    expect(next.at("b")).toEqual([]);
    next.pass(1);
    expect(next.at("b")).toHaveLength(2);
    next.now -= 3_600_000;
    const back = restarted(next);
    back.join("c", { slots: 5 });
    expect(back.at("c")).toEqual([]);
    back.pass(60_000);
    expect(back.at("c")).toHaveLength(2);
  });
});

describe("in a group", () => {
  it("each retry of a task counts as a start", () => {
    const broker = new Workbench({ retryBackoffMs: 10 }, new ModelWorld());
    setLimit(broker, "api", { rate: { starts: 2, intervalMs: 3_600_000 } });
    broker.join("a", { slots: 1 });
    const job = broker.submit({ count: 1, retries: 5, named: ["api"] });
    for (const attempt of [1, 2]) {
      expect([broker.at("a"), broker.attempt("a", `${job}.0`)]).toEqual([[`${job}.0`], attempt]);
      broker.fail("a", `${job}.0`);
      broker.pass(1_000);
    }
    expect(broker.at("a")).toEqual([]);
    expect(broker.why(`${job}.0`)).toMatch(/^it waits for limit api \(2 starts in 1h\); the next start is in 359\d s$/);
    broker.pass(3_600_000);
    expect(broker.at("a")).toEqual([`${job}.0`]);
  });

  it("what was leased while its job was being held counts against no limit", () => {
    const broker = new Workbench({}, new ModelWorld());
    setLimit(broker, "api", { running: 1 });
    broker.join("a", { slots: 2 });
    const held = broker.submit({ named: ["api"], held: true });
    const other = broker.submit({ named: ["api"], held: true });
    broker.step((out) => {
      for (const now of [false, true]) {
        out.writes.push({ op: "hold", job: JobId(held), held: now });
        onHold(broker.state, out, JobId(held), now, broker.now);
      }
    });
    broker.hold(other, false);
    broker.step((out) => onLimitsFreed(broker.state, out, broker.now));
    expect(broker.at("a")).toEqual([`${other}.0`]);
  });

  it("what was leased and not started before its job is held or its pool paused counts against no limit", () => {
    for (const stop of ["hold", "pause"] as const) {
      const broker = new Workbench({}, new ModelWorld());
      setLimit(broker, "api", { running: 1 });
      broker.join("a", { slots: 1 });
      broker.join("b", { slots: 1, pool: "gpu" });
      broker.submit({ count: 2 });
      // It has to compete for the slot, so that a task of it is leased.
      const stopped = broker.submit({ named: ["api"] });
      expect(broker.state.jobs.get(stopped)?.ready).toBe(1);
      const other = broker.submit({ named: ["api"], pool: "gpu" });
      expect(broker.at("b")).toEqual([]);
      expect(broker.why(`${other}.0`)).toBe("it waits for limit api (at most 1 running); 0 of them run at this broker");
      if (stop === "hold") broker.hold(stopped);
      else broker.pausePool("default", "for a while");
      broker.step((out) => onLimitsFreed(broker.state, out, broker.now));
      expect(broker.at("b"), stop).toEqual([`${other}.0`]);
    }
  });

  it("tasks that wait for those of another job leave the room of a shared limit to it", () => {
    const broker = new Workbench({}, new ModelWorld());
    setLimit(broker, "api", { running: 2 });
    broker.join("a", { slots: 4 });
    const first = broker.submit({ count: 6, named: ["api"] });
    const second = broker.submit({ count: 6, named: ["api"], priority: 1, after: [{ job: first, each: true }] });
    const ended = new Set<number>();
    for (let round = 0; round < 20 && broker.job(second).ended === undefined; round++) {
      for (const task of broker.at("a")) {
        broker.finish("a", [task]);
        const [job, index] = task.split(".").map(Number) as [number, number];
        if (job === first) ended.add(index);
      }
      const succeeded = [...ended].map((index) => ({ first: index, last: index }));
      broker.eachEnded(first, { succeeded, failed: [], final: ended.size === 6 });
      broker.step((out) => onLimitsFreed(broker.state, out, broker.now));
      expect(running(broker)).toBeLessThanOrEqual(2);
    }
    expect(broker.job(second).ended).toMatchObject({ state: "succeeded" });
  });

  it("a slow task does not stop those that wait for later tasks of its job", () => {
    const broker = new Workbench({}, new ModelWorld());
    setLimit(broker, "api", { running: 3 });
    broker.join("a", { slots: 1, tags: ["fast"] });
    const first = broker.submit({ count: 4, tags: ["none"] });
    const second = broker.submit({ count: 4, named: ["api"], after: [{ job: first, each: true }] });
    broker.eachEnded(first, { succeeded: [{ first: 2, last: 3 }], failed: [], final: false });
    expect(broker.at("a")).toEqual([`${second}.2`]);
    broker.finish("a");
    broker.step((out) => onLimitsFreed(broker.state, out, broker.now));
    expect(broker.at("a")).toEqual([`${second}.3`]);
  });

  it("tasks of a worker that has moved to another broker, which released them, can be leased again", () => {
    const first = new Workbench({}, new ModelWorld());
    first.join("a", { slots: 1 });
    const job = first.submit({ count: 1, maxRunning: 2 });
    expect(first.at("a")).toEqual([`${job}.0`]);
    first.join("b", { slots: 1 });
    // Another broker adopts the worker and releases its task. The first one hears that there is something to lease, and no more.
    const other = new Workbench({}, first.world);
    other.join("a", { slots: 1 });
    other.drain("a");
    other.leave("a");
    for (const { taskRange, epoch } of first.world.taskRanges.values())
      if (epoch === other.state.epoch) other.world.apply([{ op: "release", rangeId: taskRange.id }], epoch, other.now);
    first.step((out) => onMayLease(first.state, out, job));
    expect(first.at("b")).toEqual([`${job}.0`]);
  });
});

describe("any history of submissions, results, losses, changes, restarts and times", () => {
  const NAMES = ["api", "disk"];
  const rule = fc.record(
    {
      running: fc.integer({ min: 0, max: 5 }),
      rate: fc.record({ starts: fc.integer({ min: 1, max: 6 }), intervalMs: fc.constantFrom(1, 50, 1_000) }),
    },
    { requiredKeys: [] },
  );
  const step = fc.record({
    kind: fc.constantFrom(
      ..."submit submit join join finish finish finish finish fail back away join slots hold pass pass pass set remove restart cancel".split(
        " ",
      ),
    ),
    at: fc.nat(2),
    many: fc.integer({ min: 1, max: 5 }),
    named: fc.constantFrom(["api"], ["disk"], ["api", "disk"], undefined),
    rule,
    ms: fc.constantFrom(0, 1, 7, 49, 50, 51, 400, 40_000),
  });

  it("keeps within the limits, and leaves nothing waiting while there is room", () => {
    let waited = 0;
    let started = 0;
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 150 }), (steps) => {
        let broker = new Workbench({ retryBackoffMs: 10 }, new ModelWorld({ shared: false }));
        const rules = new Map<string, LimitRule>();
        /** Since a limit was set last: a change does not undo what has been started. */
        const before = new Map<string, number>();
        let starts: { readonly name: string; readonly at: number }[] = [];
        /** The same, with those that the store has kept too long: it forgets them with the next start. */
        let counted: { readonly name: string; readonly at: number }[] = [];
        let seen = 0;
        const namesOf = (job: number): readonly string[] => broker.job(job).limits.named ?? [];

        /** Counted from what was sent to workers, not from what dispatch thinks. */
        const check = (changed: string | undefined): void => {
          for (; seen < broker.sends.length; seen++) {
            const send = broker.sends[seen];
            if (send?.kind !== "tasks") continue;
            for (let index = send.first; index <= send.last; index++)
              for (const name of namesOf(send.job)) {
                if (rules.get(name)?.rate === undefined) continue;
                starts.push({ name, at: broker.now });
                counted.push({ name, at: broker.now });
                started++;
              }
          }
          const now = new Map<string, number>();
          for (const worker of broker.state.workers.values())
            for (const [job, claims] of worker.claims)
              for (const { open } of claims)
                for (const name of namesOf(job)) now.set(name, (now.get(name) ?? 0) + open);
          for (const name of NAMES) {
            const { running: most = Number.POSITIVE_INFINITY, rate } = rules.get(name) ?? {};
            const runs = now.get(name) ?? 0;
            // After it was lowered there may be more; then they only become fewer.
            const allowed = name === changed ? runs : Math.max(most, before.get(name) ?? 0);
            expect(runs, `${name} runs`).toBeLessThanOrEqual(allowed);
            before.set(name, runs);
            if (rate === undefined || name === changed) continue;
            const recent = starts.filter((one) => one.name === name && one.at > broker.now - rate.intervalMs).length;
            expect(recent, `${name} starts`).toBeLessThanOrEqual(Math.max(rate.starts, sinceChange.get(name) ?? 0));
          }
          // Work conservation, said again without dispatch's indexes.
          for (const job of broker.state.jobs.values()) {
            if (job.ready === 0 || job.held) continue;
            const full = (job.job.limits.named ?? []).some((name) => {
              const { running: most = Number.POSITIVE_INFINITY, rate } = rules.get(name) ?? {};
              const count = counted.filter(
                (one) => one.name === name && one.at > broker.now - (rate?.intervalMs ?? 0),
              ).length;
              return (now.get(name) ?? 0) >= most || (rate !== undefined && count >= rate.starts);
            });
            const room = [...broker.state.workers.values()].some(
              ({ connected, free }) => connected && (free.slots ?? 0) > 0,
            );
            if (full) waited++;
            else expect(room, `job ${job.id} waits although its limits and a worker have room`).toBe(false);
          }
        };
        /** Starts within the interval when the rule was set: a lower rate does not undo them. */
        const sinceChange = new Map<string, number>();
        const change = (name: string, given: LimitRule | undefined): void => {
          const { intervalMs = 0 } = rules.get(name)?.rate ?? {};
          const kept = (one: { readonly name: string; readonly at: number }): boolean =>
            one.name !== name || one.at > broker.now - intervalMs;
          starts = starts.filter(kept);
          counted = counted.filter(kept);
          setLimit(broker, name, given);
          if (given === undefined) rules.delete(name);
          else rules.set(name, given);
          check(name);
          sinceChange.set(
            name,
            starts.filter((one) => one.name === name && one.at > broker.now - (given?.rate?.intervalMs ?? 0)).length,
          );
        };

        for (const at of [0, 1, 2]) broker.join(`w${at}`, { slots: at + 1, canPrefetch: true });
        for (const name of NAMES) change(name, { running: 3, rate: { starts: 4, intervalMs: 50 } });
        for (const { kind, at, many, named, rule: given, ms } of steps) {
          const name = `w${at}`;
          const connected = [...broker.state.workers.values()].some(
            (one) => one.profile.name === name && one.connected,
          );
          // Every moment at which something falls due is passed.
          let turns = 0;
          for (const end = broker.now + ms; broker.now < end; ) {
            if (++turns > 10_000) throw new Error(`time stands still at ${broker.now}`);
            const due = nextTimerAt(broker.state) ?? end;
            broker.now = Math.min(end, Math.max(due, broker.now));
            broker.step((out) => onTimer(broker.state, out, broker.now));
            check(undefined);
            if (due > end) break;
          }
          const tasks = broker.at(name);
          if (kind === "submit" && broker.world.jobs.size < 5)
            broker.submit({ count: 8 * many, retries: 1, ...(named === undefined ? {} : { named }) });
          else if (kind === "hold" && broker.world.jobs.size > at) broker.hold(1 + at, many % 2 === 0);
          else if (kind === "cancel" && broker.world.jobs.size > at) broker.cancel(1 + at, many, many + 2);
          else if (kind === "pass") broker.pass(0);
          else if (kind === "set")
            change(NAMES[at % 2] ?? "", Object.keys(given).length === 0 ? { running: many } : given);
          else if (kind === "remove") change(NAMES[at % 2] ?? "", undefined);
          else if (kind === "restart") {
            const held = new Map(broker.held);
            broker = restarted(broker);
            for (const [worker, its] of held) broker.held.set(worker, its);
            seen = 0;
            counted = broker.world.limits.starts.flatMap(({ name, at, count }) =>
              Array<{ name: string; at: number }>(count).fill({ name, at }),
            );
          } else if (kind === "join" && !connected) {
            broker.held.delete(name);
            broker.join(name, {
              slots: many,
              canPrefetch: true,
              session: SessionId(`${name} ${broker.now} ${starts.length}`),
            });
          } else if (!connected) continue;
          else if (kind === "finish") broker.finish(name, tasks.slice(0, many));
          else if (kind === "fail" && tasks[0] !== undefined) broker.fail(name, tasks[0]);
          else if (kind === "back" && tasks.length > 0) broker.giveBack(name, ...tasks.slice(-1));
          else if (kind === "away") broker.away(name);
          else if (kind === "slots") broker.slots(name, many);
          check(undefined);
        }
      }),
      { numRuns: RUNS },
    );
    console.log(
      `${RUNS} histories, ${started} starts that counted against limits, ${waited} times a job waited for one`,
    );
    expect(waited).toBeGreaterThan(RUNS);
  });
});
