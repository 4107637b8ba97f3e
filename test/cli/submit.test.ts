import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { getPriority } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openOnce } from "../support/at-end.js";
import { TRUE } from "../support/recipes.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro submit", () => {
  it("prints the job's number and returns at once", async () => {
    const setup = await openCliBroker();
    expect(await setup.laboro(["submit", "--name", "later", "sleep", "60"], { process: true })).toEqual({
      code: 0,
      stdout: "1\n",
      stderr: "",
    });
    expect(await setup.client.job(1).info()).toMatchObject({ name: "later", state: "waiting", count: 1 });
    expect(JSON.parse((await setup.laboro(["submit", "--json", "true"])).stdout)).toEqual({ job: 2 });
  });

  it("carries every option to the broker", async () => {
    const setup = await openCliBroker();
    const words = [
      "submit",
      "--array",
      "1-10:3",
      "--slots",
      "2",
      "--resource",
      "gpu=1",
      "--resource",
      "mem=all",
      "--time-request",
      "2h",
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
    expect((await setup.laboro(words)).stdout).toBe("1\n");
    expect(await setup.client.job(1).info()).toMatchObject({
      count: 4,
      state: "held",
      pool: "p",
      tags: ["big"],
      needs: { slots: 2, gpu: 1, mem: "all" },
      priority: -5,
      limits: {
        retries: 3,
        crashLimit: 2,
        maxFails: 4,
        maxRunning: 5,
        timeLimitMs: 5_400_000,
        timeRequestMs: 7_200_000,
      },
      recipe: { argv: ["work", "{}"], dir: "/tmp", env: { A: "b c" }, array: [{ first: 1, last: 10, step: 3 }] },
    });
  });

  it("waits for other jobs", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await setup.laboro(["submit", "--", "sh", "-c", "exit 1"]);
    await setup.laboro(["submit", "--after", "any:last", "true"]);
    expect(await setup.client.job(2).wait()).toBe("succeeded");
    await setup.laboro(["submit", "--after", "1", "true"]);
    expect(await setup.client.job(3).info()).toMatchObject({
      state: "cancelled",
      reason: expect.stringMatching(/^job 1,/),
    });
  });

  it("takes a file of tasks that wait for each other", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const file = join(setup.dir, "night.toml");
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
    const { stdout, code } = await setup.laboro(["submit", "--file", file]);
    expect(code).toBe(0);
    expect(stdout).toBe("1\tprepare\n2\tsum\n3\treport\n");
    expect(await setup.client.job(3).wait()).toBe("succeeded");
    expect(await setup.client.job(2).info()).toMatchObject({ name: "night/sum", count: 3, limits: { retries: 1 } });
  });

  it("names the place of a mistake in a file of tasks", async () => {
    const setup = await openCliBroker();
    const file = join(setup.dir, "night.toml");
    writeFileSync(file, '[[task]]\nname = "a"\ncommand = "true"\nenv = "A=b"\n');
    const { stderr, code } = await setup.laboro(["submit", "--file", file]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(`${file}: task 1: env: expected a table, got "A=b"`)]);
  });

  it("lets options beside a file of tasks hold for all of them, and refuses those that contradict it", async () => {
    const setup = await openCliBroker();
    const file = join(setup.dir, "night.toml");
    const tasks = ["a", "b"].map((name) => `[[task]]\nname = "${name}"\ncommand = "true"\n`);
    writeFileSync(file, `priority = 1\nretries = 1\ntags = ["x"]\ntimeLimit = 90\n${tasks.join("")}`);
    const options = ["--priority", "7", "--tag", "y", "--env", "A=b", "--time-limit", "1"];
    expect((await setup.laboro(["submit", "--file", file])).code).toBe(0);
    expect(await setup.client.job(1).info()).toMatchObject({ priority: 1, limits: { timeLimitMs: 90_000 } });
    expect((await setup.laboro(["submit", "--file", file, ...options])).code).toBe(0);
    for (const id of [3, 4])
      expect(await setup.client.job(id).info()).toMatchObject({
        priority: 7,
        tags: ["x", "y"],
        limits: { retries: 1, timeLimitMs: 1_000 },
        recipe: { env: { A: "b" } },
      });
    const { code, stderr } = await setup.laboro(["submit", "--file", file, "--each-line", "x"]);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: "laboro: --each-line cannot be used with --file (LABORO_BAD_INPUT)\n",
    });
  });

  it("reads in a file of tasks what its other options read", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const file = join(setup.dir, "all.toml");
    writeFileSync(join(setup.dir, "list"), "first,second\na,1\nb,2\n");
    const line = 'f() { echo "$(nice) $BASH_VERSION"; }; f; echo {second}{first}';
    writeFileSync(
      file,
      `nice = 5\nshell = "bash"\nhalt = "soon,fail=50%"\nretries = 2\nretryOn = [75, "timeout"]\n
[[task]]\nname = "a"\ntimeout = "200%"\neachLine = "list"\ncolsep = ","\nheader = ":"\ncommand = '${line}'\n
[[task]]\nname = "b"\ncommand = "true"\nentries = ["a", "b", "c"]\nmaxArgs = 2\nshuf = true\nat = 2199-12-24T18:00:00Z\n`,
    );
    expect(await setup.laboro(["submit", "--file", file])).toMatchObject({ code: 0, stderr: "" });
    expect(await setup.client.job(1).wait()).toBe("succeeded");
    expect(await setup.client.job(1).info()).toMatchObject({
      count: 2,
      limits: { halt: { on: "fail", count: 1 }, timeLimitPercent: 200, retry: { on: [75, "timeout"] } },
    });
    expect((await setup.laboro(["logs", "1.1"])).stdout).toMatch(
      new RegExp(`^${Math.min(getPriority() + 5, 19)} \\d[^ ]+\\n1a\\n$`),
    );
    expect(await setup.client.job(2).info()).toMatchObject({ count: 2, notBefore: Date.parse("2199-12-24T18:00Z") });
  });

  it("takes the cap of the output as a size, in the file of tasks as well, and null in the API", async () => {
    const setup = await openCliBroker();
    const capOf = async (job: number) => (await setup.client.job(job).info()).limits.outputCap;
    await setup.laboro(["submit", "--output-cap", "1.5K", "true"]);
    await setup.laboro(["submit", "--output-cap", "none", "true"]);
    const file = join(setup.dir, "caps.toml");
    const task = (name: string, cap: string): string =>
      `[[task]]\nname = "${name}"\ncommand = "true"\noutputCap = ${cap}\n`;
    writeFileSync(file, task("a", '"2M"') + task("b", "4096") + task("c", '"none"'));
    expect((await setup.laboro(["submit", "--file", file])).code).toBe(0);
    const headers = { authorization: `Bearer ${setup.broker.token}`, "content-type": "application/json" };
    const body = JSON.stringify({ recipe: TRUE, outputCap: null });
    expect((await fetch(`${setup.broker.url}/api/v1/jobs`, { method: "POST", headers, body })).ok).toBe(true);
    expect(await Promise.all([1, 2, 3, 4, 5, 6].map(capOf))).toEqual([
      ...[1536, undefined],
      ...[2 ** 21, 4096, undefined],
      undefined,
    ]);
  });

  it("finds what a file of tasks names beside that file", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const folder = join(setup.dir, "jobs");
    mkdirSync(folder);
    writeFileSync(join(folder, "work.sh"), "cat; echo $1\n");
    writeFileSync(join(folder, "input"), "in\n");
    writeFileSync(join(folder, "list"), "a\nb\n");
    const table = "[[task]]\nname = 't'\nscript = 'work.sh'\nstdin = 'input'\neachLine = 'list'\n";
    writeFileSync(join(folder, "night.toml"), table);
    expect((await setup.laboro(["submit", "--file", join(folder, "night.toml")])).stderr).toBe("");
    expect(await setup.client.job(1).wait()).toBe("succeeded");
    expect(await setup.client.job(1).text(1)).toBe("in\nb\n");
  });

  it("calls a job by what a person typed, whatever is put around it", async () => {
    const setup = await openCliBroker();
    writeFileSync(join(setup.dir, "prepare.sh"), "true\n");
    await setup.laboro(["submit", "--output", "o{#}.txt", "echo {} there", ":::", "a"]);
    await setup.laboro(["submit", "--script", join(setup.dir, "prepare.sh")]);
    const { jobs } = await setup.client.jobs();
    expect(jobs.map(({ name }) => name).sort()).toEqual(["echo {} there", "prepare.sh"]);
  });

  const sharedSetup = openOnce(openCliBroker);

  it.each([
    ["[[task]]\nname = 'a'\ncommand = 'true'\nafter = ['b']", "waits for b, which is not there (LABORO"],
    [
      "[[task]]\nname = 'a'\ncommand = 'x'\nafter = ['b']\n[[task]]\nname = 'b'\ncommand = 'x'\nafter = ['a']",
      "wait for each other",
    ],
    ["[[task]]\nname = 'a'\ncomand = 'true'", "did you mean command"],
    ["[[task]]\nname = 'a'", "expected one of command, script and service"],
    ["name = 'x'", "at least one [[task]]"],
    [
      "[[task]]\nname = 'a'\ncommand = 'x'\ntimeLimit = 'soon'",
      "job.toml: task 1: timeLimit: expected a duration such as",
    ],
    ["priority = 1.5\n[[task]]\nname = 'a'\ncommand = 'x'", "priority: expected a whole number from -1000 to 1000"],
    ["[[task]]\nname = 'a'\ncommand = 'x'\nshuf = 1", "task 1: shuf: expected true or false, got 1"],
    ["array = '1-3'\n[[task]]\nname = 'a'\ncommand = 'x'", "array is not a known setting here"],
    ["[[task", "job.toml"],
  ])("refuses a file with a mistake in it, and submits nothing: %j", async (content, named) => {
    const setup = sharedSetup();
    const file = join(setup.dir, "job.toml");
    writeFileSync(file, content);
    const { code, stderr } = await setup.laboro(["submit", "--file", file]);
    expect(stderr).toContain(named);
    expect(code).toBe(2);
    expect((await setup.client.jobs()).jobs).toEqual([]);
  });
});

