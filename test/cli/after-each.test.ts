import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro submit --after each:JOB", () => {
  it("starts task i when task i of the other job has succeeded, and cancels it when that has failed", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 4 });
    const wait = "while ! test -e go.{}; do sleep 0.02; done; test {} != b";
    await setup.laboro(["submit", "--dir", setup.dir, "--name", "first", wait, ":::", "a", "b", "c"]);
    const after = ["submit", "--dir", setup.dir, "--after", "each:first"];
    await setup.laboro([...after, "echo {} >> out", ":::", "a", "b", "c"]);
    const second = setup.client.job(2);
    expect((await setup.laboro(["explain", "2.3"])).stdout).toContain("it waits for the task in place 3 of job 1");
    writeFileSync(join(setup.dir, "go.c"), "");
    await until("the third has run", () => existsSync(join(setup.dir, "out")));
    expect((await setup.client.job(1).info()).counters.running).toBe(2);
    writeFileSync(join(setup.dir, "go.b"), "");
    await until("the second is cancelled", async () => (await second.info()).counters.cancelled === 1);
    writeFileSync(join(setup.dir, "go.a"), "");
    expect(await second.wait()).toBe("cancelled");
    expect(readFileSync(join(setup.dir, "out"), "utf8")).toBe("c\na\n");
    expect((await setup.laboro(["status", "2"])).stdout).toMatch(/after +each:1/);
    const late = await setup.laboro([...after, "echo late {} >> late", ":::", "a", "b", "c"]);
    expect(late.code).toBe(0);
    expect(await setup.client.job(3).wait()).toBe("cancelled");
    expect((await setup.client.job(3).info()).counters).toMatchObject({ succeeded: 2, cancelled: 1 });
  });

  it("is also known to job files, and needs as many tasks", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 2 });
    const file = join(setup.dir, "each.toml");
    writeFileSync(
      file,
      `[[task]]
name = "make"
command = "echo {} > made.{}"
array = "1-3"

[[task]]
name = "use"
command = "cat made.{} >> used"
array = "1-3"
after = ["each:make"]
`,
    );
    expect((await setup.laboro(["submit", "--file", file])).code).toBe(0);
    expect(await setup.client.job(2).wait()).toBe("succeeded");
    expect(readFileSync(join(setup.dir, "used"), "utf8").split("\n").sort()).toEqual(["", "1", "2", "3"]);
    const { stderr } = await setup.laboro(["submit", "--after", "each:1", "true", ":::", "a"]);
    expect(stderr).toContain("after: expected 3 tasks, as many as job 1 has, for each of job 1, got 1");
  });
});
