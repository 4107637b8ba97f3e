import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { apiOf, codeOf, openTestBroker, post } from "./kit.js";

interface Jobs {
  readonly jobs: readonly { readonly id: number; readonly name: string; readonly state: string }[];
  readonly next?: number;
}

describe("the list of jobs", () => {
  it("is paged by cursor, newest first, each job once, whatever is added meanwhile", async () => {
    const { broker, client } = await openTestBroker();
    const api = apiOf(broker);
    for (let i = 0; i < 25; i++) await client.submit({ recipe: TRUE, name: `job ${i}` });
    const seen: number[] = [];
    let next: number | undefined;
    do {
      const page = (await api(`/jobs?limit=10${next === undefined ? "" : `&before=${next}`}`)).json as Jobs;
      expect(page.jobs.length).toBeLessThanOrEqual(10);
      seen.push(...page.jobs.map(({ id }) => id));
      next = page.next;
      await client.submit({ recipe: TRUE });
    } while (next !== undefined);
    expect(seen).toEqual(Array.from({ length: 25 }, (_, i) => 25 - i));
  });

  it("is filtered by state, name, pool, batch key and time", async () => {
    const { broker, client, worker } = await openTestBroker();
    const api = apiOf(broker);
    const names = async (query: string): Promise<string[]> =>
      ((await api(`/jobs?${query}`)).json as Jobs).jobs.map(({ name }) => name);
    const recipe = TRUE;
    const good = await client.submit({ recipe, name: "good-1", batchKey: "a" });
    const bad = await client.submit({ recipe: { kind: "command", argv: ["false"] }, name: "bad-1" });
    worker();
    await Promise.all([good.wait(), bad.wait()]);
    const between = Date.now();
    await client.submit({ recipe, name: "held-1", held: true, pool: "p2" });
    const waiting = await client.submit({ recipe, name: "waiting-1", pool: "p2", batchKey: "b" });
    await client.submit({ recipe, name: "blocked-1", after: [{ job: waiting.id }] });
    const running = await client.submit({ recipe: { kind: "command", argv: ["sleep", "30"] }, name: "running-1" });
    await until("it runs", async () => (await running.explain(0)).startsWith("it runs"));

    expect(await names("")).toEqual(["running-1", "blocked-1", "waiting-1", "held-1", "bad-1", "good-1"]);
    for (const state of ["running", "blocked", "waiting", "held"])
      expect(await names(`state=${state}`)).toEqual([`${state}-1`]);
    expect(await names("state=failed")).toEqual(["bad-1"]);
    expect(await names("state=succeeded,held")).toEqual(["held-1", "good-1"]);
    expect(await names("state=succeeded&state=failed")).toEqual(["bad-1", "good-1"]);
    expect(await names("state=open")).toHaveLength(4);
    expect(await names("name=*d-1")).toEqual(["blocked-1", "held-1", "bad-1", "good-1"]);
    expect(await names("name=good-1")).toEqual(["good-1"]);
    expect(await names("pool=p2")).toEqual(["waiting-1", "held-1"]);
    expect(await names("batchKey=b")).toEqual(["waiting-1"]);
    expect(await names(`createdBefore=${between}`)).toEqual(["bad-1", "good-1"]);
    expect(await names(`createdFrom=${between}`)).toHaveLength(4);
    expect(await names("state=held&limit=1")).toEqual(["held-1"]);
    expect(codeOf(await api("/jobs?state=odd"))).toBe("LABORO_BAD_INPUT");
    await running.cancel();
  });
});

