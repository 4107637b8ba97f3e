import { describe, expect, it } from "vitest";
import { isRunning, processesWith } from "../../support/process-table.js";
import { until } from "../../support/wait.js";
import { openCliBroker } from "../support/cli.js";
import { openPlace, type Place } from "./place.js";

const jobs = async (place: Place): Promise<readonly { state: string; counters: { succeeded: number } }[]> =>
  JSON.parse((await place.laboro("status", "--all", "--json")).stdout).jobs;

describe("laboro run, whose output nobody reads any more", () => {
  it("ends as from SIGPIPE, holds its job and stops what runs; the same command goes on with it", async () => {
    const place = openPlace();
    const line = "laboro run -j 2 --array 1-100000 'echo {}; echo {} >>ran' | head -n 2 >/dev/null";
    const { code, stderr } = await place.shell(line).said;
    expect(code).toBe(141);
    expect(stderr).toMatch(
      /^laboro: the output can no longer be written: job 1 is held; the same command resumes it\n$/,
    );
    const [job] = await jobs(place);
    expect(job).toMatchObject({ state: "held", counters: { running: 0, failed: 0, cancelled: 0 } });
    const before = place.lines("ran").length;
    expect(before).toBeLessThan(50_000);
    expect((await place.shell(line).said).stderr).toMatch(/^resuming job 1: \d+ of 100000 tasks are done\n/);
    // Only the two tasks that were stopped while they ran may run again.
    const ran = place.lines("ran");
    expect(ran.length - new Set(ran).size).toBeLessThanOrEqual(2);
  });

  it("leaves no slot taken by a task that writes for ever", async () => {
    const place = openPlace();
    const line = "laboro run -- sh -c 'echo $$ >>pids; exec yes' | head -n 2 | wc -l";
    for (const _ of [1, 2]) expect(await place.shell(line).said).toMatchObject({ code: 141, stdout: "2\n" });
    expect(place.lines("pids")).toHaveLength(2);
    expect(place.lines("pids").filter((pid) => isRunning(Number(pid)))).toEqual([]);
    expect((await place.run("echo", "next")).stdout).toBe("next\n");
    expect((await jobs(place)).map(({ state }) => state).sort()).toEqual(["held", "succeeded"]);
  });

  it("stops its tasks at the workers of a broker, too, and gives the slots back", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 2 });
    const said = await setup.laboro(["run", "--", "yes"], { pipe: "head -n 1" });
    expect(said).toMatchObject({ code: 141, stdout: "y\n" });
    expect((await setup.client.job(1).info()).state).toBe("held");
    expect((await setup.client.ask("running", { job: 1 })).tasks).toEqual([]);
    expect((await setup.laboro(["run", "echo", "next"])).stdout).toBe("next\n");
  });

  it("says why it cannot write, and exits 1", async () => {
    const place = openPlace();
    const { code, stderr } = await place.shell("laboro run -- yes >/dev/full").said;
    expect(code).toBe(1);
    expect(stderr).toContain("cannot write: ENOSPC");
    expect((await jobs(place))[0]?.state).toBe("held");
  });
});

describe("laboro run, ended by SIGHUP", () => {
  it("lets tasks end and holds the rest", async () => {
    const place = openPlace();
    const first = place.begin(["run", "-j", "1", "echo {} >>begun; sleep 0.5; echo {} >>done", ":::", "a", "b"]);
    await until("one runs", () => place.lines("begun").length === 1);
    first.child.kill("SIGHUP");
    expect(await first.said).toMatchObject({ code: 130 });
    expect([place.lines("begun"), place.lines("done")]).toEqual([["a"], ["a"]]);
    expect((await jobs(place))[0]).toMatchObject({ state: "held", counters: { succeeded: 1 } });
  });
});

describe("laboro run, whose terminal is closed", () => {
  it("lets tasks end and holds the rest", async () => {
    const place = openPlace();
    const words = ["run", "-j", "1", "echo {} >>begun; sleep 1; echo {} >>done", ":::", "a", "b"];
    const terminal = place.begin(words, true);
    await until("one runs", () => place.lines("begun").length === 1);
    terminal.child.kill("SIGKILL");
    await until("it has ended", () => place.lines("done").length === 1);
    await until("it and its shells are gone", () => processesWith(`HOME=${place.dir}`).length === 0);
    expect((await jobs(place))[0]).toMatchObject({ state: "held", counters: { succeeded: 1 } });
    expect(place.lines("begun")).toHaveLength(1);
  });
});

