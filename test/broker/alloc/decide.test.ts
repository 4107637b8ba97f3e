/** What is decided about allocations: states, waits and limits, without a batch system. */
import { describe, expect, it } from "vitest";
import { BatchError, type FailureKind, type QueueEntry } from "../../../src/broker/alloc/batch-manager.js";
import {
  ALLOCATION_RULES,
  addAllocation,
  newState,
  observe,
  onAnswer,
  recordAnswering,
  recordTrouble,
} from "../../../src/broker/alloc/decide.js";
import { type Demand, waitingTasks, whyUnfit } from "../../../src/broker/alloc/demand.js";
import { plan, statusText } from "../../../src/broker/alloc/plan.js";
import { StateAges } from "../../../src/broker/alloc/queue-watch.js";
import { type Allocator, allocatorInput, isLive } from "../../../src/model/allocation.js";
import { JobId } from "../../../src/model/ids.js";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const RULES = ALLOCATION_RULES;

/** One allocator beside a queue that the test sets, and a clock that it moves. */
class Site {
  now = 1_000_000;
  /** What passes, however the clock is set. */
  passed = 0;
  readonly ages = new StateAges();
  readonly allocator: Allocator;
  readonly queue = new Map<number, Partial<QueueEntry>>();
  readonly workers = new Map<number, number>();
  /** Allocations whose workers have ended a task. */
  readonly useful = new Map<number, boolean | undefined>();
  readonly output = new Map<number, string>();
  asked = 0;
  cancelled: string[] = [];
  answer: (number: number) => string | BatchError = (number) => {
    this.queue.set(number, { state: "queued", word: "PENDING", reason: "Priority" });
    return String(1000 + number);
  };
  tasks: Demand[] = [];

  constructor(given: object = {}) {
    const input = { maxWorkers: 10, timeLimitMs: HOUR, ...given };
    this.allocator = { name: "a", spec: { dir: "/x", ...allocatorInput.read(input, "") }, state: newState(this.now) };
  }

  work(tasks: number, needs: object = {}, more: { tags?: string[]; pool?: string; timeMs?: number } = {}): void {
    const { tags = [], pool = "default", timeMs = 0 } = more;
    this.tasks = [{ job: JobId(1), requirement: { pool, tags, needs: { slots: 1, ...needs } }, timeMs, tasks }];
  }

  /** One look, as the driver has it. */
  look({ seen = true } = {}): void {
    const jobs = new Map(
      [...this.queue].map(([number, entry]) => [
        number,
        {
          id: String(1000 + number),
          word: "?",
          good: false,
          never: false,
          taken: false,
          script: `/x/${number}`,
          ...entry,
        } as QueueEntry,
      ]),
    );
    const strays = observe(
      this.allocator,
      {
        jobs: seen ? jobs : undefined,
        workers: this.workers,
        useful: (number) => this.useful.get(number),
        watchedMs: 1_000_000 + this.passed,
        stateMs: (one) => this.ages.stateMs("a", one, this.passed),
        lastLine: (number) => this.output.get(number),
      },
      RULES,
      this.now,
    );
    if (seen) this.ages.record(this.allocator, this.passed);
    else this.ages.clear();
    if (!seen) return;
    const asks = plan([this.allocator], structuredClone(this.tasks), RULES, this.now).get("a") ?? 0;
    this.cancelled.push(...strays);
    for (const { cancelling, number, id } of this.live) {
      if (!cancelling || id === undefined) continue;
      this.cancelled.push(id);
      this.queue.set(number, { state: "ended", word: "CANCELLED" });
    }
    for (let count = 0; count < asks; count++) {
      this.asked++;
      const { number } = addAllocation(this.allocator.state, this.now);
      const answer = this.answer(number);
      onAnswer(this.allocator.state, number, answer, RULES, this.now);
      if (answer instanceof BatchError && answer.kind !== "lost") break;
    }
  }

  /** Looks every ten seconds for so long, or every `step`. */
  pass(ms: number, eachLook: () => void = () => {}, step = 10 * SECOND): void {
    for (const end = this.passed + ms; this.passed < end; ) {
      this.passed += step;
      this.now += step;
      eachLook();
      this.look();
    }
  }

  run(number: number): void {
    this.queue.set(number, { state: "running", word: "RUNNING" });
  }