describe("laboro submit --array beside a list", () => {
  it("makes tasks of these entries only, which keep their numbers", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const file = join(setup.dir, "list");
    writeFileSync(file, "a\nb\nc\nd\ne\n");
    await setup.laboro(["submit", "--each-line", file, "--array", "5,2-3", "echo {#} {}"]);
    await setup.laboro(["wait", "1"]);
    expect((await setup.laboro(["logs", "1.5"])).stdout).toBe("5 e\n");
    expect((await setup.laboro(["logs", "1.2"])).stdout).toBe("2 b\n");
    expect((await setup.laboro(["logs", "1.1"])).stderr).toContain("job 1 has tasks 2, 3, 5, not 1");
    const stderrOf = async (array: string) =>
      (await setup.laboro(["submit", "--array", array, "echo", ":::", "a", "b"])).stderr;
    expect(await stderrOf("1-3")).toContain("--array: expected numbers from 1 to 2, the tasks of the list, got 3");
    expect(await stderrOf("0-1")).toContain("--array: expected numbers from 1 to 2, the tasks of the list, got 0");
  });

  it("of run, resumes with the numbers of the list", async () => {
    const setup = await openCliBroker();
    const words = ["-k", "echo {#} {}", ":::", "a", "b", "c", "d"];
    const run = async (array: string) =>
      (await setup.laboro(["run", "--local", "--array", array, ...words], { cwd: setup.dir })).stdout;
    expect(await run("3-4")).toBe("3 c\n4 d\n");
    expect(await run("1-4")).toBe("1 a\n2 b\n3 c\n4 d\n");
  });
});

