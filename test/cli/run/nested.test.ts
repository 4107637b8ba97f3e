import { existsSync, readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { LABORO } from "../../support/launched.js";
import { isRunning } from "../../support/process-table.js";
import { until } from "../../support/wait.js";
import { openPlace } from "./place.js";

/** A run in a task, quoted for the shell that the task is. */
const inner = (line: string, ...entries: readonly string[]): string =>
  [process.execPath, LABORO, "run", "-j", "1", `'${line}'`, ":::", ...entries].join(" ");

const leftInner = (dir: string): string[] =>
  existsSync(`${dir}/.laboro/inner`) ? readdirSync(`${dir}/.laboro/inner`) : [];

describe("laboro run inside a task of laboro run", () => {
  it("does not wait for the slots of the outer one, at any depth, and leaves no data", async () => {
    const place = openPlace();
    const outer = await place.run(
      "-j",
      "1",
      `${inner("echo $LABORO_ENTRY >> ran; :", "1", "2", "3")}; : {}`,
      ":::",
      "a",
      "b",
    );
    expect(outer.code).toBe(0);
    expect([...place.lines("ran")].sort()).toEqual(["1", "1", "2", "2", "3", "3"]);
    const deep = `${process.execPath} ${LABORO} run -j 1 "${inner("echo deep >> ran; :", "x").replaceAll('"', '\\"')}"`;
    expect((await place.run("-j", "1", deep)).code).toBe(0);
    expect(place.lines("ran").filter((line) => line === "deep")).toHaveLength(1);
    expect(leftInner(place.dir)).toEqual([]);
  });

  it("resumes with the task's next attempt", async () => {
    const place = openPlace();
    const line = inner("echo $LABORO_ENTRY >> ran; test $LABORO_ENTRY = a || test -e go || exec sleep 60; :", "a", "b");
    // The first attempt ends its inner run half-way.
    const stopped = `${line} & until grep -q b ran; do sleep 0.05; done; kill $!; wait $!; touch go; exit 1`;
    const said = await place.run("--retries", "1", `if test -e go; then ${line}; else ${stopped}; fi`);
    expect(said.code).toBe(0);
    expect(place.lines("ran").filter((entry) => entry === "a")).toHaveLength(1);
    expect(leftInner(place.dir)).toEqual([]);
  });

  it("ends with the outer one at one SIGTERM, which the same command resumes", async () => {
    const place = openPlace();
    const line = inner("echo $$ >> pids; test -e go || exec sleep 60", "1", "2");
    const words = ["run", "-j", "1", line];
    const outer = place.begin(words);
    await until("the inner tasks run", () => place.lines("pids").length === 1);
    const at = Date.now();
    outer.child.kill("SIGTERM");
    expect(await outer.said).toMatchObject({ code: 130 });
    expect(Date.now() - at).toBeLessThan(10_000);
    await until("the inner tasks are gone", () => place.lines("pids").every((pid) => !isRunning(Number(pid))));
    expect((await place.run("touch", "go")).code).toBe(0);
    expect((await place.laboro(...words)).code).toBe(0);
    expect(leftInner(place.dir)).toEqual([]);
  });
});