  join(number: number, useful: boolean, workers = this.allocator.spec.nodes): void {
    this.workers.set(number, workers);
    this.useful.set(number, useful);
  }

  end(number: number, word: string, good = word === "COMPLETED"): void {
    this.queue.set(number, { state: "ended", word, good });
    this.workers.delete(number);
  }

  get live() {
    return this.allocator.state.allocations.filter(isLive);
  }

  get log(): string[] {
    return this.allocator.state.log.map(({ kind, text }) => `${kind}: ${text}`);
  }

  get status(): string {
    return statusText(this.allocator, RULES, this.now);
  }
}

const refuse = (kind: FailureKind, message: string) => () => new BatchError(kind, message);

describe("an allocator asks", () => {
  it("for nothing while nothing waits", () => {
    const site = new Site({ backlog: 5 });
    site.pass(10 * MINUTE);
    expect([site.asked, site.status]).toEqual([0, "is ready to ask for an allocation"]);
  });

  it("for as many workers as the waiting tasks fill, and no more", () => {
    const site = new Site({ backlog: 100, slots: 4 });
    site.work(9);
    site.look();
    expect(site.asked).toBe(3);
    site.pass(MINUTE);
    expect(site.asked).toBe(3);
  });

  it("for one more while its workers have the first tasks, and other tasks wait", () => {
    const site = new Site({ backlog: 2 });
    site.work(100);
    site.look();
    for (const number of [1, 2]) {
      site.run(number);
      site.join(number, true);
    }
    site.pass(10 * SECOND);
    expect(site.asked).toBe(4);
  });

  it("within its backlog and its number of workers, each allocation with all its nodes", () => {
    const backlog = new Site({ backlog: 2 });
    backlog.work(1000);
    backlog.pass(MINUTE);
    expect([backlog.asked, backlog.status]).toEqual([2, "has 2 allocations in the queue (slurm: Priority)"]);
    const nodes = new Site({ backlog: 10, maxWorkers: 5, nodes: 2 });
    nodes.work(1000);
    nodes.pass(MINUTE, () => {
      for (const { number } of nodes.live) nodes.run(number);
    });
    expect([nodes.asked, nodes.status]).toEqual([2, "has 4 of at most 5 workers"]);
  });

  it("for nothing more while the workers of an allocation's nodes join one after the other", () => {
    const site = new Site({ backlog: 2, nodes: 2 });
    site.work(2);
    site.look();
    site.run(1);
    site.join(1, false, 1);
    // The first worker has one of the tasks.
    site.work(1);
    site.pass(MINUTE);
    expect(site.asked).toBe(1);
    // The other node's worker does not come.
    site.pass(5 * MINUTE);
    expect(site.asked).toBe(2);
  });

  it("for tasks of several kinds together", () => {
    const site = new Site({ backlog: 10, slots: 4 });
    site.work(2);
    const [one] = site.tasks as [Demand];
    site.tasks.push({ ...one, requirement: { ...one.requirement, needs: { slots: 2 } }, tasks: 1 });
    site.look();
    expect(site.asked).toBe(1);
  });

  it.each<[string, object, Parameters<Site["work"]>, string]>([
    ["pool", { pool: "night" }, [5], "its workers are in pool night, not default"],
    ["tags", { tags: ["big"] }, [5, {}, { tags: ["big", "avx"] }], "its workers do not have the tag avx"],
    ["slots", { slots: 4 }, [5, { slots: 8 }], "its workers have 4 slots, and the task needs 8"],
    [
      "resources",
      {},
      [5, { gpu: 1 }],
      "the task needs 1 gpu, and its workers are not known to have any; --resource gpu=N declares it",
    ],
    ["time", {}, [5, {}, { timeMs: 2 * HOUR }], "its workers live for 57m, and the task needs 2h"],
  ])("never for what cannot fit: %s", (_, spec, work, why) => {
    const site = new Site(spec);
    site.work(...work);
    site.pass(10 * MINUTE);
    expect([site.asked, whyUnfit(site.allocator.spec, site.tasks[0] as Demand)]).toEqual([0, why]);
  });

  it("the first of two for work that both could do, and the second for what the first leaves", () => {
    const [a, b] = [new Site({ backlog: 1 }), new Site({ backlog: 9 })];
    a.work(3);
    const second: Allocator = { ...b.allocator, name: "b" };
    expect([...plan([a.allocator, second], a.tasks, RULES, a.now)]).toEqual([
      ["a", 1],
      ["b", 2],
    ]);
  });
});

