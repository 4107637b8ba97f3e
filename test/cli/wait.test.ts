import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startBroker } from "../../src/server.js";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { openCliBroker, sh, steady } from "./support/cli.js";

describe("laboro wait", () => {
  it("exits 0 when all have succeeded", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await setup.client.submit({ recipe: sh("sleep 0.2"), count: 3 });
    await setup.client.submit({ recipe: TRUE });
    const { code, stdout, stderr } = await setup.laboro(["wait", "1-2"]);
    expect([code, stderr]).toEqual([0, ""]);
    expect(steady(stdout)).toMatchInlineSnapshot(`
      "job 1 succeeded: 3 succeeded, in TIME
      job 2 succeeded: 1 succeeded, in TIME"
    `);
  });

  it("says on a terminal why nothing runs", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE, count: 2 });
    let shown = (): string => "";
    const waiting = setup.laboro(["wait", "last"], {
      columns: 100,
      started: (_, stdout) => {
        shown = stdout;
      },
    });
    await until("the reason is there", () => shown().includes("nothing runs yet: no worker is connected"));
    setup.worker();
    expect((await waiting).code).toBe(0);
    expect(shown().match(/nothing runs yet/g)).toHaveLength(1);
  });

  it("shows its progress on a terminal, with rate and remaining time, and removes it at the end", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 1 });
    const open = (task: number): void => writeFileSync(join(setup.dir, `open${task}`), "");
    const waits = sh("until [ -e open$LABORO_TASK ]; do sleep 0.02; done");
    await setup.client.submit({ recipe: { ...waits, dir: setup.dir }, count: 3 });
    open(1);
    await until("one has ended", async () => (await setup.client.job(1).info()).counters.succeeded === 1);
    let shown = (): string => "";
    const waiting = setup.laboro(["wait", "last"], {
      columns: 100,
      started: (_, stdout) => {
        shown = stdout;
      },
    });
    await until("it counts from the start of the first", () => /░ 1\/3 {2}\d+(\.\d)?\/s {2}\d.* left/.test(shown()));
    open(2);
    open(3);
    const { code, stdout } = await waiting;
    expect(code).toBe(0);
    expect(stdout.split("\r").at(-1)).toContain("[Kjob 1 succeeded: 3 succeeded");
  });

  it("leaves no bar on a terminal below the result of a job that has ended", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const job = await setup.client.submit({ recipe: TRUE });
    await job.wait();
    const { code, stdout } = await setup.laboro(["wait", "last"], { columns: 100 });
    expect([code, stdout.split("job 1 succeeded")[1]]).toEqual([0, expect.not.stringMatching(/[█#]/)]);
  });

  it("exits 1 when some have failed, and says which, up to ten", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1", slots: 1 });
    await setup.client.submit({ recipe: sh("test $LABORO_TASK -gt 12 || exit 4"), count: 14 });
    const { code, stdout } = await setup.laboro(["wait", "last"]);
    expect(code).toBe(1);
    expect(steady(stdout)).toMatchInlineSnapshot(`
      "1.1 failed: exit code 4, after TIME on w1
      1.2 failed: exit code 4, after TIME on w1
      1.3 failed: exit code 4, after TIME on w1
      1.4 failed: exit code 4, after TIME on w1
      1.5 failed: exit code 4, after TIME on w1
      1.6 failed: exit code 4, after TIME on w1
      1.7 failed: exit code 4, after TIME on w1
      1.8 failed: exit code 4, after TIME on w1
      1.9 failed: exit code 4, after TIME on w1
      1.10 failed: exit code 4, after TIME on w1
      and 2 more tasks failed
      job 1 failed: 2 succeeded, 12 failed, in TIME"
    `);
    const json = await setup.laboro(["wait", "last", "--json"]);
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout)).toMatchObject({ jobs: [{ id: 1, state: "failed" }] });
  });

  it("exits 1 when a job was cancelled, with the reason", async () => {
    const setup = await openCliBroker();
    const job = await setup.client.submit({ recipe: TRUE, count: 3 });
    await job.cancel(undefined, "not needed");
    const { code, stdout } = await setup.laboro(["wait", "1"]);
    expect(code).toBe(1);
    expect(steady(stdout)).toMatchInlineSnapshot(`"job 1 cancelled: 3 cancelled, in TIME (not needed)"`);
  });

  it("for all waits for none where none is open", async () => {
    const setup = await openCliBroker();
    const said = await setup.laboro(["wait", "all"]);
    expect(said).toEqual({ code: 0, stdout: "", stderr: "laboro: nothing to wait for: all jobs have ended\n" });
  });

  it("gives up at its timeout", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE });
    expect(await setup.laboro(["wait", "last", "--timeout", "300ms"])).toMatchInlineSnapshot(`
      {
        "code": 1,
        "stderr": "laboro: job 1 has not ended within 300ms; laboro status 1 shows its progress (LABORO_DEADLINE)
      ",
        "stdout": "",
      }
    `);
  });

  it("goes on over a restart of the broker", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE });
    const port = Number(new URL(setup.broker.url).port);
    const waited = setup.laboro(["wait", "last"]);
    await until("it waits", () => setup.broker.core.jobs.endWatchers.size > 0);
    await setup.broker.stop();
    const again = await startBroker({ dir: setup.data, port });
    try {
      setup.worker();
      const { code, stdout } = await waited;
      expect([code, steady(stdout)]).toEqual([0, "job 1 succeeded: 1 succeeded, in TIME"]);
    } finally {
      await again.stop();
    }
  });

  it("is interrupted with exit code 130", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE });
    const watched = setup.broker.core.jobs.endWatchers;
    const { code } = await setup.laboro(["wait", "last"], {
      started: (child) => void until("it waits", () => watched.size > 0).then(() => child.kill("SIGINT")),
    });
    expect(code).toBe(130);
  });
});
