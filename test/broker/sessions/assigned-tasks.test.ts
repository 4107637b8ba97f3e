/** The tasks of one worker between a real broker and a session that does what the test says. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { MAX_TIMER_MS } from "../../../src/base/clock.js";
import type { Core } from "../../../src/broker/core.js";
import type { WorkerPort } from "../../../src/broker/core-view.js";
import { type AssignedTask, AssignedTasks } from "../../../src/broker/sessions/assigned-tasks.js";
import { JobId, SessionId, WorkerId } from "../../../src/model/ids.js";
import type { Job } from "../../../src/model/job.js";
import type { Submission } from "../../../src/model/job-input.js";
import { atEnd } from "../../support/at-end.js";
import { TRUE } from "../../support/recipes.js";
import { openTestBroker } from "../../support/test-broker.js";
import { until } from "../../support/wait.js";

const ID = WorkerId("anna");
const DAY_MS = 86_400_000;

/** The index of a task that the worker cannot run. */
const UNFIT = 77;

type Task = AssignedTask<object>;

class Tasks extends AssignedTasks<object> {
  readonly endedTasks: string[] = [];
  readonly size: number;

  constructor(core: Core, port: WorkerPort, size: number) {
    super(core, port);
    this.size = size;
  }

  async begin(...tasks: readonly "claimed"[]): Promise<void> {
    const profile = { id: ID, session: SessionId("s"), name: "anna", protocol: "test", pool: "default", tags: [] };
    const more = { resumable: true, canPrefetch: false };
    await (tasks.length > 0 ? this.join({ ...profile, ...more }) : this.joinNew({ ...profile, ...more }));
    this.publishSlots();
  }

  addUnknown(name: string): Task {
    return this.addForeign({ name }, JobId(1));
  }

  names(state: Task["state"]): string[] {
    return this.all().flatMap((task) => (task.state === state ? [task.name] : []));
  }

  setMissing(task: Task): void {
    this.setState(task, "missing");
  }

  next(): Task {
    const task = this.nextUnsent();
    if (task === undefined) throw new Error("nothing is to be sent");
    return task;
  }

  done(task: Task): void {
    const { job, index, attempt } = task;
    this.remove(task);
    this.core.workerDone(ID, [{ job, index, attempt, code: 0, started: 1, ended: 2, outputBytes: 0 }], () => {});
    this.publishSlots();
  }

  protected describe({ id }: Job, index: number): { readonly name: string } | undefined {
    return index === UNFIT ? undefined : { name: `${id}.${index}` };
  }
  protected slots(): number {
    return this.size - this.count("foreign");
  }
  protected pending(): void {}
  protected override ended({ name }: Task): void {
    this.endedTasks.push(name);
  }
}

function sessionAt(core: Core, size = 2): Tasks {
  const port: WorkerPort = {
    assign: (job, range, entries) => tasks.assign(job, range, entries),
    retract: (ranges) => tasks.retract(ranges),
    cancel: (ranges) => tasks.cancel(ranges),
    call: () => {},
    cancelCall: () => {},
    drain: () => tasks.drain(),
    stop: () => {},
    close: () => tasks.disconnected(false),
  };
  const tasks: Tasks = new Tasks(core, port, size);
  atEnd(() => tasks.disconnected());
  return tasks;
}

/** A worker with two slots, and a job of three tasks: two of them are assigned. */
async function openTasks(more: Partial<Submission> = {}) {
  const setup = await openTestBroker();
  const { core } = setup.broker;
  const tasks = sessionAt(core);
  await tasks.begin();
  const id = JobId((await setup.client.submit({ recipe: TRUE, count: 3, ...more })).id);
  await until("two are assigned", () => tasks.count("unsent") === 2);
  const [a, b, c] = [0, 1, 2].map((index) => `${id}.${index}`);
  const waiting = async () => (await setup.client.ask("job", { job: id })).counters.waiting;
  return { ...setup, core, tasks, id, a, b, c, waiting };
}

afterEach(() => {
  vi.useRealTimers();
});

