/** Options from GNU parallel, beyond what the comparison with it shows (test/cli/gnu-parallel.test.ts). */
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { getPriority } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { openCliBroker } from "../support/cli.js";
import { openPlace } from "./place.js";

const numbers = (count: number): string[] => Array.from({ length: count }, (_, i) => String(i + 1));

describe("several values per task", () => {
  it("keep their task numbers when the batch is resumed with more values", async () => {
    const place = openPlace();
    const wait = "[ {1} = a ] || until [ -e go ]; do sleep 0.02; done; echo {#}:{}";
    const words = ["run", "-j1", "-k", "-n2", wait, ":::", "a", "b", "c", "d", "e"];
    const begun = place.begin(words);
    await until("the first task has ended", () => begun.output().includes("1:a b"));
    begun.child.kill("SIGTERM");
    await begun.said;
    writeFileSync(place.file("go"), "");
    // The group of e is another one now, so it is a new task.
    const resumed = await place.laboro(...words, "f", "g");
    expect(resumed.stderr).toContain("1 of 4 tasks are done");
    expect(resumed.stdout).toBe("2:c d\n4:e f\n5:g\n");
  });

  it("with -X are all given to tasks, as many as fit on a line and spread over -j tasks", async () => {
    const place = openPlace();
    const { said, child } = place.begin(["run", "-k", "-j", "2", "-X", "printf", "%s\\n"]);
    child.stdin?.end(`${numbers(30_000).join("\n")}\n`);
    const { stdout, stderr } = await said;
    expect(stdout).toBe(`${numbers(30_000).join("\n")}\n`);
    expect(stderr).toMatch(/^[2-9] tasks:/m);
    const line = await place.run("-k", "-j2", "-X", "echo {} | wc -w", ":::", ...numbers(9));
    expect(line.stdout.replaceAll(" ", "")).toBe("5\n4\n");
    const attached = await place.run("-X", "echo x{}", ":::", "a");
    expect(attached).toMatchObject({ code: 2, stderr: expect.stringContaining("put blanks around {}") });
  });

  it("never become code, however they are quoted", async () => {
    const place = openPlace();
    const evil = ["$(touch owned)", "`touch owned`", "'; touch owned; '", '"; touch owned; "'];
    const said = await place.run(
      "-k",
      "-n2",
      `printf '%s\\n' {}; echo "{}" > /dev/null; echo '{}' >/dev/null`,
      ":::",
      ...evil,
    );
    expect(said).toMatchObject({ code: 0, stdout: `${evil.join("\n")}\n` });
    expect(existsSync(place.file("owned"))).toBe(false);
  });

  it("are refused where they mean nothing", async () => {
    const place = openPlace();
    const refused = async (text: string, ...words: string[]): Promise<void> =>
      expect(await place.run(...words)).toMatchObject({ code: 2, stderr: expect.stringContaining(text) });
    await refused("-n, -N and -L exclude each other", "-n2", "-L2", "echo", ":::", "a");
    await refused("must not contain a tab", "-n2", "echo", ":::", "a\tb", "c");
    await refused("leave out {}", "-n0", "echo {}", ":::", "a");
    await refused("expected a number of values, such as 2", "-n", "x", "echo", ":::", "a");
    await refused("cannot be used with --service", "-n2", "--service", "upper", ":::", "a");
    await refused("name one, as in {1}.out", "-n2", "--output", "{}", "echo", ":::", "a", "b");
  });
});

describe("--header", () => {
  it("names columns of files and lists, in the command and in --output", async () => {
    const place = openPlace();
    writeFileSync(place.file("t.csv"), "name,size\nfour.x,4\nsix.x,6\n");
    const said = await place.run(
      ...["-k", "--header", ":", "--colsep", ",", "--output", "{name.}.out", "--each-line", "t.csv"],
      ...["echo {size} {name} $" + "{name} \\{name}"],
    );
    expect(said.code).toBe(0);
    expect(place.lines("six.out")).toEqual(["6 six.x {name}"]);
    expect(place.lines("four.out")).toEqual(["4 four.x {name}"]);
    const bad = await place.run("--header", "2", "echo", ":::", "a");
    expect(bad).toMatchObject({ code: 2, stderr: expect.stringContaining("expected a colon, such as --header :") });
    expect((await place.run("--header", ":", "--array", "1-3", "echo")).stderr).toContain("--header : needs a list");
  });
});

