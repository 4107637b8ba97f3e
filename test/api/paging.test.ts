import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { apiOf, codeOf, openShop, post } from "./kit.js";

interface Jobs {
  readonly jobs: readonly { readonly id: number; readonly name: string; readonly state: string }[];
  readonly next?: number;
}

describe("the list of jobs", () => {
  it("is paged by cursor, newest first, each job once, whatever is added meanwhile", async () => {
    const { broker, client } = await openShop();
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
    const { broker, client, worker } = await openShop();
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
    const { broker, client, worker } = await openShop();
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

describe("entries", () => {
  it("come page by page, as they are", async () => {
    const { broker, client } = await openShop();
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
    const { broker, client, worker } = await openShop();
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
