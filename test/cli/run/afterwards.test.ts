import { writeFileSync } from "node:fs";
import { DatabaseSync } from "@photostructure/sqlite";
import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { openPlace } from "./place.js";

describe("after a run, in the same directory", () => {
  it("status, logs and explain look at what it left", async () => {
    const { run, laboro } = openPlace();
    await run("echo out {}; exit {}", ":::", "0", "1");
    const status = await laboro("status", "--all");
    expect(status).toMatchObject({ code: 0 });
    expect(status.stdout).toContain("failed");
    expect((await laboro("logs", "last.1")).stdout).toBe("out 0\n");
    expect((await laboro("explain", "last.2")).stdout).toContain("exit code 1");
    expect((await laboro("wait", "last")).code).toBe(1);
  });

  it("request does not wait for a worker, because there is no broker that one could join", async () => {
    const { run, laboro } = openPlace();
    await run("true");
    const { code, stderr } = await laboro("request", "shout", "hello", "--timeout", "1h");
    expect([code, stderr]).toEqual([3, expect.stringContaining("start one with laboro serve, or name one with")]);
  });

  it("run --after last, a name or any:NAME waits for what it left", async () => {
    const { run, laboro, lines } = openPlace();
    const after = (job: string, ...more: string[]) => run("--after", job, `echo after ${job} >> steps`, ...more);
    expect((await after("last")).stderr).toContain("--after last: there is no job yet (LABORO_NO_SUCH_JOB)");
    await run("--name", "bad", "false");
    await run("--name", "good", "true");
    expect((await after("last")).code).toBe(0);
    expect((await after("good")).code).toBe(0);
    expect((await after("any:bad")).code).toBe(0);
    expect((await after("bad")).stderr).toContain("0 succeeded, 1 cancelled");
    expect(lines("steps")).toEqual(["after last", "after good", "after any:bad"]);
    expect((await laboro("status", "last")).stdout).toMatch(/after +1\n/);
    expect((await after("nobody")).stderr).toContain("there is no job of the name nobody");
  });

  it("run --after last that was killed is resumed with other entries, and does not wait for itself", async () => {
    const place = openPlace();
    await place.run("true");
    const words = ["run", "-j1", "--after", "last", "echo {} >>ran; until test -e go; do sleep 0.02; done", ":::", "a"];
    const killed = place.begin([...words, "b"]);
    await until("it runs", () => place.lines("ran").length > 0);
    killed.child.kill("SIGKILL");
    await killed.said;
    writeFileSync(place.file("go"), "");
    expect(await place.laboro(...words, "b", "c")).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/3 succeeded/),
    });
  });

  it("rerun --failed runs the failed ones here and now", async () => {
    const { run, laboro, lines } = openPlace();
    const line = "echo {} >> ran; test {} = good || test -e mended";
    expect((await run(line, ":::", "good", "bad")).code).toBe(1);
    const again = await laboro("rerun", "last", "--failed");
    expect(again.code).toBe(1);
    expect(again.stderr).toContain("task 2 (bad): exit code 1");
    await run("touch", "mended");
    expect((await laboro("rerun", "1", "--failed")).code).toBe(0);
    expect(lines("ran")).toEqual(expect.arrayContaining(["good", "bad", "bad", "bad"]));
    expect(lines("ran")).toHaveLength(4);
  });

  it("rerun runs what a killed run has left; rerun --failed does not", async () => {
    const place = openPlace();
    const killed = place.begin([
      "run",
      "-j",
      "1",
      "echo {} >>begun; until test -e go; do sleep 0.05; done",
      ":::",
      "a",
      "b",
    ]);
    await until("it runs", () => place.lines("begun").length > 0);
    killed.child.kill("SIGKILL");
    await killed.said;
    await place.shell("touch go").said;
    expect((await place.laboro("rerun", "1", "--failed")).stdout).toBe("job 1 has no task that has failed\n");
    expect((await place.laboro("status", "--json", "1")).stdout).toMatch(/"state": ?"held"/);
    expect(await place.laboro("rerun", "1")).toMatchObject({ code: 0, stderr: expect.stringMatching(/2 succeeded/) });
    expect(new Set(place.lines("begun"))).toEqual(new Set(["a", "b"]));
  });

  it("rerun --failed of a job without failed tasks says so at once", async () => {
    const { run, laboro, lines } = openPlace();
    await run("echo {} >> ran", ":::", "good");
    expect(await laboro("rerun", "last", "--failed")).toMatchObject({
      code: 0,
      stdout: "job 1 has no task that has failed\n",
      stderr: "",
    });
    expect(lines("ran")).toEqual(["good"]);
  });

  it("what runs when too many have failed comes to its end, and the hint names all that rerun runs", async () => {
    const { run, laboro, lines } = openPlace();
    const line = "test {} != 1 || exit 1; sleep 1; echo {} >> ran";
    const words = ["-j", "2", "--max-fails", "0", line, ":::", "1", "2", "3", "4"];
    const { code, stderr } = await run(...words);
    expect(code).toBe(1);
    expect(lines("ran")).toEqual(["2"]);
    expect(stderr).toMatch(/4 tasks: 1 succeeded, 1 failed, 2 cancelled in \S+\n/);
    expect(stderr).toMatch(/\nto run the failed and cancelled tasks again: laboro rerun 1\n$/);
    expect((await laboro("rerun", "1")).stderr).toContain("4 tasks: ");
  });

  it("what ended more than 30 days ago is forgotten by the next run", async () => {
    const { run, laboro, file } = openPlace();
    for (const name of ["old", "recent"]) await run("--name", name, "true");
    const db = new DatabaseSync(file(".laboro/store.db"));
    db.exec("UPDATE job SET ended_at = ended_at - CASE id WHEN 1 THEN 31 ELSE 29 END * 86400000");
    db.close();
    await until("the old one is forgotten", async () => {
      await run("--name", "new", "true");
      const { stdout } = await laboro("status", "--all", "--json");
      const names = (JSON.parse(stdout) as { jobs: { name: string }[] }).jobs.map(({ name }) => name);
      expect(names).toContain("recent");
      return !names.includes("old");
    });
  });

  it("without one, and without a broker, says what to do and exits 3", async () => {
    const { laboro } = openPlace();
    const { code, stderr } = await laboro("status");
    expect(code).toBe(3);
    expect(stderr).toContain("LABORO_BROKER_UNREACHABLE");
  });
});
