import { describe, expect, it } from "vitest";
import { until } from "../support/wait.js";
import { apiOf, openTestBroker } from "./kit.js";

const shell = (line: string) => ({ kind: "command", shell: true, argv: [line] }) as const;

describe("a task in the API", () => {
  it("has its index, and its number in the array", async () => {
    const { broker, worker } = await openTestBroker();
    const api = apiOf(broker);
    worker({ slots: 3, cancelGraceMs: 100 });
    const array = [{ first: 5, last: 9, step: 2 }];
    const recipe = { ...shell("case $LABORO_TASK in 5) exit 1;; 7) exit 0;; *) exec sleep 60;; esac"), array };
    expect((await api("/jobs", { method: "POST", body: { recipe, retries: 0 } })).json).toEqual({ job: 1 });
    const running = async () => (await api("/jobs/1/running")).json as { tasks: object[] };
    await until(
      "two have ended",
      async () => ((await api("/jobs/1/tasks")).json as { tasks: object[] }).tasks.length === 2,
    );
    expect((await api("/jobs/1/tasks")).json).toMatchObject({
      tasks: [
        { index: 0, number: 5, state: "failed" },
        { index: 1, number: 7, state: "succeeded" },
      ],
    });
    expect(await running()).toMatchObject({ tasks: [{ index: 2, number: 9 }] });
    expect((await api("/jobs/1/tasks/0")).json).toMatchObject({ index: 0, number: 5, result: { number: 5 } });
    expect((await api("/jobs/1")).json).toMatchObject({ count: 3, numbers: array });
    const workers = (await api("/workers/page")).json as { workers: { running: object[] }[] };
    expect(workers.workers[0]?.running).toMatchObject([{ job: 1, index: 2, number: 9 }]);
    await api("/jobs/1/cancel", { method: "POST", body: {} });
    await api("/jobs/1/wait");
    await api("/jobs/1/rerun", { method: "POST", body: { tasks: [{ first: 0 }] } });
    await until("it has failed again", async () => {
      const { earlierAttempts, state } = (await api("/jobs/1/tasks/0")).json as {
        earlierAttempts: object[];
        state: string;
      };
      return earlierAttempts.length === 1 && state === "failed";
    });
    expect((await api("/jobs/1/tasks/0")).json).toMatchObject({ earlierAttempts: [{ index: 0, number: 5 }] });
  });

  it("has its place from 1 as its number, or the number that was given", async () => {
    const { broker, client, worker } = await openTestBroker();
    const api = apiOf(broker);
    worker();
    const plain = await client.submit({ recipe: shell("echo $LABORO_TASK"), count: 2 });
    const numbers = [
      { first: 7, last: 8, step: 1 },
      { first: 12, last: 12, step: 1 },
    ];
    const recipe = { kind: "command", argv: ["printf", "%s", "{} {#}"], placeholders: true } as const;
    const given = await client.submit({ recipe, entries: ["a", "b", "c"], numbers, resumes: plain.id });
    await Promise.all([plain.wait(), given.wait()]);
    expect([await plain.text(0), await plain.text(1)]).toEqual(["1\n", "2\n"]);
    expect([await given.text(0), await given.text(2)]).toEqual(["a 7", "c 12"]);
    expect((await api(`/jobs/${plain.id}/tasks`)).json).toMatchObject({ tasks: [{ number: 1 }, { number: 2 }] });
    expect((await api(`/jobs/${plain.id}`)).json).not.toHaveProperty("numbers");
    expect((await api(`/jobs/${given.id}`)).json).toMatchObject({ numbers, resumes: plain.id });
    expect((await api(`/jobs/${given.id}/tasks/2`)).json).toMatchObject({ index: 2, number: 12 });
    expect((await api(`/jobs/${given.id}/tasks/3`)).json).toMatchObject({
      error: { code: "LABORO_NO_SUCH_TASK", message: "job 2 has tasks with index 0 to 2" },
    });
  });
});