describe("--shuf", () => {
  it("runs every task once in another order, and a resumed batch matches them by entry", async () => {
    const place = openPlace();
    const wait = "echo >>begun; [ $(wc -l <begun) = 1 ] || until [ -e go ]; do sleep 0.02; done; echo {#}:{}";
    const words = ["run", "-j1", "--shuf", wait, ":::", ...numbers(40)];
    const begun = place.begin(words);
    await until("the first task has ended", () => /^\d+:\d+\n/m.test(begun.output()));
    begun.child.kill("SIGTERM");
    const first = await begun.said;
    writeFileSync(place.file("go"), "");
    const resumed = await place.laboro(...words);
    expect(resumed.stderr).toContain("1 of 40 tasks are done");
    const ran = (first.stdout + resumed.stdout).trimEnd().split("\n");
    const columnOf = (at: number): string[] => ran.map((line) => line.split(":")[at] ?? "");
    for (const at of [0, 1]) expect(columnOf(at).sort((a, b) => Number(a) - Number(b))).toEqual(numbers(40));
    expect(columnOf(1)).not.toEqual(numbers(40));
    expect((await place.run("--shuf", "--array", "1-3", "echo")).stderr).toContain("--shuf needs a list");
  });
});

describe("--shell and --nice", () => {
  it("run the line in bash with exported functions, and with another niceness", async () => {
    const place = openPlace();
    const { said } = place.shell(
      `f() { echo "f:$1:{}"; }; export -f f; laboro run -k --shell bash f ::: a 'b  c' && ` +
        `laboro run --nice 7 --shell bash 'f {}; nice' ::: x && printf 'f 1\\n[[ a = a ]] && f 2\\n' | laboro run -k --shell bash`,
    );
    const { stdout, code } = await said;
    // It is added to what the tests run with.
    const own = getPriority();
    expect(stdout).toBe(`f:a:{}\nf:b  c:{}\nf:x:{}\n${Math.min(own + 7, 19)}\nf:1:{}\nf:2:{}\n`);
    expect(code).toBe(0);
    expect((await place.run("--nice", "5", "nice")).stdout).toBe(`${Math.min(own + 5, 19)}\n`);
    expect((await place.run("--nice", "20", "nice")).stderr).toContain("expected -20 to 19, such as 10");
    expect((await place.run("--shell", "zsh", "f")).stderr).toContain("expected sh, dash or bash");
    expect((await place.run("--dry-run", "--shell", "bash", "f", ":::", "a b")).stdout).toBe("f 'a b'\n");
  });
});

describe("--halt", () => {
  it("now stops what runs, and exits as the task that failed", async () => {
    const place = openPlace();
    const said = await place.run("-j2", "--halt", "now,fail=1", "[ {} = a ] || sleep 60; exit 4", ":::", "a", "b", "c");
    expect(said.code).toBe(4);
    expect(said.stderr).toContain("3 tasks: 0 succeeded, 1 failed, 2 cancelled");
    expect((await place.laboro("status", "last", "--local")).stdout).toContain("1 task failed, which halts the job");
  });

  it("names a bad rule and an example, and is the same rule as --max-fails", async () => {
    const place = openPlace();
    for (const rule of ["soon", "now,fail=0", "now,fail=101%", "later,fail=1", "now,fail=x"])
      expect((await place.run("--halt", rule, "echo")).stderr).toContain(
        `argument '${rule}' is invalid. expected never, or now or soon and what ends the run, such as now,fail=1`,
      );
    const both = await place.run("--halt", "now,fail=1", "--max-fails", "1", "echo");
    expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining("--max-fails 2 is --halt soon,fail=3") });
    writeFileSync(place.file("job.toml"), '[[task]]\nname = "t"\ncommand = "exit 3"\nhalt = "soon,fail=1"\n');
    const setup = await openCliBroker();
    expect((await setup.laboro(["submit", "--file", place.file("job.toml")])).code).toBe(0);
    expect((await setup.client.ask("job", { job: 1 })).limits.halt).toEqual({ on: "fail", count: 1 });
  });
});

