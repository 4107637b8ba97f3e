import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openOnce } from "../support/at-end.js";
import { TRUE } from "../support/recipes.js";
import { openCliShop } from "./support/cli.js";

describe("laboro submit", () => {
  it("prints the job's number and returns at once", async () => {
    const shop = await openCliShop();
    expect(await shop.laboro(["submit", "--name", "later", "sleep", "60"], { process: true })).toEqual({
      code: 0,
      stdout: "1\n",
      stderr: "",
    });
    expect(await shop.client.job(1).info()).toMatchObject({ name: "later", state: "waiting", count: 1 });
    expect(JSON.parse((await shop.laboro(["submit", "--json", "true"])).stdout)).toEqual({ job: 2 });
  });

  it("carries every option to the broker", async () => {
    const shop = await openCliShop();
    const words = [
      "submit",
      "--array",
      "1-10:3",
      "--slots",
      "2",
      "--resource",
      "gpu=1",
      "--priority",
      "-5",
      "--time-limit",
      "1h30m",
    ];
    words.push(
      "--retries",
      "3",
      "--crash-limit",
      "2",
      "--max-fails",
      "4",
      "--max-running",
      "5",
      "--pool",
      "p",
      "--tag",
      "big",
    );
    words.push("--env", "A=b c", "--dir", "/tmp", "--hold", "work", "{}");
    expect((await shop.laboro(words)).stdout).toBe("1\n");
    expect(await shop.client.job(1).info()).toMatchObject({
      count: 4,
      state: "held",
      pool: "p",
      tags: ["big"],
      needs: { slots: 2, gpu: 1 },
      priority: -5,
      limits: { retries: 3, crashLimit: 2, maxFails: 4, maxRunning: 5, timeLimitMs: 5_400_000 },
      recipe: { argv: ["work", "{}"], dir: "/tmp", env: { A: "b c" }, array: [{ first: 1, last: 10, step: 3 }] },
    });
  });

  it("waits for other jobs", async () => {
    const shop = await openCliShop();
    shop.worker();
    await shop.laboro(["submit", "--", "sh", "-c", "exit 1"]);
    await shop.laboro(["submit", "--after", "any:last", "true"]);
    expect(await shop.client.job(2).wait()).toBe("succeeded");
    const { code, stderr } = await shop.laboro(["submit", "--after", "1", "true"]);
    expect(code).toBe(1);
    expect(stderr).toContain("LABORO_JOB_ENDED");
  });

  it("takes a file of tasks that wait for each other", async () => {
    const shop = await openCliShop();
    shop.worker();
    const file = join(shop.dir, "night.toml");
    writeFileSync(
      file,
      `name = "night"
retries = 1

[[task]]
name = "report"
command = "cat sum.* > report"
after = ["sum"]

[[task]]
name = "sum"
command = "test -e ready && echo {} > sum.{}"
array = "1-3"
after = ["prepare"]

[[task]]
name = "prepare"
command = ["touch", "ready"]
`,
    );
    const { stdout, code } = await shop.laboro(["submit", "--file", file]);
    expect(code).toBe(0);
    expect(stdout).toBe("1\tprepare\n2\tsum\n3\treport\n");
    expect(await shop.client.job(3).wait()).toBe("succeeded");
    expect(await shop.client.job(2).info()).toMatchObject({ name: "night/sum", count: 3, limits: { retries: 1 } });
  });

  it("lets options beside a file of tasks hold for all of them, and refuses those that contradict it", async () => {
    const shop = await openCliShop();
    const file = join(shop.dir, "night.toml");
    const tasks = ["a", "b"].map((name) => `[[task]]\nname = "${name}"\ncommand = "true"\n`);
    writeFileSync(file, `priority = 1\nretries = 1\ntags = ["x"]\ntimeLimit = 90\n${tasks.join("")}`);
    const options = ["--priority", "7", "--tag", "y", "--env", "A=b", "--time-limit", "1"];
    expect((await shop.laboro(["submit", "--file", file])).code).toBe(0);
    expect(await shop.client.job(1).info()).toMatchObject({ priority: 1, limits: { timeLimitMs: 90_000 } });
    expect((await shop.laboro(["submit", "--file", file, ...options])).code).toBe(0);
    for (const id of [3, 4])
      expect(await shop.client.job(id).info()).toMatchObject({
        priority: 7,
        tags: ["x", "y"],
        limits: { retries: 1, timeLimitMs: 1_000 },
        recipe: { env: { A: "b" } },
      });
    const { code, stderr } = await shop.laboro(["submit", "--file", file, "--each-line", "x"]);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: "laboro: --each-line cannot be used with --file (LABORO_BAD_INPUT)\n",
    });
  });

  it("takes the cap of the output as a size, in the file of tasks as well, and null in the API", async () => {
    const shop = await openCliShop();
    const capOf = async (job: number) => (await shop.client.job(job).info()).limits.outputCap;
    await shop.laboro(["submit", "--output-cap", "1.5K", "true"]);
    await shop.laboro(["submit", "--output-cap", "none", "true"]);
    const file = join(shop.dir, "caps.toml");
    const task = (name: string, cap: string): string =>
      `[[task]]\nname = "${name}"\ncommand = "true"\noutputCap = ${cap}\n`;
    writeFileSync(file, task("a", '"2M"') + task("b", "4096") + task("c", '"none"'));
    expect((await shop.laboro(["submit", "--file", file])).code).toBe(0);
    const headers = { authorization: `Bearer ${shop.broker.token}`, "content-type": "application/json" };
    const body = JSON.stringify({ recipe: TRUE, outputCap: null });
    expect((await fetch(`${shop.broker.url}/api/v1/jobs`, { method: "POST", headers, body })).ok).toBe(true);
    expect(await Promise.all([1, 2, 3, 4, 5, 6].map(capOf))).toEqual([
      ...[1536, undefined],
      ...[2 ** 21, 4096, undefined],
      undefined,
    ]);
  });

  it("finds what a file of tasks names beside that file", async () => {
    const shop = await openCliShop();
    shop.worker();
    const folder = join(shop.dir, "jobs");
    mkdirSync(folder);
    writeFileSync(join(folder, "work.sh"), "cat; echo $1\n");
    writeFileSync(join(folder, "input"), "in\n");
    writeFileSync(join(folder, "list"), "a\nb\n");
    const table = "[[task]]\nname = 't'\nscript = 'work.sh'\nstdin = 'input'\neachLine = 'list'\n";
    writeFileSync(join(folder, "night.toml"), table);
    expect((await shop.laboro(["submit", "--file", join(folder, "night.toml")])).stderr).toBe("");
    expect(await shop.client.job(1).wait()).toBe("succeeded");
    expect(await shop.client.job(1).text(1)).toBe("in\nb\n");
  });

  it("calls a job by what a person typed, whatever is put around it", async () => {
    const shop = await openCliShop();
    writeFileSync(join(shop.dir, "prepare.sh"), "true\n");
    await shop.laboro(["submit", "--output", "o{#}.txt", "echo {} there", ":::", "a"]);
    await shop.laboro(["submit", "--script", join(shop.dir, "prepare.sh")]);
    const { jobs } = await shop.client.jobs();
    expect(jobs.map(({ name }) => name).sort()).toEqual(["echo {} there", "prepare.sh"]);
  });

  const sharedShop = openOnce(openCliShop);

  it.each([
    ["[[task]]\nname = 'a'\ncommand = 'true'\nafter = ['b']", "waits for b, which is not there (LABORO"],
    [
      "[[task]]\nname = 'a'\ncommand = 'x'\nafter = ['b']\n[[task]]\nname = 'b'\ncommand = 'x'\nafter = ['a']",
      "wait for each other",
    ],
    ["[[task]]\nname = 'a'\ncomand = 'true'", "did you mean command"],
    ["[[task]]\nname = 'a'", "expected one of command, script and service"],
    ["name = 'x'", "at least one [[task]]"],
    ["[[task", "job.toml"],
  ])("refuses a file with a mistake in it, and submits nothing: %j", async (content, named) => {
    const shop = sharedShop();
    const file = join(shop.dir, "job.toml");
    writeFileSync(file, content);
    const { code, stderr } = await shop.laboro(["submit", "--file", file]);
    expect(stderr).toContain(named);
    expect(code).toBe(2);
    expect((await shop.client.jobs()).jobs).toEqual([]);
  });
});
