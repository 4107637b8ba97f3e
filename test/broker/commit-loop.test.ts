import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { LaboroError } from "../../src/base/errors.js";
import { CommitLoop } from "../../src/broker/commit-loop.js";
import { Decisions } from "../../src/dispatch/index.js";
import type { Store, TaskRange } from "../../src/model/store.js";
import { openSqliteStore } from "../../src/store/sqlite/index.js";
import { Broker, result } from "../store/suite/kit.js";

const open: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

/** What the store answers to each commit instead of making it. */
interface Disk {
  fails?: Promise<never>;
}

interface Scene {
  readonly loop: CommitLoop;
  readonly taskRange: TaskRange;
  /** How many writes each commit had. */
  readonly commits: number[];
  settle(index: number): void;
  recorded(): Promise<number>;
}

/** Ten tasks that a worker has. */
async function scene(urgent: boolean, disk: Disk = {}): Promise<Scene> {
  const dir = mkdtempSync(join(tmpdir(), "laboro-commits-"));
  open.push(() => rmSync(dir, { recursive: true }));
  const store = openSqliteStore({ dir });
  const broker = await Broker.at(store);
  open.push(() => store.close());
  const { job, taskRange: waiting } = await broker.submitAll(10);
  const taskRange = await broker.claim(waiting, 0, 9);
  const commits: number[] = [];
  const counting: Store = Object.create(store, {
    commit: {
      value: (...args: Parameters<Store["commit"]>) => {
        commits.push(args[0].length);
        return disk.fails ?? store.commit(...args);
      },
    },
  });
  const fail = (cause: unknown): never => {
    throw cause;
  };
  const halted = disk.fails === undefined ? fail : () => {};
  const ports = { committed: () => new Set<never>(), deliver: () => {}, halted, resumed: () => {}, failed: fail };
  const loop = new CommitLoop(counting, ports);
  return {
    loop,
    taskRange,
    commits,
    settle: (index) => {
      const decisions = new Decisions();
      decisions.urgent = urgent;
      const results = [result(index)];
      decisions.writes.push({ op: "settle", job: taskRange.job, rangeId: taskRange.id, results, empty: index === 9 });
      loop.add(decisions);
    },
    recorded: async () => (await store.results(job.id, { from: 0, limit: 100 })).results.length,
  };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("decisions that are not urgent", () => {
  it("are one commit, which comes by itself", async () => {
    const { loop, settle, commits, recorded } = await scene(false);
    for (let index = 0; index < 9; index++) {
      settle(index);
      // Urgent ones would have a commit by then; no timer runs in between.
      await Promise.resolve();
    }
    expect(commits).toEqual([]);
    while (commits.length < 1) await turn();
    expect(commits).toEqual([9]);
    settle(9);
    await loop.stop();
    expect(await recorded()).toBe(10);
  });

  it("go at once with what somebody waits for, and before a stop", async () => {
    const { loop, settle, commits, recorded } = await scene(false);
    settle(0);
    settle(1);
    const answer = await loop.commit({ op: "put", bucket: "a", key: "k", value: "v", version: 0 });
    expect([answer.op, commits, await recorded()]).toEqual(["put", [3], 2]);
    settle(2);
    await loop.stop();
    expect([commits, await recorded()]).toEqual([[3, 1], 3]);
  });
});

describe("urgent decisions", () => {
  it("are committed in the turn in which they come", async () => {
    const { loop, settle, commits } = await scene(true);
    settle(0);
    await Promise.resolve();
    expect(commits).toEqual([1]);
    settle(1);
    settle(2);
    await loop.stop();
    expect(commits).toEqual([1, 2]);
  });
});

describe("while the disk is full", () => {
  it("what a caller waits for is refused at once, also what came during the commit", async () => {
    let fail: (cause: LaboroError) => void = () => {};
    const fails = new Promise<never>((_, reject) => {
      fail = reject;
    });
    const { loop, commits } = await scene(false, { fails });
    const put = (key: string) => loop.commit({ op: "put", bucket: "a", key, value: "v", version: 0 });
    const refused: unknown[] = [];
    put("one").catch((cause: LaboroError) => refused.push(cause.code));
    await turn();
    put("two").catch((cause: LaboroError) => refused.push(cause.code));
    expect(commits).toEqual([1]);
    fail(new LaboroError("LABORO_DISK_FULL", "no space"));
    await turn();
    expect(refused).toEqual(["LABORO_DISK_FULL", "LABORO_DISK_FULL"]);
    await expect(put("three")).rejects.toMatchObject({ code: "LABORO_DISK_FULL" });
  });
});