describe("how many run, and when they start", () => {
  it("-j takes parts of the cores, more and fewer than these, and 0 for many", async () => {
    const place = openPlace();
    for (const jobs of ["0", "50%", "+1", "-1", "-999", "200%"])
      expect(await place.run("-k", "-j", jobs, "echo", ":::", "a", "b")).toMatchObject({ code: 0, stdout: "a\nb\n" });
    // All at once: each waits for the one after it.
    const chain = "[ {} = 1 ] || until [ -e $(({} - 1)) ]; do sleep 0.02; done; touch {}";
    expect((await place.run("-j0", chain, ":::", ...numbers(12).reverse())).code).toBe(0);
    for (const jobs of ["x", "+50%", "1.5", ""])
      expect((await place.run("-j", jobs, "echo")).stderr).toContain(
        `argument '${jobs}' is invalid. expected a number such as 8`,
      );
  });

  it("-j limits what runs at a broker, and a part is one of its slots", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 4 });
    expect((await setup.laboro(["run", "-j", "50%", "echo", ":::", "a", "b"])).code).toBe(0);
    expect((await setup.client.ask("job", { job: 1 })).limits.maxRunning).toBe(2);
    const refused = await setup.laboro(["run", "--load", "2", "echo", ":::", "a"]);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining("other workers have --max-load") });
  });

  it("--delay keeps starts apart, and leaves no limit behind", async () => {
    const place = openPlace();
    const DELAY_MS = 150;
    const said = await place.run("-j4", "--delay", String(DELAY_MS / 1000), "date +%s%N; :", ":::", ...numbers(4));
    expect(said.code).toBe(0);
    const { stdout } = await place.laboro("tasks", "last", "--json", "--local");
    const starts = (JSON.parse(stdout) as { tasks: { started: number }[] }).tasks.map(({ started }) => started);
    const sorted = [...starts].sort((a, b) => a - b);
    expect((sorted.at(-1) ?? 0) - (sorted[0] ?? 0)).toBeGreaterThan(2 * DELAY_MS);
    expect((await place.laboro("limits", "--local")).stdout).toContain("there are no limits");
    expect((await place.run("--delay", "soon", "echo")).stderr).toContain("expected a duration such as 90");
  });

  it("--memfree waits for memory and --load for other processes to end, and they say so", async () => {
    const place = openPlace();
    expect((await place.run("--memfree", "1M", "echo", ":::", "a")).stdout).toBe("a\n");
    const waiting = place.begin(["run", "--memfree", "900T", "echo", ":::", "a"]);
    await until("it says why", () => waiting.output().includes("memory are available"));
    waiting.child.kill("SIGTERM");
    expect((await waiting.said).stdout).toBe("");
    const loaded = place.begin(["run", "--load", "0", "echo", ":::", "a"]);
    await until("it waits for fewer processes", () => /nothing runs yet: .*load/.test(loaded.output()));
    loaded.child.kill("SIGTERM");
    expect((await loaded.said).stdout).toBe("");
    expect((await place.run("--load", "much", "echo")).stderr).toContain("expected a number such as 8");
  });
});