it("a task between its end and its commit is no demand; at one broker only what is ready or can be leased is", () => {
  const job = { count: 3, limits: {}, counters: { succeeded: 1, failed: 0, cancelled: 0 } };
  const settings = {
    held: false,
    paused: false,
    delayed: false,
    blockedBy: new Set(),
    inBackoff: new Set(),
    signature: {},
  };
  const open = { ...settings, job, assigned: 1, ready: 0, mayLease: false, leasing: false, mostRunning: 0 };
  const waiting = (shared: boolean, more: object = {}) => waitingTasks({ shared }, { ...open, ...more } as never);
  expect([waiting(false), waiting(false, { ready: 1 }), waiting(false, { mayLease: true }), waiting(true)]).toEqual([
    0, 1, 1, 1,
  ]);
  expect(waiting(false, { ready: 1, paused: true })).toBe(0);
});

describe("an allocation", () => {
  it("that nothing waits for any more is cancelled while it is queued; one that runs ends by itself", () => {
    const site = new Site({ backlog: 2 });
    site.work(2);
    site.look();
    site.run(1);
    site.join(1, true);
    site.tasks = [];
    site.pass(10 * SECOND);
    expect(site.cancelled).toEqual([]);
    site.pass(20 * SECOND);
    expect(site.cancelled).toEqual(["1002"]);
    expect(site.log).toContain("cancelled: nothing waits that it could do");
    site.end(1, "COMPLETED");
    site.pass(10 * SECOND);
    expect([site.live.length, site.allocator.state.failures]).toEqual([0, 0]);
  });

  it("is kept where work comes back in time", () => {
    const site = new Site();
    site.work(1);
    site.look();
    site.tasks = [];
    site.pass(10 * SECOND);
    site.work(1);
    site.pass(10 * SECOND);
    site.tasks = [];
    site.pass(10 * SECOND);
    expect([site.cancelled, site.live.length]).toEqual([[], 1]);
  });

  it("that is requeued, preempted or loses its node is the same allocation, and no failure after its worker was of use", () => {
    const site = new Site();
    site.work(5);
    site.look();
    site.run(1);
    site.join(1, true);
    site.pass(10 * SECOND);
    site.workers.clear();
    site.queue.set(1, { state: "queued", word: "PENDING", reason: "BeginTime" });
    site.pass(10 * SECOND);
    expect(site.log.at(-1)).toBe("requeued: the batch system has put it back into the queue: BeginTime");
    expect(site.live[0]).toMatchObject({ number: 1, state: "queued", reason: "BeginTime" });
    site.run(1);
    site.join(1, true);
    site.pass(10 * SECOND);
    site.end(1, "NODE_FAIL");
    site.pass(10 * SECOND);
    expect([site.allocator.state.failures, site.asked]).toEqual([0, 2]);
  });

  it("whose worker has come, done work and gone between two looks is no failure", () => {
    const site = new Site();
    site.work(1);
    site.look();
    site.useful.set(1, true);
    site.end(1, "COMPLETED");
    site.pass(10 * SECOND);
    expect([site.allocator.state.failures, site.log.includes("ended: COMPLETED")]).toEqual([0, true]);
  });

  it("whose answer was lost is found in the queue by its script, and is not asked for twice", () => {
    const site = new Site();
    site.work(1);
    site.answer = refuse("lost", "sbatch did not answer within 20 s");
    site.look();
    site.queue.set(1, { state: "queued", word: "PENDING" });
    site.pass(10 * SECOND);
    expect([site.asked, site.live[0]?.id]).toEqual([1, "1001"]);
    expect(site.log.at(-1)).toBe("queued: job 1001 was found in the queue");
  });

  it("whose answer was lost is given up after a while, and cancelled where it comes after all", () => {
    const site = new Site();
    site.work(1);
    site.answer = refuse("lost", "sbatch did not answer within 20 s");
    site.look();
    site.pass(2 * MINUTE);
    expect(site.log).toContain("failed: its request was lost: it is not in the queue");
    site.queue.set(1, { state: "running", word: "RUNNING" });
    site.tasks = [];
    site.pass(10 * SECOND);
    expect(site.cancelled).toEqual(["1001"]);
  });

  it("of a removed allocator of the same name is cancelled while it is queued, and left alone while it runs", () => {
    const site = new Site();
    site.queue.set(77, { state: "queued", word: "PENDING" });
    site.queue.set(78, { state: "running", word: "RUNNING" });
    site.look();
    expect(site.cancelled).toEqual(["1077"]);
  });

  it("that would wait for ever is cancelled with Slurm's reason, and asked for ever more slowly", () => {
    const site = new Site({ backlog: 5 });
    site.work(5);
    site.answer = (number) => {
      site.queue.set(number, { state: "queued", word: "PENDING", never: true, reason: "PartitionNodeLimit" });
      return String(1000 + number);
    };
    site.pass(10 * HOUR, () => {}, MINUTE);
    expect(site.log).toContain("failed: it would wait for ever: PartitionNodeLimit; it is cancelled");
    expect(site.allocator.state.paused).toMatchObject({ by: "failures" });
    expect(site.asked).toBeLessThan(25);
    expect(site.live.length).toBeLessThanOrEqual(1);
  });

  it("whose worker does not join in time is cancelled", () => {
    const site = new Site();
    site.work(1);
    site.look();
    site.run(1);
    site.pass(4 * MINUTE);
    expect(site.cancelled).toEqual([]);
    site.pass(2 * MINUTE);
    expect([site.cancelled, site.log.filter((line) => line.startsWith("failed"))]).toEqual([
      ["1001"],
      ["failed: its worker has not joined within 5m; it is cancelled"],
    ]);
  });

  it("whose worker got no task for all of its idle timeout counts as a failure: what waits is not for it", () => {
    const site = new Site({ idleTimeoutMs: MINUTE });
    site.work(1);
    site.pass(
      10 * HOUR,
      () => {
        for (const { number, state, joined } of site.live) {
          if (state === "queued") site.run(number);
          site.join(number, false);
          if (joined !== undefined && site.now - joined >= MINUTE) site.end(number, "COMPLETED");
        }
      },
      MINUTE / 2,
    );
    expect(site.log).toContain("failed: COMPLETED: its worker got no task");
    expect(site.asked).toBeLessThan(30);
  });
});

