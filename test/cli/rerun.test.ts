import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliBroker, sh } from "./support/cli.js";

describe("laboro rerun", () => {
  it("runs again what failed, under the same number", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const recipe = { ...sh('test -e mended || test $LABORO_TASK = 1 && echo ran >> "$LABORO_TASK"'), dir: setup.dir };
    const job = await setup.client.submit({ recipe, count: 3 });
    expect(await job.wait()).toBe("failed");
    writeFileSync(join(setup.dir, "mended"), "");
    expect(await setup.laboro(["rerun", "last", "--failed"], { process: true })).toEqual({
      code: 0,
      stdout: "2 tasks of job 1 run again\n",
      stderr: "",
    });
    expect((await setup.laboro(["wait", "last"])).code).toBe(0);
    expect(existsSync(join(setup.dir, "2"))).toBe(true);
    expect((await setup.laboro(["rerun", "last"])).stdout).toBe("job 1 has no task that has failed or was cancelled\n");
    expect((await setup.laboro(["rerun", "1.1", "--all"])).stdout).toBe("1 task of job 1 runs again\n");
    expect(await job.wait()).toBe("succeeded");
  });

  it("with --with-dependents runs what was cancelled by the failure, in its order", async () => {
    const setup = await openCliBroker();
    const step = (name: string) => ({ ...sh(`test -e mended && echo ${name} >> steps`), dir: setup.dir });
    const first = await setup.client.submit({ recipe: step("a"), name: "first" });
    for (const [name, after] of [
      ["b", "first"],
      ["c", "any:2"],
      ["d", "2"],
    ] as const)
      await setup.laboro(["submit", "--after", after, "--name", name, "--dir", setup.dir, `echo ${name} >> steps`]);
    await setup.laboro(["submit", "--name", "other", "false"]);
    setup.worker();
    expect(await first.wait()).toBe("failed");
    expect(await setup.client.job(4).wait()).toBe("cancelled");
    await setup.client.job(3).wait();
    writeFileSync(join(setup.dir, "mended"), "");
    const { stdout, stderr } = await setup.laboro(["rerun", "1", "--failed", "--with-dependents"]);
    expect(stderr).toBe("");
    expect(stdout).toBe(`1 task of job 1 runs again\n1 task of job 2 runs again\n1 task of job 4 runs again\n`);
    expect(await setup.client.job(4).wait()).toBe("succeeded");
    expect(readFileSync(join(setup.dir, "steps"), "utf8")).toBe("c\na\nb\nd\n");
    const local = await setup.laboro(["rerun", "1", "--with-dependents", "--local"], { cwd: setup.dir });
    expect([local.code, local.stderr]).toEqual([
      2,
      expect.stringContaining("--with-dependents needs a running broker"),
    ]);
    expect((await setup.laboro(["submit", "--after", "nobody", "true"])).stderr).toContain(
      "--after nobody: there is no job of the name nobody (LABORO_NO_SUCH_JOB)",
    );
  });

  it("with --with-dependents runs the tasks that came each after one, and says of which jobs it cannot", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const dir = ["--dir", setup.dir];
    await setup.laboro(["submit", ...dir, "test {} = a || test -e mended", ":::", "a", "b"]);
    await setup.laboro(["submit", ...dir, "--after", "each:1", "echo {} >> used", ":::", "a", "b"]);
    await setup.laboro(["submit", ...dir, "--name", "bad", "until test -e mended; do sleep 0.02; done; exit 3"]);
    await setup.laboro(["submit", ...dir, "--after", "1", "--after", "bad", "true"]);
    expect(await setup.client.job(2).wait()).toBe("cancelled");
    expect(readFileSync(join(setup.dir, "used"), "utf8")).toBe("a\n");
    writeFileSync(join(setup.dir, "mended"), "");
    expect(await setup.client.job(3).wait()).toBe("failed");
    const { stdout } = await setup.laboro(["rerun", "1", "--with-dependents"]);
    expect(stdout).toBe(
      "1 task of job 1 runs again\n1 task of job 2 runs again\n" +
        "job 4: job 3, which this one waits for, has failed\n",
    );
    expect(await setup.client.job(2).wait()).toBe("succeeded");
    expect(readFileSync(join(setup.dir, "used"), "utf8")).toBe("a\nb\n");
  });

  it("of several jobs goes on after one that refuses, and exits 1", async () => {
    const setup = await openCliBroker();
    await (await setup.client.submit({ recipe: TRUE, key: "k" })).cancel();
    await setup.client.submit({ recipe: TRUE, key: "k" });
    await (await setup.client.submit({ recipe: TRUE })).cancel();
    const { code, stdout, stderr } = await setup.laboro(["rerun", "1,3"]);
    expect([code, stderr]).toEqual([1, expect.stringContaining("job 2 has the key of this one")]);
    expect(stdout).toBe("1 task of job 3 runs again\n");
    expect((await setup.client.job(3).info()).state).toBe("waiting");
  });
});
