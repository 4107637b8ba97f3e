import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openCliBroker } from "../support/cli.js";
import { openPlace } from "./place.js";

const sorted = (text: string): string[] => text.split("\n").filter(Boolean).sort();

describe("laboro run", () => {
  it("runs a line for each entry, shows the output, says how it went, and exits 0", async () => {
    const { run } = openPlace();
    const { code, stdout, stderr } = await run("echo hello {}", ":::", "ada", "grace", "edsger");
    expect(sorted(stdout)).toEqual(["hello ada", "hello edsger", "hello grace"]);
    expect(stderr).toMatch(/^3 tasks: 3 succeeded in \S+\n$/);
    expect(code).toBe(0);
  });

  it("ends with one message where no temporary files can be made", async () => {
    const place = openPlace({ TMPDIR: "/nonexistent" });
    expect(await place.begin(["run", "echo", ":::", "a"]).said).toMatchObject({
      code: 1,
      stdout: "",
      stderr:
        "laboro: temporary files cannot be made in /nonexistent (there is no such folder); " +
        "set TMPDIR to a folder where you may write (LABORO_DATA_UNUSABLE)\n",
    });
  });

  it("says nothing else on standard error, however often it hears of news", async () => {
    const { run } = openPlace();
    const { stderr } = await run("--jobs", "1", "--array", "1-40", "sleep 0.02; echo {}");
    expect(stderr).toMatch(/^40 tasks: 40 succeeded in \S+\n$/);
  });

  it("exits 1 when some failed, says which and why, and how to run them again", async () => {
    const { run } = openPlace();
    const { code, stderr } = await run("exit {}", ":::", "0", "3", "4");
    expect(code).toBe(1);
    expect(stderr).toContain("task 2 (3): exit code 3\n");
    expect(stderr).toContain("task 3 (4): exit code 4\n");
    expect(stderr).toMatch(
      /3 tasks: 1 succeeded, 2 failed in \S+\nto run the failed tasks again: laboro rerun 1 --failed\n$/,
    );
  });

  it("keeps the order of the entries, and puts them before each line, when asked to", async () => {
    const { run } = openPlace();
    const { stdout } = await run(
      "--keep-order",
      "--tag-output",
      "sleep 0.{}; echo a{}; echo b{}",
      ":::",
      "3",
      "1",
      "2",
    );
    expect(stdout).toBe("3\ta3\n3\tb3\n1\ta1\n1\tb1\n2\ta2\n2\tb2\n");
  });

  it("gives the entry as the last argument where the command has no place for it", async () => {
    const { run } = openPlace();
    expect((await run("--keep-order", "echo", "one", ":::", "a", "it's b")).stdout).toBe("one a\none it's b\n");
  });

  it("combines lists: each with each, or one by one, with a place for each value", async () => {
    const { run } = openPlace();
    const ordered = async (...words: string[]): Promise<string[]> =>
      (await run("--keep-order", ...words)).stdout.trimEnd().split("\n");
    expect(await ordered("echo", "{2}-{1}", ":::", "a", "b", ":::", "1", "2")).toEqual(["1-a", "2-a", "1-b", "2-b"]);
    expect(await ordered("echo {} {2.}", ":::", "a b", "c", ":::+", "x.txt", "y.txt", "z")).toEqual([
      "a b x.txt x",
      "c y.txt y",
    ]);
    expect(await ordered("printf", "<%s>", "{}", ":::", "a b", ":::", "c")).toEqual(["<a b><c>"]);
    expect(await ordered("printf", "<%s>", ":::", "a", ":::", "c", ":::+", "d")).toEqual(["<a><c><d>"]);
  });

  it("takes the columns of a line", async () => {
    const { run, dir } = openPlace();
    writeFileSync(join(dir, "table"), "a\t1\nb c\t2\n");
    writeFileSync(join(dir, "list"), "a, 1\nb c,2\n");
    expect((await run("--keep-order", "--each-line", "table", "--", "echo", "{2}", "{1}")).stdout).toBe("1 a\n2 b c\n");
    expect(
      (await run("--keep-order", "--colsep", ", *", "--each-line", "list", "--", "echo", "{2}", "{1}")).stdout,
    ).toBe("1 a\n2 b c\n");
    expect((await run("--colsep", "(", "--each-line", "list", "--", "echo")).code).toBe(2);
  });

  it("passes what follows -- to the program as it is", async () => {
    const { run } = openPlace();
    expect((await run("--", "printf", "%s|", "--name", "$HOME", "a b")).stdout).toBe("--name|$HOME|a b|");
  });

  it("takes entries from lines, from JSON, and from numbers", async () => {
    const { run, file } = openPlace();
    writeFileSync(file("lines"), "x y\nz\n");
    writeFileSync(file("items.json"), '["p", {"q": 1}]');
    expect((await run("--keep-order", "--each-line", "lines", "echo", "{}")).stdout).toBe("x y\nz\n");
    expect((await run("--keep-order", "--from-json", "items.json", "echo", "{}")).stdout).toBe('p\n{"q":1}\n');
    expect((await run("--keep-order", "--array", "1-9:4,20", "echo", "{}", "{#}")).stdout).toBe(
      "1 1\n5 5\n9 9\n20 20\n",
    );
  });

  it("writes output to files where it is told to", async () => {
    const { run, lines } = openPlace();
    expect(
      await run("--output", "out.{}", "--", "sh", "-c", "echo a; echo b >&2", "{}", ":::", "1", "2 x"),
    ).toMatchObject({ code: 0, stdout: "" });
    expect([lines("out.1"), lines("out.2 x")]).toEqual([
      ["a", "b"],
      ["a", "b"],
    ]);
    expect(await run("--output", "line.{#}", "echo {} | tr a-z A-Z", ":::", "it's")).toMatchObject({
      code: 0,
      stdout: "",
    });
    expect(lines("line.1")).toEqual(["IT'S"]);
    const shown = ["--output", "log.{#}", "--joblog", "jobs", "echo {} | cat", ":::", "a b"];
    expect((await run("--dry-run", ...shown)).stdout).toBe("echo 'a b' | cat\n");
    await run(...shown);
    expect(lines("jobs")[1]).toMatch(/\techo 'a b' \| cat\t(\d\.\d{3})?\t$/);
  });

  it("ships a script", async () => {
    const { run, file } = openPlace();
    writeFileSync(file("work.sh"), '#!/bin/sh\necho "shipped $1"\n');
    expect((await run("--script", "work.sh", ":::", "it")).stdout).toBe("shipped it\n");
  });

  it("prints what it would run, and runs nothing", async () => {
    const { run } = openPlace();
    const { stdout, code } = await run("--dry-run", "--", "cp", "{}", "{.}.bak", ":::", "a b.txt", "c");
    expect(stdout).toBe("cp 'a b.txt' 'a b.bak'\ncp c c.bak\n");
    expect(code).toBe(0);
  });

  it("writes a log with a line a task", async () => {
    const { run, file } = openPlace();
    await run("--joblog", "log", "exit {}", ":::", "0", "5");
    const [head, ...rows] = readFileSync(file("log"), "utf8").trimEnd().split("\n");
    expect(head?.split("\t")).toEqual([
      "Seq",
      "Host",
      "Starttime",
      "JobRuntime",
      "Send",
      "Receive",
      "Exitval",
      "Signal",
      "Command",
      "CpuTime",
      "PeakMemory",
    ]);
    expect(
      rows
        .map((row) => row.split("\t"))
        .map(([seq, , , , , , code, , command]) => [seq, code, command])
        .sort(),
    ).toEqual([
      ["1", "0", "exit 0"],
      ["2", "5", "exit 5"],
    ]);
  });

  it("tries again, and says when time was up", async () => {
    const { run } = openPlace();
    const retried = await run("--retries", "1", "echo try $LABORO_ATTEMPT; test $LABORO_ATTEMPT = 2");
    expect(retried).toMatchObject({ code: 0 });
    expect(retried.stdout).toContain("try 2\n");
    const late = await run("--time-limit", "200ms", "--", "sleep", "30");
    expect(late).toMatchObject({ code: 1 });
    expect(late.stderr).toContain("task 1: time limit of 200ms\n");
  });

  it("uses a broker that is named, where --jobs bounds what runs at once", async () => {
    const { client, worker, laboro } = await openCliBroker();
    worker({ slots: 4 });
    const said = await laboro(["run", "--jobs", "1", "--keep-order", "echo {}", ":::", "a", "b"]);
    expect(said).toMatchObject({ code: 0, stdout: "a\nb\n" });
    expect((await client.job(1).info()).limits.maxRunning).toBe(1);
  });

  it.each([
    [["--joblog", "/no/such/folder/log", "echo"], "--joblog"],
    [["--bogus", "x"], "--bogus"],
    [[""], "no command to run; give one, as in laboro run"],
    [["--array", "9-1", "echo"], "--array"],
    [["--array", "1-2000000000", "echo"], "--array"],
    [["--each-line", "missing", "echo"], "missing"],
    [["--slots", "-1", "echo"], "--slots"],
    [["--pool", "night", "echo"], "--pool night is for workers of that pool, and without a broker there are none"],
    [["--jobs", "2", "--slots", "3", "echo"], "the worker of this run has 2 slots; --jobs 3 gives it as many"],
    [["--time-limit", "soon", "echo"], "soon"],
    [["echo", ":::+", "a"], "needs a list before it"],
    [["echo", ":::", "a\tb", ":::", "c"], "tab"],
    [
      ["echo", ":::", ...Array.from({ length: 1_001 }, String), ":::", ...Array.from({ length: 1_000 }, String)],
      "1001000 entries",
    ],
    [["--after", "any:", "echo"], "--after: expected a job, such as 7, last"],
  ])("refuses %j with what was expected, and exit code 2", async (words, named) => {
    const { run } = openPlace();
    const { code, stderr } = await run(...words);
    expect(stderr).toContain(named);
    expect(stderr).toContain("LABORO_BAD_INPUT");
    expect(code).toBe(2);
  });
});