describe("the tasks of a worker", () => {
  it("are unsent, sent, running, and gone with their end; a slot is taken from when one is sent", async () => {
    const { core, tasks, a, b, c, id } = await openTasks();
    expect([tasks.names("unsent"), tasks.usedSlots]).toEqual([[a, b], 0]);
    const first = tasks.next();
    expect([first.name, first.state, tasks.names("unsent"), tasks.usedSlots]).toEqual([a, "sent", [b], 1]);
    expect(core.claimOf(ID, id, 0)?.startedAt).toBeUndefined();
    tasks.started(first);
    expect([first.state, tasks.usedSlots]).toEqual(["running", 1]);
    expect(core.claimOf(ID, id, 0)?.startedAt).toBeDefined();
    tasks.done(first);
    await until("the next is assigned", () => tasks.names("unsent").length === 2);
    expect([tasks.names("unsent"), tasks.has(first), tasks.usedSlots]).toEqual([[b, c], false, 0]);
  });

  it("go back where they arrive after the worker was told to leave, or where it cannot run them", async () => {
    const { core, tasks, id } = await openTasks({ count: 80 });
    const job = core.job(id) as Job;
    tasks.markLeaving();
    tasks.assign(job, { job: id, first: 2, last: 2, attempt: 1 });
    tasks.assign(job, { job: id, first: UNFIT, last: UNFIT, attempt: 1 });
    expect(tasks.all()).toEqual([]);
    expect(core.claimsOf(ID)).toEqual([]);
  });

  it("go back while they are unsent: by range and attempt, and at a drain", async () => {
    const { core, tasks, id, a, b, waiting } = await openTasks();
    tasks.started(tasks.next());
    tasks.retract([{ job: id, first: 0, last: 1, attempt: 2 }]);
    expect(tasks.names("unsent")).toEqual([b]);
    core.workerDrains(ID);
    tasks.drain();
    await until("they wait again", async () => (await waiting()) === 2);
    expect([tasks.names("running"), tasks.names("unsent"), core.claimOf(ID, id, 1)]).toEqual([[a], [], undefined]);
  });

  it("are cancelled by range and attempt: unsent ones are gone, the worker is to end the others", async () => {
    const { client, tasks, id, a } = await openTasks();
    tasks.started(tasks.next());
    tasks.cancel([{ job: id, first: 0, last: 0, attempt: 2 }]);
    expect(tasks.takeCancels()).toEqual([]);
    await client.job(id).cancel();
    await until("the other is gone", () => tasks.count("unsent") === 0);
    expect(tasks.takeCancels().map(({ name }) => name)).toEqual([a]);
    expect(tasks.takeCancels()).toEqual([]);
  });
});

describe("a task whose end is not reported", () => {
  it("returns to the queue when it is settled, at no cost, and comes with the next attempt", async () => {
    const { core, tasks, id, a } = await openTasks({ count: 2 });
    const first = tasks.next();
    tasks.started(first);
    tasks.setMissing(first);
    expect(tasks.usedSlots).toBe(0);
    tasks.settle(first);
    await until("it is assigned again", () => tasks.get(a ?? "")?.state === "unsent");
    expect([tasks.get(a ?? "")?.attempt, tasks.endedTasks]).toEqual([2, []]);
    expect(core.claimOf(ID, id, 0)?.attempt).toBe(2);
    // What is no longer there is settled without effect.
    tasks.settle(first);
    expect(tasks.has(tasks.get(a ?? "") as Task)).toBe(true);
  });

  it("has ended where the worker was to stop it", async () => {
    const { tasks, a } = await openTasks();
    const first = tasks.next();
    tasks.settle(first, true);
    expect([tasks.endedTasks, tasks.has(first)]).toEqual([[a], false]);
  });

  it("is settled after a time, unless its report comes before", async () => {
    const { tasks } = await openTasks();
    const [first, second] = [tasks.next(), tasks.next()];
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    for (const task of [first, second]) tasks.settleAfter(task, 60_000);
    vi.advanceTimersByTime(59_999);
    tasks.done(second);
    expect(tasks.has(first)).toBe(true);
    vi.advanceTimersByTime(1);
    expect([tasks.has(first), tasks.endedTasks]).toEqual([false, []]);
  });
});