describe("failures", () => {
  const dying = (site: Site) => () => {
    for (const { number } of site.live) site.end(number, "FAILED");
  };

  it("of allocations that die at once do not run away: one at a time, ever more slowly, then one an hour", () => {
    const site = new Site({ backlog: 100, maxWorkers: 100 });
    site.work(1000);
    site.pass(10 * SECOND);
    expect(site.asked).toBe(100);
    const first = site.asked;
    const times: number[] = [];
    site.pass(6 * HOUR, () => {
      if (site.asked - first > times.length) times.push(site.now);
      dying(site)();
    });
    const waits = times.map((time, at) => time - (times[at - 1] ?? 0)).slice(1);
    expect(waits.slice(0, 4)).toEqual([40 * SECOND, 100 * SECOND, 280 * SECOND, 60 * MINUTE + 10 * SECOND]);
    expect([waits.length < 12, Math.max(...waits)]).toEqual([true, HOUR + 10 * SECOND]);
    expect(site.log).toContain("paused: after 5 failures: FAILED: no worker has joined; one try every 1h");
    expect(site.status).toMatch(/^is paused; it tries again in \d+m\d\ds: FAILED: no worker has joined$/);
  });

  it("are forgotten by themselves once a worker is of use", () => {
    const site = new Site({ backlog: 3 });
    site.work(1000);
    site.pass(3 * HOUR, dying(site));
    expect(site.allocator.state.paused).toMatchObject({ by: "failures" });
    site.pass(HOUR + MINUTE, () => {
      for (const { number } of site.live) {
        site.run(number);
        site.join(number, true);
      }
    });
    expect(site.log).toContain("recovered: its worker is useful: earlier failures no longer count");
    expect([site.allocator.state.paused, site.allocator.state.failures, site.live.length]).toEqual([undefined, 0, 10]);
  });

  it.each([1, 10])("beside a useful worker do not run away either (backlog %i)", (backlog) => {
    const site = new Site({ backlog });
    site.work(1000);
    site.look();
    site.pass(6 * HOUR, () => {
      for (const { number } of site.live) {
        if (number > 1) site.end(number, "FAILED");
        else {
          site.run(number);
          site.join(number, true);
        }
      }
    });
    expect([site.asked < 12 + backlog, site.allocator.state.paused?.by]).toEqual([true, "failures"]);
    expect(site.log.filter((line) => line.startsWith("recovered"))).toEqual([]);
  });

  it("end with an earlier allocation that is of use only now", () => {
    const site = new Site({ backlog: 2 });
    site.work(1000);
    site.look();
    site.run(1);
    site.join(1, false);
    site.end(2, "FAILED");
    site.pass(10 * SECOND);
    expect(site.allocator.state.failures).toBe(1);
    site.join(1, true);
    site.pass(10 * SECOND);
    expect(site.allocator.state.failures).toBe(0);
  });

  it("say what the job script wrote last", () => {
    const site = new Site();
    site.work(1);
    site.look();
    site.output.set(1, "/usr/bin/node: No such file or directory");
    site.end(1, "FAILED");
    site.pass(10 * SECOND);
    expect(site.allocator.state.problem?.text).toBe(
      "FAILED: no worker has joined; its output ends with: /usr/bin/node: No such file or directory",
    );
  });

  it("of the request itself, such as a bad partition, are the same", () => {
    const site = new Site({ backlog: 10 });
    site.work(1000);
    site.answer = refuse("refused", "Invalid partition name specified");
    site.look();
    expect([site.asked, site.live.length]).toEqual([1, 0]);
    expect(site.status).toBe("asks again in 10s: Invalid partition name specified");
    site.pass(24 * HOUR, () => {}, MINUTE);
    expect(site.asked).toBeLessThan(32);
    expect(site.log).toContain("refused: Invalid partition name specified");
  });

  it("are waited for as long where the batch system does not answer either", () => {
    const site = new Site();
    site.work(1);
    site.answer = refuse("refused", "Invalid account");
    site.pass(10 * MINUTE);
    const { notBefore } = site.allocator.state;
    expect(notBefore).toBeGreaterThan(site.now + MINUTE);
    recordTrouble(site.allocator.state, RULES, site.now, new BatchError("unreachable", "Socket timed out"));
    expect(site.allocator.state.notBefore).toBe(notBefore);
  });

  it("cancel what is still queued when they pause the allocator", () => {
    const site = new Site({ backlog: 2 });
    site.work(1000);
    site.look();
    site.allocator.state.failures = RULES.pauseAfter - 1;
    site.end(1, "FAILED");
    site.pass(10 * SECOND);
    expect(site.cancelled).toEqual(["1002"]);
  });
});

