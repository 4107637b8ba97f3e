/** laboro limit, laboro limits, and jobs that name a limit, by the real command. */
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startBroker } from "../../src/server.js";
import { atEnd } from "../support/at-end.js";
import { until } from "../support/wait.js";
import { type CliBroker, openCliBroker } from "./support/cli.js";

const rows = async (setup: CliBroker): Promise<string[]> =>
  (await setup.laboro(["limits"])).stdout
    .trimEnd()
    .split("\n")
    .map((line) => line.trim().replaceAll(/ {2,}/g, " | "));

const running = async (setup: CliBroker): Promise<number> => {
  const { limits } = await setup.client.ask("limits", {});
  return limits[0]?.used.running ?? 0;
};

/** Tasks run until this file is there. */
const untilFile = (file: string): readonly string[] => ["--", "sh", "-c", `until test -e ${file}; do sleep 0.02; done`];

describe("laboro limit", () => {
  it("makes, changes, shows and removes limits, and says what waits for them", async () => {
    const setup = await openCliBroker();
    expect((await setup.laboro(["limits"], { process: true })).stdout).toContain("there are no limits");
    const set = ["limit", "set", "api", "--running", "2", "--rate", "100/1m"];
    expect(await setup.laboro(set, { process: true })).toEqual({
      code: 0,
      stdout: "limit api: at most 2 running, at most 100 starts in 1m\n",
      stderr: "",
    });
    setup.worker({ name: "w1", slots: 4 });
    const over = join(setup.dir, "over");
    const submit = ["submit", "--limit", "api", "--array", "1-5", ...untilFile(over)];
    expect((await setup.laboro(submit, { process: true })).stdout).toBe("1\n");
    await until("two run", async () => (await running(setup)) === 2);
    expect(await rows(setup)).toEqual(["LIMIT | RUNNING | STARTS | WAITING | JOBS", "api | 2/2 | 2/100 in 1m | 3 | 1"]);
    expect((await setup.laboro(["explain", "1.5"], { process: true })).stdout).toBe(
      "task 5 of job 1: it waits for limit api (at most 2 running, 100 starts in 1m); 2 run here\n",
    );
    expect((await setup.laboro(["status", "1"])).stdout).toMatch(/limits +limit api/);
    await setup.laboro(["limit", "set", "api", "--running", "3"]);
    await until("three run", async () => (await running(setup)) === 3);
    expect((await setup.laboro(["limit", "remove", "api"], { process: true })).stdout).toBe(
      "limit api is removed; jobs that name it continue without it\n",
    );
    expect((await setup.laboro(["limits"])).stdout).toContain("there are no limits");
    await until("four run", () => setup.broker.core.state.jobs.get(1 as never)?.assigned === 4);
    writeFileSync(over, "");
    expect((await setup.laboro(["wait", "1"])).code).toBe(0);
  });

  it("a rate holds the rest back, and says when the next may start", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "w1", slots: 4 });
    expect((await setup.laboro(["limit", "set", "api", "--rate", "2/h"])).stdout).toBe(
      "limit api: at most 2 starts in 1h\n",
    );
    await setup.laboro(["submit", "--limit", "api", "--array", "1-3", "--", "true"]);
    await until("two have ended", async () => (await setup.client.job(1).info()).counters.succeeded === 2);
    expect((await setup.laboro(["explain", "1.3"])).stdout).toMatch(
      /^task 3 of job 1: it waits for limit api \(2 starts in 1h\); the next start is in 3\d\d\d s\n$/,
    );
    expect((await rows(setup))[1]).toMatch(/^api \| 0 \| 2\/2 in 1h \| in (1h|59m\d+s) \| 1 \| 1$/);
    expect((await setup.client.job(1).info()).counters).toMatchObject({ succeeded: 2, running: 0, waiting: 1 });
    const { limits } = JSON.parse((await setup.laboro(["limits", "--json"])).stdout);
    expect(limits).toMatchObject([{ name: "api", rate: { starts: 2, intervalMs: 3_600_000 }, waiting: 1, jobs: [1] }]);
  });

  it("limits are kept through a restart of the broker, with what was started", async () => {
    const first = await openCliBroker();
    await first.laboro(["limit", "set", "api", "--rate", "1/h"]);
    first.worker({ name: "w1" });
    await first.laboro(["submit", "--limit", "api", "--array", "1-2", "--", "true"]);
    await until("one has ended", async () => (await first.client.job(1).info()).counters.succeeded === 1);
    const port = Number(new URL(first.broker.url).port);
    await first.broker.stop();
    const again = await startBroker({ dir: first.data, port });
    atEnd(() => again.stop());
    await until("the worker is back", async () => {
      const workers = await first.client.workers().catch(() => []);
      return workers.some(({ connected }) => connected);
    });
    expect((await first.laboro(["explain", "1.2"])).stdout).toContain("it waits for limit api (1 starts in 1h)");
    await first.laboro(["limit", "set", "api", "--rate", "2/h"]);
    expect((await first.laboro(["wait", "1"])).code).toBe(0);
  });

  it("several limits, of the command line and of a job file, count together", async () => {
    const setup = await openCliBroker();
    for (const name of ["api", "disk"]) await setup.laboro(["limit", "set", name, "--running", "1"]);
    const submit = ["submit", "--limit", "disk", "--limit", "api", "--limit", "api", "--", "true"];
    expect((await setup.laboro(submit)).code).toBe(0);
    expect((await setup.client.job(1).info()).limits.named).toEqual(["api", "disk"]);
    const file = join(setup.dir, "jobs.toml");
    writeFileSync(file, 'limits = ["api"]\n[[task]]\nname = "one"\ncommand = ["true"]\n');
    expect((await setup.laboro(["submit", "--file", file, "--limit", "disk"])).stdout).toBe("2\tone\n");
    expect((await setup.client.job(2).info()).limits.named).toEqual(["api", "disk"]);
    writeFileSync(file, 'limits = "api"\n[[task]]\nname = "one"\ncommand = ["true"]\n');
    expect((await setup.laboro(["submit", "--file", file])).stderr).toContain("limits: expected a list");
    setup.worker({ name: "w1" });
    const run = await setup.laboro(["run", "--limit", "api", "--", "echo", "hello"]);
    expect(run).toMatchObject({ code: 0, stdout: "hello\n" });
  });

  it("refuses what it cannot do, and changes nothing", async () => {
    const setup = await openCliBroker();
    await setup.laboro(["limit", "set", "api", "--running", "1"]);
    const refusals: readonly (readonly [readonly string[], string])[] = [
      [
        ["submit", "--limit", "apj", "--", "true"],
        "there is no limit apj; the limits are api. laboro limit set creates one (LABORO_NO_SUCH_LIMIT)",
      ],
      [
        ["run", "--limit", "apj", "--", "true"],
        "there is no limit apj; the limits are api. laboro limit set creates one (LABORO_NO_SUCH_LIMIT)",
      ],
      [
        ["limit", "remove", "apj"],
        "there is no limit apj; the limits are api. laboro limit set creates one (LABORO_NO_SUCH_LIMIT)",
      ],
      [["limit", "set", "api"], "nothing to set: give --running N, --rate N/TIME or both (LABORO_BAD_INPUT)"],
      [
        ["limit", "remove", "api", "--running", "1"],
        "--running and --rate can only be used with set (LABORO_BAD_INPUT)",
      ],
      [
        ["limit", "set", "api", "--rate", "100"],
        "--rate: expected a number and a time, such as 100/1m, got 100 (LABORO_BAD_INPUT)",
      ],
      [["limit", "set", "api", "--rate", "0/1m"], "rate.starts: expected"],
      [["limit", "set", "a,b", "--running", "1"], "name: expected letters, digits and . _ : @ -"],
      [["limit", "set", "#1", "--running", "1"], "name: expected letters, digits and . _ : @ -"],
    ];
    for (const [words, text] of refusals) {
      const { code, stderr } = await setup.laboro(words);
      expect([code === 0, stderr], words.join(" ")).toEqual([false, expect.stringContaining(text)]);
    }
    expect((await setup.client.jobs()).jobs).toEqual([]);
    expect((await setup.client.ask("limits", {})).limits).toMatchObject([{ name: "api", running: 1 }]);
    expect(existsSync(join(setup.dir, "over"))).toBe(false);
  });
});