describe("laboro submit --stdout and --stderr", () => {
  it("write to files with placeholders in the task's directory; a retry keeps what the attempt before wrote", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const files = ["--dir", setup.dir, "--stdout", "out dir/{#}-{/.}.txt", "--stderr", "err/$HOME.{}"];
    const options = [...files, "--retries", "1", "--retry-wait", "0"];
    const line = 'echo "out {} $LABORO_ATTEMPT"; echo "err $LABORO_ATTEMPT" >&2; test $LABORO_ATTEMPT = 2';
    expect(await setup.laboro(["submit", ...options, line, ":::", "a.x", "b'y"])).toMatchObject({ code: 0 });
    const program = ["--", "sh", "-c", 'echo "prog $1"; exit 3', "sh", "{}"];
    await setup.laboro(["submit", "--dir", setup.dir, "--stdout", "prog.{}", "--array", "7", ...program]);
    expect(await setup.client.job(1).wait()).toBe("succeeded");
    const read = (name: string) => readFileSync(join(setup.dir, name), "utf8");
    expect([read("out dir/1-a.txt"), read("out dir/1-a.txt~1")]).toEqual(["out a.x 2\n", "out a.x 1\n"]);
    expect([read("out dir/2-b'y.txt"), read("err/$HOME.b'y"), read("err/$HOME.a.x~1")]).toEqual([
      "out b'y 2\n",
      "err 2\n",
      "err 1\n",
    ]);
    expect(await setup.client.job(1).text(0)).toBe("");
    expect(await setup.client.job(2).wait()).toBe("failed");
    expect([read("prog.7"), (await setup.client.job(2).info()).name]).toEqual(["prog 7\n", "sh"]);
  });

  it("do not change the command that is shown, and are shown beside it", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await setup.laboro([
      "submit",
      "--dir",
      setup.dir,
      "--output",
      "{job}/{#}.{attempt}",
      "echo {} | tr a b",
      ":::",
      "a",
      "c",
    ]);
    expect(await setup.client.job(1).wait()).toBe("succeeded");
    expect(readFileSync(join(setup.dir, "1/2.1"), "utf8")).toBe("c\n");
    const { stdout } = await setup.laboro(["status", "1"]);
    expect(stdout).toMatch(/ {2}command +echo \{\} \| tr a b\n/);
    expect(stdout).toMatch(/ {2}output +\{job\}\/\{#\}\.\{attempt\}\n/);
    expect((await setup.client.ask("task", { job: 1, index: 0 })).command).toBe("echo a | tr a b");
  });

  it("are written by scripts as well", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const script = join(setup.dir, "work.sh");
    writeFileSync(script, 'echo "$1 out"; echo err >&2; exit 3\n');
    const files = ["--stdout", "s-{}.out", "--stderr", "s-{}.err"];
    await setup.laboro(["submit", "--dir", setup.dir, ...files, "--script", script, "{}", ":::", "a b"]);
    expect(await setup.client.job(1).wait()).toBe("failed");
    expect(await setup.client.job(1).results().next()).toMatchObject({ value: { code: 3, outputBytes: 0 } });
    const read = (name: string) => readFileSync(join(setup.dir, name), "utf8");
    expect([read("s-a b.out"), read("s-a b.err")]).toEqual(["a b out\n", "err\n"]);
  });

  it("of one alone leaves the other to laboro, and of both the same makes one file", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const line = "echo out; echo err >&2";
    await setup.laboro(["submit", "--dir", setup.dir, "--stderr", "e", line]);
    await setup.laboro(["submit", "--dir", setup.dir, "--stdout", "both", "--stderr", "both", line]);
    await setup.laboro(["wait", "1-2"]);
    expect(await setup.client.job(1).text(0)).toBe("out\n");
    expect(readFileSync(join(setup.dir, "e"), "utf8")).toBe("err\n");
    expect(readFileSync(join(setup.dir, "both"), "utf8").split("\n").sort()).toEqual(["", "err", "out"]);
    const stderrOf = async (...words: string[]) => (await setup.laboro(["submit", ...words])).stderr;
    expect(await stderrOf("--output", "a", "--stdout", "b", "true")).toContain("--output is for all output");
    expect(await stderrOf("--stdout", "x", "--service", "s")).toContain("--stdout cannot be used with --service");
  });
});