describe("troubles of the batch system", () => {
  it.each<[FailureKind, string]>([
    ["full", "Slurm temporarily unable to accept job, sleeping and retrying"],
    ["unreachable", "Unable to contact slurm controller (connect failure)"],
    ["missing", "sbatch is not installed here"],
  ])("%s: it is asked at least every two minutes, for ever, and is never paused for it", (kind, message) => {
    const site = new Site({ backlog: 5 });
    site.work(1000);
    const good = site.answer;
    site.answer = refuse(kind, message);
    site.pass(3 * HOUR);
    expect(site.allocator.state.paused).toBeUndefined();
    expect([site.asked > 80, site.asked < 110]).toEqual([true, true]);
    expect(site.log.filter((line) => line.startsWith(kind))).toHaveLength(1);
    expect(site.status).toMatch(new RegExp(`^asks again in .*: ${message.replace(/[()]/g, "\\$&")}`));
    site.answer = good;
    site.pass(3 * MINUTE);
    expect([site.live.length, site.log.includes("answering: the batch system answers again")]).toEqual([5, true]);
  });

  it.each(["PREEMPTED", "NODE_FAIL"])("%s before a worker joins delays, and is never a failure", (word) => {
    const site = new Site({ backlog: 5 });
    site.work(1000);
    site.pass(3 * HOUR, () => {
      for (const { number, state } of site.live) {
        if (state === "queued") site.run(number);
        else site.queue.set(number, { state: "ended", word, good: true, taken: true });
      }
    });
    expect(site.allocator.state).toMatchObject({
      failures: 0,
      problem: { kind: "taken", text: `${word}: no worker has joined` },
    });
    expect(site.allocator.state.paused).toBeUndefined();
    // Ten in more than two minutes: what was asked for together is one trouble.
    expect([site.asked > 300, site.asked < 900]).toEqual([true, true]);
    site.pass(5 * MINUTE, () => {
      for (const { number } of site.live) {
        site.run(number);
        site.join(number, true);
      }
    });
    expect([site.allocator.state.problem, site.live.length]).toEqual([undefined, 10]);
  });

  it("squeue that fails for a while changes no allocation, and nothing is asked for meanwhile", () => {
    const site = new Site({ backlog: 5 });
    site.work(3);
    site.look();
    for (let looks = 0; looks < 20; looks++) {
      site.now += 10 * SECOND;
      recordTrouble(site.allocator.state, RULES, site.now, new BatchError("unreachable", "Socket timed out"));
      site.look({ seen: false });
    }
    expect([site.asked, site.live.length]).toEqual([3, 3]);
    recordAnswering(site.allocator.state, site.now);
    site.look();
    expect([site.asked, site.live.length, site.allocator.state.failures]).toEqual([3, 3, 0]);
  });

  it.each([HOUR, -10 * HOUR])("a clock that is set by %i ms cancels no healthy start, and delays no cancel", (ms) => {
    const site = new Site();
    site.work(1);
    site.look();
    site.run(1);
    site.pass(MINUTE);
    site.now += ms;
    site.pass(3 * MINUTE);
    expect(site.cancelled).toEqual([]);
    site.pass(2 * MINUTE);
    expect(site.cancelled).toEqual(["1001"]);
  });

  it.each([HOUR, -10 * HOUR])(
    "a clock that is set by %i ms changes nothing about a request without an answer",
    (ms) => {
      const site = new Site();
      site.work(1);
      site.answer = refuse("lost", "sbatch did not answer within 20 s");
      site.look();
      site.now += ms;
      site.pass(30 * SECOND);
      expect([site.asked, site.live.length]).toEqual([1, 1]);
      site.pass(MINUTE);
      expect(site.log).toContain("failed: its request was lost: it is not in the queue");
    },
  );

  it("a clock that is set back makes nothing wait longer than the longest wait", () => {
    const site = new Site();
    site.work(1);
    site.answer = refuse("refused", "Invalid account");
    site.look();
    site.now -= 1000 * HOUR;
    const before = site.asked;
    site.pass(10 * SECOND);
    expect(site.status).toBe("asks again in 1h: Invalid account");
    site.now += 1000 * HOUR;
    site.pass(20 * SECOND);
    expect(site.asked).toBe(before + 1);
  });
});

