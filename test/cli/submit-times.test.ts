import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openCliBroker } from "./support/cli.js";

describe("laboro submit, with times and keys", () => {
  it("delays a job, by a duration or until a time, here or in a zone", async () => {
    const setup = await openCliBroker();
    const notBefore = async (...words: string[]): Promise<number> => {
      const { stdout } = await setup.laboro(["submit", ...words, "true"]);
      const { state, notBefore: at = 0 } = await setup.client.job(Number(stdout)).info();
      expect(state).toBe("delayed");
      return at;
    };
    const before = Date.now();
    expect((await notBefore("--in", "1h30m")) - before).toBeGreaterThanOrEqual(5_400_000 - 50);
    expect(await notBefore("--at", "2126-12-24T18:00")).toBe(new Date(2126, 11, 24, 18).getTime());
    expect(await notBefore("--at", "2126-12-24 18:00:30+01:00")).toBe(Date.parse("2126-12-24T17:00:30Z"));
    expect(await notBefore("--at", "2126-12-24")).toBe(new Date(2126, 11, 24).getTime());
    for (const words of [
      ["--in", "1h", "--at", "2126-12-24"],
      ["--at", "tomorrow"],
      ["--key-for", "1d"],
      ["--retry-on", "75"],
      ["--retries", "2", "--never-on", "300"],
      ["--retries", "2", "--retry-on", "0"],
      ["--key", "k", "--if-exists", "maybe"],
    ])
      expect((await setup.laboro(["submit", ...words, "true"])).code).toBe(2);
    const { stdout } = await setup.laboro(["status", "1"]);
    expect(stdout).toMatch(/delayed, submitted/);
    expect(stdout).toMatch(/starts +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d, in 1h\d\dm/);
    expect((await setup.laboro(["status", "--state", "delayed", "--json"])).stdout).toContain('"delayMs"');
  });

  it("says that a job has the key, and what became of it", async () => {
    const setup = await openCliBroker();
    const submit = (...words: string[]) => setup.laboro(["submit", "--key", "nightly", "--in", "1h", ...words, "true"]);
    expect(await submit()).toEqual({ code: 0, stdout: "1\n", stderr: "" });
    expect(await submit()).toMatchObject({
      code: 0,
      stdout: "1\n",
      stderr: expect.stringContaining("job 1 has the key"),
    });
    expect(JSON.parse((await submit("--json")).stdout)).toEqual({ job: 1, existed: true });
    expect(await submit("--if-exists", "refuse")).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("LABORO_KEY_IN_USE"),
    });
    const replaced = await submit("--if-exists", "replace", "--key-for", "1d");
    const next = Number(replaced.stdout);
    expect(await setup.client.job(1).info()).toMatchObject({ state: "cancelled", reason: `replaced by job ${next}` });
    expect((await setup.laboro(["status", String(next)])).stdout).toMatch(/key +nightly, until 1d after its end/);
  });

  it("carries a retry policy and how long to keep the job, from options and from a job file", async () => {
    const setup = await openCliBroker();
    const words =
      "--retries 3 --retry-wait 1s --retry-factor 2.5 --retry-max 5m --retry-jitter 0.2 --retry-on 75,137,timeout";
    await setup.laboro([
      "submit",
      ...words.split(" "),
      "--never-on",
      "2",
      "--keep",
      "7d",
      "--keep-failed",
      "90d",
      "true",
    ]);
    const policy = {
      limits: {
        retries: 3,
        retry: { waitMs: 1000, factor: 2.5, maxMs: 300_000, jitter: 0.2, on: [75, 137, "timeout"], never: [2] },
      },
      keepMs: 604_800_000,
      keepFailedMs: 7_776_000_000,
    };
    expect(await setup.client.job(1).info()).toMatchObject(policy);
    const file = join(setup.dir, "jobs.toml");
    writeFileSync(
      file,
      `retries = 3
retryWait = "1s"
retryFactor = 2.5
retryMax = "5m"
retryJitter = 0.2
retryOn = [75, 137, "timeout"]
neverOn = [2]
keep = "7d"
keepFailed = "90d"
[[task]]
name = "one"
command = "true"
at = 2126-12-24T18:00:00+01:00
key = "one"
keyFor = "1d"
ifExists = "refuse"
[[task]]
name = "two"
command = "true"
in = "1h"
`,
    );
    expect((await setup.laboro(["submit", "--file", file])).stdout).toBe("2\tone\n3\ttwo\n");
    const times = { notBefore: Date.parse("2126-12-24T17:00:00Z"), key: "one", keyForMs: 86_400_000 };
    expect(await setup.client.job(2).info()).toMatchObject({ ...policy, ...times });
    expect(await setup.client.job(3).info()).toMatchObject({ ...policy, delayMs: 3_600_000 });
    expect((await setup.laboro(["status", "1"])).stdout).toContain(
      "3 retries (first after 1s; times 2.5; at most 5m; jitter 0.2; on 75, 137, timeout; never on 2)",
    );
    await setup.laboro(["submit", "--keep", "none", "--keep-failed", "1d", "true"]);
    expect((await setup.laboro(["status", "4"])).stdout).toContain("for ever, 1d if it does not succeed");
  });
});
