import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { openCliBroker, sh } from "./support/cli.js";

describe("laboro logs", () => {
  it("prints the output of all tasks in order, each stream to its own", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 4 });
    const job = await setup.client.submit({
      recipe: sh('echo "out $LABORO_TASK"; echo "err $LABORO_TASK" >&2'),
      count: 4,
    });
    await job.wait();
    expect(await setup.laboro(["logs", "last"])).toEqual({
      code: 0,
      stdout: "out 1\nout 2\nout 3\nout 4\n",
      stderr: "err 1\nerr 2\nerr 3\nerr 4\n",
    });
    expect(await setup.laboro(["logs", "1.1-2", "--tag", "--stream", "stdout"])).toEqual({
      code: 0,
      stdout: "1.1\tout 1\n1.2\tout 2\n",
      stderr: "",
    });
  });

  it("as JSON is a line a piece, text where it is text", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await (await setup.client.submit({ recipe: sh("printf 'a\\nb'; printf '\\377' >&2") })).wait();
    const { stdout } = await setup.laboro(["logs", "1", "--json"]);
    const lines = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { stream: string; bytes: unknown });
    expect(lines.find(({ stream }) => stream === "stdout")).toMatchObject({ task: "1.1", bytes: "a\nb" });
    expect(lines.find(({ stream }) => stream === "stderr")).toMatchObject({ task: "1.1", bytes: { base64: "/w==" } });
  });

  it("of one task is byte for byte what it wrote", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await (await setup.client.submit({ recipe: sh("printf 'a\\nb'") })).wait();
    expect((await setup.laboro(["logs", "1"])).stdout).toBe("a\nb");
  });

  it("of several tasks is byte for byte what they wrote; followed or with a tag, it is whole lines", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await (await setup.client.submit({ recipe: sh("printf $LABORO_TASK"), count: 2 })).wait();
    const stdout = async (...words: string[]): Promise<string> => (await setup.laboro(["logs", "1", ...words])).stdout;
    expect(await stdout()).toBe("12");
    expect(await stdout("--tag")).toBe("1.1\t1\n1.2\t2\n");
    expect(await stdout("-f")).toBe("1\n2\n");
  });

  it("marks what the cap left out", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await (await setup.client.submit({ recipe: sh("seq 1 100000"), outputCap: 10_000 })).wait();
    const { code, stdout, stderr } = await setup.laboro(["logs", "1.1"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^1\n2\n3\n[\d\n]*\n99999\n100000\n$/);
    expect(stderr).toMatchInlineSnapshot(`
      "laboro: [1.1: 565 KiB of output were not kept here, see --output-cap]
      "
    `);
  });

  it("shows each attempt by its number, and the last without one", async () => {
    const setup = await openCliBroker({ settings: { retryBackoffMs: 20 } });
    setup.worker();
    const line = 'echo "try $LABORO_ATTEMPT"; test $LABORO_ATTEMPT = 3';
    await (await setup.client.submit({ recipe: sh(line), retries: 2 })).wait();
    expect((await setup.laboro(["logs", "1"])).stdout).toBe("try 3\n");
    expect((await setup.laboro(["logs", "1.1", "--attempt", "2"])).stdout).toBe("try 2\n");
    expect(await setup.laboro(["logs", "1.1", "--attempt", "5"])).toMatchObject({
      code: 1,
      stdout: "",
      stderr: expect.stringContaining(
        "task 1 of job 1 has had no attempt 5: the last is attempt 3 (LABORO_NO_SUCH_TASK)",
      ),
    });
    expect((await setup.laboro(["logs", "1", "--attempt", "5"])).stderr).toContain(
      "no task of job 1 has had attempt 5",
    );
  });

  it("follows what runs until the job ends, and loses no task that came and went", async () => {
    const setup = await openCliBroker();
    const recipe = sh('echo "begin $LABORO_TASK"; sleep 0.0$LABORO_TASK; echo "end $LABORO_TASK"');
    await setup.client.submit({ recipe, count: 30 });
    const followed = setup.laboro(["logs", "-f", "last", "--tag"]);
    setup.worker({ slots: 3 });
    const { code, stdout, stderr } = await followed;
    expect([code, stderr]).toEqual([0, ""]);
    const expected = Array.from({ length: 30 }, (_, i) => [
      `1.${i + 1}\tbegin ${i + 1}`,
      `1.${i + 1}\tend ${i + 1}`,
    ]).flat();
    expect(stdout.trimEnd().split("\n").sort()).toEqual(expected.sort());
  });

  it("shows output while the task runs", async () => {
    const setup = await openCliBroker();
    setup.worker({ cancelGraceMs: 100 });
    const job = await setup.client.submit({ recipe: sh("printf 'half a line'; exec sleep 60") });
    const { stdout } = await setup.laboro(["logs", "-f", "last"], {
      started: (_, said) => void until("it comes", () => said().length > 0).then(() => job.cancel()),
    });
    expect(stdout).toBe("half a line");
  });

  it("shows lines of two tasks while both run", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 2, cancelGraceMs: 100 });
    const turn = (task: number, line: string) => `echo ${task} ${line}`;
    const line =
      `if [ $LABORO_TASK = 1 ]; then ${turn(1, "begins")}; until [ -e second ]; do sleep 0.02; done; ${turn(1, "goes on")}; ` +
      `else until [ -e first ]; do sleep 0.02; done; ${turn(2, "begins")}; fi; exec sleep 60`;
    const job = await setup.client.submit({ recipe: { ...sh(line), dir: setup.dir }, count: 2 });
    let said = (): string => "";
    const following = setup.laboro(["logs", "-f", "last", "--tag"], {
      started: (_, stdout) => {
        said = stdout;
      },
    });
    await until("the first is shown", () => said().includes("1.1\t1 begins\n"));
    writeFileSync(join(setup.dir, "first"), "");
    await until("the second is shown", () => said().includes("1.2\t2 begins\n"));
    writeFileSync(join(setup.dir, "second"), "");
    await until("the first goes on", () => said().includes("1.1\t1 goes on\n"));
    expect((await job.info()).counters.running).toBe(2);
    await job.cancel();
    expect((await following).stdout).toBe("1.1\t1 begins\n1.2\t2 begins\n1.1\t1 goes on\n");
  });

  it("follows each attempt to its end, one after the other", async () => {
    const setup = await openCliBroker({ settings: { retryBackoffMs: 20 } });
    const large = "seq 1 3000; sleep 0.2; seq 1 300000";
    const line = `echo begin $LABORO_ATTEMPT; ${large}; echo end $LABORO_ATTEMPT; test $LABORO_ATTEMPT = 3`;
    await setup.client.submit({ recipe: sh(line), retries: 2 });
    const followed = setup.laboro(["logs", "-f", "last"]);
    setup.worker();
    const { code, stdout } = await followed;
    expect([code, stdout.match(/^(begin|end).*$/gm)]).toEqual([
      0,
      ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"],
    ]);
    expect(stdout.split("\n")).toHaveLength(3 * 303_002 + 1);
  });

  it("of some tasks ends when these have ended", async () => {
    const setup = await openCliBroker();
    setup.worker({ cancelGraceMs: 100, slots: 4 });
    await setup.client.submit({
      recipe: sh('echo "task $LABORO_TASK"; test $LABORO_TASK = 1 || exec sleep 60'),
      count: 3,
    });
    const { code, stdout } = await setup.laboro(["logs", "-f", "last.1"]);
    expect([code, stdout]).toEqual([0, "task 1\n"]);
  });

  it("of a task that is not there says which there are", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE, count: 3 });
    const { code, stderr } = await setup.laboro(["logs", "1.4"]);
    expect([code, stderr]).toEqual([1, "laboro: job 1 has tasks 1 to 3, not 4 (LABORO_NO_SUCH_TASK)\n"]);
  });
});