describe("an allocator that is", () => {
  it("paused by an operator asks for nothing, cancels what is queued, and leaves what runs", () => {
    const site = new Site({ backlog: 2 });
    site.work(1000);
    site.look();
    site.run(1);
    site.join(1, true);
    site.pass(10 * SECOND);
    site.allocator.state.paused = { at: site.now, by: "user" };
    site.pass(HOUR);
    expect(site.live.map(({ number }) => number)).toEqual([1]);
    expect([site.asked, site.status]).toEqual([3, "is paused"]);
  });

  it.each([
    ["queued", ["1002"], [1]],
    ["all", ["1001", "1002"], []],
  ] as const)("removed (%s) cancels its jobs and asks for nothing", (removing, cancelled, live) => {
    const site = new Site({ backlog: 2 });
    site.work(2);
    site.look();
    site.run(1);
    site.pass(10 * SECOND);
    site.allocator.state.removing = removing;
    site.pass(MINUTE);
    expect([site.cancelled.sort(), site.live.map(({ number }) => number)]).toEqual([cancelled, live]);
  });

  it("busy for long keeps a bounded past", () => {
    const site = new Site({ backlog: 10 });
    site.work(1000);
    site.pass(10 * MINUTE, () => {
      for (const { number, state } of site.live) {
        if (state === "running") site.end(number, "COMPLETED");
        else site.run(number);
        if (state !== "running") site.join(number, true);
      }
    });
    expect(site.asked).toBeGreaterThan(200);
    expect(site.allocator.state.log.length).toBeLessThanOrEqual(100);
    expect(site.allocator.state.allocations.length).toBeLessThanOrEqual(31);
  });
});