describe("what a run left open", () => {
  it("does not go on as part of another run, but with its own command", async () => {
    const place = openPlace();
    const words = ["run", "-j", "1", "echo {} >>ran; sleep 0.3", ":::", "a", "b", "c"];
    const killed = place.begin(words);
    await until("it runs", () => place.lines("ran").length > 0);
    killed.child.kill("SIGKILL");
    await killed.said;
    const before = place.lines("ran");
    const other = await place.run("-j", "4", "sleep", "1");
    expect(other.code).toBe(0);
    expect(other.stderr).toContain("laboro: job 1 (echo {} >>ran; sleep 0.3) is unfinished and stays held");
    expect(place.lines("ran")).toEqual(before);
    expect((await place.laboro(...words)).stderr).toMatch(/^resuming job 1/);
    expect(new Set(place.lines("ran"))).toEqual(new Set(["a", "b", "c"]));
  });

  it("by a run that was killed, does not stop the runs that shared its broker", async () => {
    const place = openPlace();
    const owner = place.begin(["run", "-j", "2", "echo {} >>owner; sleep 60", ":::", "x"]);
    await until("the first runs", () => place.lines("owner").length > 0);
    const joined = ["c", "d"].map((name) =>
      place.begin(["run", "-j", "1", `sleep 0.2; echo {} >>${name}`, ":::", "1", "2", "3", "4"]),
    );
    await until("the others run", () => place.lines("c").length > 0 && place.lines("d").length > 0);
    owner.child.kill("SIGKILL");
    const said = await Promise.all(joined.map((run) => run.said));
    expect(said.map(({ code }) => code)).toEqual([0, 0]);
    expect([new Set(place.lines("c")).size, new Set(place.lines("d")).size]).toEqual([4, 4]);
    expect(place.lines("owner")).toEqual(["x"]);
    expect((await jobs(place)).map(({ state }) => state).sort()).toEqual(["held", "succeeded", "succeeded"]);
  });

  it.each([
    [3, []],
    [3, ["--tag-output"]],
    [3, ["--keep-order"]],
    [1, []],
  ] as const)(
    "by a run that was killed, lets another of %d tasks go on printing where it stood %j",
    async (count, options) => {
      const entries = Array.from({ length: count }, (_, i) => i + 1);
      const place = openPlace();
      const owner = place.begin(["run", "-j", "2", "echo {} >>owner; sleep 60", ":::", "x"]);
      await until("the first runs", () => place.lines("owner").length > 0);
      const line = "seq {}000001 {}300000";
      const other = place.begin(["run", "-j", "1", ...options, line, ":::", ...entries.map(String)]);
      other.child.stdout?.pause();
      const isOver = async (): Promise<boolean> => (await jobs(place)).some(({ state }) => state === "succeeded");
      await until("its tasks have ended", isOver);
      owner.child.kill("SIGKILL");
      await owner.said;
      other.child.stdout?.resume();
      const { code, stdout, stderr } = await other.said;
      expect([code, stderr]).toEqual([0, expect.stringContaining(`: ${count} succeeded`)]);
      const tag = options.some((option) => option === "--tag-output");
      const wanted = entries.flatMap((entry) =>
        Array.from({ length: 300_000 }, (_, i) => `${tag ? `${entry}\t` : ""}${entry * 1_000_000 + i + 1}`),
      );
      expect(stdout === `${wanted.join("\n")}\n`).toBe(true);
    },
  );
});

describe("a task that failed", () => {
  it("is named with its number, its entry and what ended it", async () => {
    const place = openPlace();
    const { stderr } = await place.run("-j", "1", "kill -{} $$; exit 3", ":::", "0", "KILL");
    expect(stderr).toContain("task 1 (0): exit code 3\ntask 2 (KILL): killed by signal 9 (SIGKILL)\n");
    expect((await place.run("--array", "7-8", "exit {}")).stderr).toContain(
      "task 7: exit code 7\ntask 8: exit code 8\n",
    );
  });
});