describe("a task that the broker does not know at the worker", () => {
  it("takes a slot and is to be ended, and is forgotten when that is settled", async () => {
    const { core, tasks } = await openTasks();
    const foreign = tasks.addUnknown("other");
    expect([tasks.usedSlots, tasks.claimedCount, tasks.takeCancels()]).toEqual([1, 2, [foreign]]);
    tasks.started(foreign);
    expect(tasks.takeCancels()).toEqual([foreign]);
    tasks.settle(foreign);
    expect([tasks.usedSlots, tasks.endedTasks, core.claimsOf(ID).length]).toEqual([0, [], 1]);
  });

  it("is reclaimed where it went back to the queue, and not where it has ended", async () => {
    const { core, tasks, id, a } = await openTasks();
    const [first, second] = [tasks.next(), tasks.next()];
    tasks.started(first);
    tasks.done(second);
    core.workerDrains(ID);
    tasks.giveBack([first]);
    expect(core.claimOf(ID, id, 0)).toBeUndefined();
    expect(tasks.reclaim(id, 0)).toMatchObject({ name: a, state: "running", attempt: 2 });
    expect(core.claimOf(ID, id, 0)?.attempt).toBe(2);
    expect(tasks.reclaim(id, 1)).toBeUndefined();
    expect(tasks.reclaim(JobId(99), 0)).toBeUndefined();
  });
});

describe("a worker that comes back", () => {
  it("has the tasks that the broker has claimed for it, as running, and those it does not have wait again", async () => {
    const { core, tasks, a, b, waiting } = await openTasks();
    tasks.started(tasks.next());
    tasks.next();
    const since = tasks.get(a ?? "")?.since;
    const later = sessionAt(core);
    // The older connection is closed first: both would change the same tasks.
    await later.begin("claimed");
    expect([later.names("running"), tasks.all()]).toEqual([[a, b], []]);
    expect(Math.abs((later.get(a ?? "")?.since ?? 0) - (since ?? 0))).toBeLessThan(1_000);
    expect(await waiting()).toBe(1);
  });

  it("left in order when nothing was claimed for it: then nobody waits for its return", async () => {
    const { core, tasks } = await openTasks();
    tasks.markLeaving();
    tasks.disconnected();
    expect(core.worker(ID)).toBeUndefined();
  });

  it("is waited for where it has left with a task", async () => {
    const { core, tasks } = await openTasks();
    tasks.next();
    tasks.markLeaving();
    tasks.disconnected();
    expect(core.worker(ID)).toMatchObject({ connected: false, assigned: 1 });
  });
});

describe("a time limit", () => {
  it("that is longer than the longest timer cancels the task when it is over, not before", async () => {
    const limitMs = 60 * DAY_MS;
    expect(limitMs).toBeGreaterThan(2 * MAX_TIMER_MS);
    const { tasks } = await openTasks({ timeLimitMs: limitMs });
    const task = tasks.next();
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    tasks.started(task);
    vi.advanceTimersByTime(limitMs - 1_000);
    expect([task.timedOut, tasks.takeCancels()]).toEqual([false, []]);
    vi.advanceTimersByTime(1_000);
    expect([task.timedOut, tasks.takeCancels()]).toEqual([true, [task]]);
    // Its end is the broker's doing: it has ended, and does not return to the queue.
    tasks.settle(task);
    expect(tasks.endedTasks).toEqual([task.name]);
  });

  it("goes with the task", async () => {
    const { tasks } = await openTasks({ timeLimitMs: 1_000 });
    const task = tasks.next();
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    tasks.started(task);
    tasks.done(task);
    vi.advanceTimersByTime(2_000);
    expect([task.timedOut, tasks.takeCancels()]).toEqual([false, []]);
  });
});