describe("--timeout", () => {
  it("stops a task that takes many times the median of those before", async () => {
    const place = openPlace();
    // The long one begins first, when there is no median.
    const said = await place.run("-j2", "--timeout", "1000%", "sleep {}", ":::", "600", "0.1", "0.1", "0.1");
    expect(said.code).toBe(1);
    expect(said.stderr).toContain("task 1 (600): over its time limit");
    // Those that failed do not count: they may have ended early.
    const failing = ["0.01", "0.01", "0.01", "0.01"];
    const after = await place.run("-j1", "--timeout", "1000%", "sleep {}; test {} = 1", ":::", ...failing, "1");
    expect(after.stderr).toContain("5 tasks: 1 succeeded, 4 failed");
    expect((await place.run("--timeout", "0.2", "sleep 600")).stderr).toContain("time limit of 200ms");
    expect((await place.run("--timeout", "50%", "echo")).stderr).toContain("expected more than 100% of the median");
  });
});

describe("--results", () => {
  it("saves output in the folders of GNU parallel, also large output", async () => {
    const place = openPlace();
    const words = ["-k", "--results", "out", "echo {1}; echo {2} >&2", ":::", "a/b", "", "..", ":::", "x\\y"];
    expect(await place.run(...words)).toMatchObject({
      ...{ code: 0, stdout: "" },
      stderr: expect.stringMatching(/^3 tasks: 3 succeeded/),
    });
    const saved = (...path: string[]): readonly string[] => place.lines(join("out", ...path));
    expect(saved("1", "a\\_b", "2", "x\\\\y", "stdout")).toEqual(["a/b"]);
    expect(saved("1", "a\\_b", "2", "x\\\\y", "stderr")).toEqual(["x\\y"]);
    const numberOf = (value: string) => readFileSync(place.file(join("out/1", value, "2", "x\\\\y", "seq")), "utf8");
    expect([numberOf("\\0"), numberOf("\\..")]).toEqual(["2", "3"]);
    await place.run("--header", ":", "--results", "named", "seq {n}", ":::", "n", "50000", "0");
    expect(place.lines("named/n/50000/stdout")).toHaveLength(50_000);
    expect(readFileSync(place.file("named/n/0/stdout"), "utf8")).toBe("");
    await place.run("--results", "one", "echo", "hi");
    expect(place.lines("one/stdout")).toEqual(["hi"]);
    // More than laboro keeps by default.
    const large = await place.run("--results", "large", "--line-buffer", "head -c 20M /dev/zero");
    expect([large.stdout, statSync(place.file("large/stdout")).size]).toEqual(["", 20 * 2 ** 20]);
  });

  it("saves what an earlier start has printed and not saved", async () => {
    const place = openPlace();
    const wait = "[ {} = a ] || until [ -e go ]; do sleep 0.02; done; echo is {}";
    const begun = place.begin(["run", "-j1", wait, ":::", "a", "b"]);
    await until("the first task has ended", () => begun.output().includes("is a"));
    begun.child.kill("SIGTERM");
    await begun.said;
    writeFileSync(place.file("go"), "");
    const resumed = await place.run("-j1", "--results", "out", wait, ":::", "a", "b");
    expect(resumed.stdout).toBe("");
    for (const entry of ["a", "b"]) expect(place.lines(`out/1/${entry}/stdout`)).toEqual([`is ${entry}`]);
  });

  it("names what it cannot do", async () => {
    const place = openPlace();
    for (const name of ["out/{}", "out.csv"])
      expect((await place.run("--results", name, "echo", ":::", "a")).stderr).toContain(
        `--results ${name}: expected a folder, such as --results out`,
      );
    expect(await place.run("--results", "/proc/x/y", "echo", ":::", "a")).toMatchObject({
      ...{ code: 2, stderr: expect.stringContaining("cannot write --results /proc/x/y: ENOENT") },
    });
    writeFileSync(place.file("file"), "");
    const said = await place.run("--results", "file/out", "echo", ":::", "a");
    expect(said).toMatchObject({ code: 2, stderr: expect.stringContaining("cannot write --results file/out") });
  });
});
