import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { openPlace, type Place } from "./place.js";

/** Appends its number, its variable and its entry to `ran` when it is done. A third of a second each. */
const LINE = 'sleep 0.3; echo "{#} $LABORO_TASK {}" >> ran; echo {} > out{#}';

/** Runs these entries one at a time until so many more are done, then Ctrl-C. */
async function interrupted(place: Place, more: number, entries: readonly string[]): Promise<void> {
  const done = place.lines("ran").length + more;
  const first = place.begin(["run", "--jobs", "1", LINE, ":::", ...entries]);
  await until(`${done} are done`, () => place.lines("ran").length >= done);
  first.child.kill("SIGINT");
  expect(await first.said).toMatchObject({ code: 130 });
}

/** The task of each line in `ran` by number, and a check that no number was given to two entries. */
function numbersOf(place: Place): Record<string, string> {
  const found: Record<string, string> = {};
  for (const line of place.lines("ran")) {
    const [number = "", variable, entry = ""] = line.split(" ");
    expect(variable).toBe(number);
    expect(found[number] ?? entry).toBe(entry);
    found[number] = entry;
  }
  return found;
}

const EIGHT = ["a", "b", "c", "d", "e", "f", "g", "h"];

describe("the number of a task", () => {
  it("is in an array its number there: in {#}, LABORO_TASK, failures, job log and selectors", async () => {
    const place = openPlace();
    const line = 'echo "{} {#} $LABORO_TASK"; test {} != 12';
    const { code, stdout, stderr } = await place.run("-k", "--joblog", "log", "--array", "10-13", line);
    expect([code, stdout]).toEqual([1, "10 10 10\n11 11 11\n12 12 12\n13 13 13\n"]);
    expect(stderr).toContain("task 12: exit code 1\n");
    const [, ...logged] = place.lines("log").map((row) => row.split("\t")[0]);
    expect([...logged].sort()).toEqual(["10", "11", "12", "13"]);
    expect((await place.laboro("logs", "last.12")).stdout).toBe("12 12 12\n");
    expect((await place.laboro("logs", "last.11-12", "--tag")).stdout).toBe("1.11\t11 11 11\n1.12\t12 12 12\n");
    expect((await place.laboro("explain", "last.12")).stdout).toMatch(
      /^task 12 of job 1: it has failed on .*: exit code 1\n/,
    );
    expect((await place.laboro("status", "last")).stdout).toMatch(/^1\.12 failed: exit code 1, /m);
    const again = await place.laboro("rerun", "last.12-13", "--all");
    expect(again.stdout.trim().split("\n").sort()).toEqual(["12 12 12", "13 13 13"]);
    expect((await place.laboro("rerun", "last.14")).stderr).toContain(
      "job 1 has tasks 10 to 13, not 14 (LABORO_NO_SUCH_TASK)",
    );
  });

  it("is in a list its place from 1, and stands before the entry", async () => {
    const place = openPlace();
    const { stderr, stdout } = await place.run(
      "-k",
      'echo "{#} $LABORO_TASK {}"; test {} != bad',
      ":::",
      "good",
      "bad",
    );
    expect(stdout).toBe("1 1 good\n2 2 bad\n");
    expect(stderr).toContain("task 2 (bad): exit code 1\n");
    expect((await place.laboro("explain", "last.2")).stdout).toMatch(/^task 2 \(bad\) of job 1: it has failed/);
    expect((await place.laboro("status", "last")).stdout).toMatch(/^1\.2 \(bad\) failed: exit code 1, /m);
    expect((await place.laboro("wait", "last")).stdout).toMatch(/^1\.2 \(bad\) failed: exit code 1, /m);
  });

  it("is refused where an array names it twice", async () => {
    const place = openPlace();
    const { code, stderr } = await place.run("--array", "1-9:2,4-6", "echo");
    expect([code, stderr]).toEqual([
      2,
      "laboro: --array 1-9:2,4-6: 5 is named twice, but an array has each number once, such as 1-3,7 (LABORO_BAD_INPUT)\n",
    ]);
  });

  it("stays when a batch goes on with more entries: the new ones come after the last", async () => {
    const place = openPlace();
    await interrupted(place, 6, EIGHT);
    const { code, stderr } = await place.run("--jobs", "1", "--joblog", "log", LINE, ":::", "new", ...EIGHT);
    expect(code).toBe(0);
    expect(stderr).toMatch(/^resuming job 2: [67] of 9 tasks are done\n/);
    const expected = Object.fromEntries([...EIGHT, "new"].map((entry, i) => [String(i + 1), entry]));
    expect(numbersOf(place)).toEqual(expected);
    for (const [number, entry] of Object.entries(expected)) expect(place.lines(`out${number}`)).toEqual([entry]);
    expect(place.lines("log").at(-1)?.split("\t")[0]).toBe("9");
    expect((await place.laboro("explain", "last.9")).stdout).toMatch(/^task 9 \(new\) of job 2: it has succeeded/);
    expect((await place.laboro("explain", "last.1")).stderr).toMatch(/job 2 has tasks (7 to|8 to|8,) 9, not 1 /);
    expect((await place.laboro("status", "last")).stdout).toMatch(/resumes +job 1\n/);
  });

  it("stays over several interruptions, and nothing that was done runs again", async () => {
    const place = openPlace();
    await interrupted(place, 2, EIGHT);
    const nine = ["nine", ...EIGHT];
    await interrupted(place, 1, nine);
    // The same entries: the same job goes on.
    await interrupted(place, 1, [...nine].reverse());
    const { code, stderr } = await place.run("--jobs", "1", LINE, ":::", ...nine, "ten");
    expect([code, stderr]).toEqual([0, expect.stringMatching(/^resuming job 3: [4-7] of 10 tasks are done\n/)]);
    expect(place.lines("ran")).toHaveLength(10);
    expect(numbersOf(place)).toEqual(
      Object.fromEntries([...EIGHT, "nine", "ten"].map((entry, i) => [String(i + 1), entry])),
    );
  });
});