describe("the results of a job", () => {
  it("are paged and filtered by state and worker", async () => {
    const { broker, client, worker } = await openTestBroker();
    const api = apiOf(broker);
    worker({ name: "one" });
    const job = await client.submit({
      recipe: { kind: "command", argv: ["/bin/sh", "-c", "exit $((LABORO_TASK % 2 == 0))"] },
      count: 7,
    });
    await job.wait();
    type Page = { tasks: { index: number }[]; next?: number };
    const first = (await api(`/jobs/${job.id}/tasks?limit=4`)).json as Page;
    expect(first.tasks.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    const second = (await api(`/jobs/${job.id}/tasks?limit=4&from=${first.next}`)).json as Page;
    expect(second).toMatchObject({ tasks: [{ index: 4 }, { index: 5 }, { index: 6 }] });
    expect(second.next).toBeUndefined();
    const failed = (await api(`/jobs/${job.id}/tasks?state=failed&limit=2`)).json as Page;
    expect(failed.tasks.map(({ index }) => index)).toEqual([1, 3]);
    const nobody = (await api(`/jobs/${job.id}/tasks?worker=two`)).json as Page;
    expect(nobody.tasks).toEqual([]);
    expect(((await api(`/jobs/${job.id}/tasks?worker=one`)).json as Page).tasks).toHaveLength(7);
  });
});

describe("the tasks of a job", () => {
  it("are found by their entries in every state; one of them has its command, and the jobs around it are named", async () => {
    const { broker, client, worker } = await openTestBroker();
    const api = apiOf(broker);
    const first = await client.submit({ recipe: TRUE, held: true });
    const line = "case {} in a.csv) exit 0;; b.csv) exit 3;; *) sleep 600;; esac";
    const recipe = { kind: "command" as const, argv: [line], shell: true, placeholders: true };
    const entries = ["a.csv", "b.csv", "c.csv", "d.csv", "e e.csv", "f.txt"];
    const job = await client.submit({ recipe, entries, after: [{ job: first.id }] });
    const last = await client.submit({ recipe: TRUE, after: [{ job: job.id }] });
    expect([await first.info(), await job.info(), await last.info()]).toMatchObject([
      { dependents: [job.id] },
      { waitsFor: [first.id], dependents: [last.id] },
      { waitsFor: [job.id] },
    ]);
    expect(await client.ask("waiting", { job: job.id, limit: 1 })).toEqual({
      tasks: [{ index: 0, number: 1 }],
      next: 1,
      reason: `its job waits for job ${first.id}`,
    });
    worker({ slots: 1 });
    await first.release();
    await until("the third runs", async () => (await client.ask("running", { job: job.id })).tasks[0]?.index === 2);
    await client.ask("cancel", { job: job.id, tasks: [{ first: 3, last: 3 }] });
    type Page = { tasks: { number: number; entry: string; state?: string }[]; next?: number; reason?: string };
    const found = async (query: string): Promise<string[]> =>
      ((await api(`/jobs/${job.id}/${query}`)).json as Page).tasks.map(({ number, entry }) => `${number} ${entry}`);
    expect(await found("tasks?entry=*.csv")).toEqual(["1 a.csv", "2 b.csv"]);
    expect(await found("tasks?entry=*b*&state=failed")).toEqual(["2 b.csv"]);
    expect(await found("tasks?entry=?")).toEqual([]);
    expect(await found("running?entry=c*")).toEqual(["3 c.csv"]);
    expect(await found("waiting?entry=*")).toEqual(["5 e e.csv", "6 f.txt"]);
    expect(await found("waiting?entry=*.csv")).toEqual(["5 e e.csv"]);
    const { reason } = (await api(`/jobs/${job.id}/waiting`)).json as Page;
    expect(reason).toMatch(/^(it is prefetched by|1 worker can take it, and is busy)/);
    const { command } = (await api(`/jobs/${job.id}/tasks/4`)).json as { command: string };
    expect(command).toBe("case 'e e.csv' in a.csv) exit 0;; b.csv) exit 3;; *) sleep 600;; esac");
    const { durations, firstStart, tasks } = await client.ask("usage", { job: job.id });
    expect(durations.reduce((sum, step) => sum + step.tasks, 0)).toBe(tasks);
    expect(Date.now() - firstStart).toBeLessThan(60_000);
    const array = await client.submit({
      recipe: { ...recipe, argv: ["echo {}"], array: [{ first: 7, last: 12, step: 1 }] },
    });
    const wanted = await client.ask("waiting", { job: array.id, entry: "1?" });
    expect(wanted.tasks.map(({ number }) => number)).toEqual([10, 11, 12]);
    expect((await client.ask("task", { job: array.id, index: 1 })).command).toBe("echo 8");
    await Promise.all([job.cancel(), array.cancel()]);
  });

  it("that wait are found behind many that have ended or were cancelled, a page at a time", async () => {
    const { client, worker } = await openTestBroker();
    const job = await client.submit({ recipe: TRUE, count: 10_000_000, held: true });
    await client.ask("cancel", { job: job.id, tasks: [{ first: 2, last: 9_999_996 }] });
    expect((await client.ask("waiting", { job: job.id, limit: 3 })).next).toBe(9_999_998);
    const { tasks, next } = await client.ask("waiting", { job: job.id, from: 2 });
    expect([tasks.map(({ index }) => index), next]).toEqual([[9_999_997, 9_999_998, 9_999_999], undefined]);
    await job.cancel();
    expect(await client.ask("waiting", { job: job.id })).toEqual({ tasks: [] });
    worker();
  });
});

describe("entries", () => {
  it("come page by page, as they are", async () => {
    const { broker, client } = await openTestBroker();
    const api = apiOf(broker);
    const entries = ["a", "", "ö", Uint8Array.of(0xff, 0x00 + 1), "e"];
    const job = await client.submit({ recipe: TRUE, entries });
    expect((await api(`/jobs/${job.id}/entries?limit=3`)).json).toEqual({ entries: ["a", "", "ö"], next: 3 });
    expect((await api(`/jobs/${job.id}/entries?from=3`)).json).toEqual({ entries: [{ base64: "/wE=" }, "e"] });
    expect((await api(`/jobs/${job.id}/entries?from=9`)).json).toEqual({ entries: [] });
    const { json } = await api("/jobs", post({ recipe: TRUE, entries: [{ base64: "/wE=" }] }));
    const again = (await api(`/jobs/${(json as { job: number }).job}/entries`)).json;
    expect(again).toEqual({ entries: [{ base64: "/wE=" }] });
  });
});

describe("clean", () => {
  it("forgets ended jobs by age, state and number, and leaves the others", async () => {
    const { broker, client, worker } = await openTestBroker();
    const api = apiOf(broker);
    worker();
    const good = await client.submit({ recipe: TRUE });
    const bad = await client.submit({ recipe: { kind: "command", argv: ["false"] } });
    const newer = await client.submit({ recipe: TRUE });
    const open = await client.submit({ recipe: TRUE, held: true });
    await Promise.all([good, bad, newer].map((job) => job.wait()));
    expect((await api("/clean", post({ olderThanMs: 60_000 }))).json).toEqual({ removed: 0, jobs: [] });
    expect((await api("/clean", post({ states: ["failed"] }))).json).toEqual({ removed: 1, jobs: [bad.id] });
    expect((await api("/clean", post({ keep: 1 }))).json).toEqual({ removed: 1, jobs: [good.id] });
    expect((await api("/clean", post())).json).toEqual({ removed: 1, jobs: [newer.id] });
    expect((await client.jobs()).jobs.map(({ id }) => id)).toEqual([open.id]);
    expect(codeOf(await api(`/jobs/${good.id}`))).toBe("LABORO_NO_SUCH_JOB");
  });
});
