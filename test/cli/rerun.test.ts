import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
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
    expect((await setup.laboro(["submit", "--after", "nobody", "true"])).stderr).toContain(
      "--after nobody: there is no job of the name nobody (LABORO_NO_SUCH_JOB)",
    );
  });
});
