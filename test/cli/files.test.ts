/** `--send`, `--return` and `laboro fetch`, as a user calls them. */
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { describeFiles, FileReceiver, submitWithFiles } from "../../src/client/task-files.js";
import type { Client } from "../../src/entries/client.js";
import { encodeHeader, returnedBy } from "../../src/model/task-files.js";
import { atEnd } from "../support/at-end.js";
import { LABORO } from "../support/launched.js";
import { openCliBroker } from "./support/cli.js";

/** A folder to call laboro in, with some files. */
function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), "laboro-files-"));
  atEnd(() => fs.rmSync(dir, { recursive: true, force: true }));
  fs.mkdirSync(join(dir, "data"));
  for (const name of ["a", "b"]) fs.writeFileSync(join(dir, "data", `${name}.csv`), `${name}\n`);
  const fit = ["#!/bin/sh", 'tr a-z A-Z < "$1" > "$(dirname "$1")/$(basename "$1" .csv).out"; ls -A', ""].join("\n");
  fs.writeFileSync(join(dir, "fit"), fit, { mode: 0o755 });
  return dir;
}

/** In a process, because the paths of files are relative to its directory. */
function laboroIn(dir: string, env: NodeJS.ProcessEnv, ...args: readonly string[]) {
  const call = { cwd: dir, encoding: "utf8" as const, env: { PATH: process.env.PATH, HOME: dir, ...env } };
  const { status, stdout, stderr } = spawnSync(process.execPath, [LABORO, ...args], call);
  return { code: status, stdout, stderr };
}

const read = (...path: string[]): string => fs.readFileSync(join(...path), "utf8");

describe("laboro run --send --return", () => {
  it("gives each task its files in a folder of its own, and brings back what it made", () => {
    const dir = folder();
    const files = ["--send", "{}", "--send", "fit", "--return", "{.}.out"];
    const { code, stdout } = laboroIn(
      dir,
      {},
      "run",
      "-k",
      ...files,
      "--",
      "./fit",
      "{}",
      ":::",
      "data/a.csv",
      "./data/b.csv",
    );
    expect([code, stdout]).toEqual([0, "data\nfit\ndata\nfit\n"]);
    expect([read(dir, "data/a.out"), read(dir, "data/b.out")]).toEqual(["A\n", "B\n"]);
    expect(fs.readdirSync(join(dir, "data")).sort()).toEqual(["a.csv", "a.out", "b.csv", "b.out"]);
    expect(fs.readdirSync(join(dir, ".laboro", "worker", "tasks"))).toEqual([]);
  });

  it("understands GNU parallel's words for it", () => {
    const dir = folder();
    const args = ["--trc", "{.}.out", "--basefile", "fit", "--cleanup", "./fit {}", ":::", "data/a.csv"];
    expect(laboroIn(dir, {}, "run", ...args).code).toBe(0);
    expect(read(dir, "data/a.out")).toBe("A\n");
  });

  it("brings back folders and what wildcards match, and says what is missing", () => {
    const dir = folder();
    const line = "mkdir -p out/deep; echo 1 > out/deep/x; echo 2 > p.png; echo 3 > q.txt";
    const back = ["--return", "out", "--return", "*.png"];
    expect(laboroIn(dir, {}, "run", ...back, "--", line).code).toBe(0);
    expect([read(dir, "out/deep/x"), read(dir, "p.png"), fs.existsSync(join(dir, "q.txt"))]).toEqual([
      "1\n",
      "2\n",
      false,
    ]);
    const missing = laboroIn(dir, {}, "run", "--return", "gone", "--", "true");
    expect([missing.code, missing.stderr]).toEqual([1, expect.stringContaining("has not made gone")]);
  });

  it("removes the folder of a task that has made one too deep for Node, or one that nobody may write", () => {
    const dir = folder();
    const line = "mkdir -p $(printf 'd/%.0s' $(seq 1 1950)) no/x; chmod 500 no; echo 1 > x";
    const { code, stderr } = laboroIn(dir, {}, "run", "--return", "x", "--", line);
    expect([code, stderr, read(dir, "x")]).toEqual([0, expect.anything(), "1\n"]);
    expect(fs.readdirSync(join(dir, ".laboro", "worker", "tasks"))).toEqual([]);
  });

  it("compares paths with a pattern of many wildcards in no time that grows with their number", () => {
    const patterns = ["*a".repeat(10), "**a".repeat(10), "*a**/a".repeat(10)].map((pattern) => `${pattern}b`);
    const matches = returnedBy(patterns);
    const path = "a".repeat(250);
    // A match that does not end is stopped.
    const found = (of: string) => runInNewContext("matches(of)", { matches, of }, { timeout: 20_000 });
    expect([found(path), found(`${path}b`), found(`${path}b/c`)]).toEqual([false, true, true]);
  });

  it("refuses paths that leave the folder, links, and options that contradict", () => {
    const dir = folder();
    fs.symlinkSync("/etc/passwd", join(dir, "data", "link"));
    const refusals: readonly (readonly [string, ...string[]])[] = [
      ["is absolute", "--send", "/etc/passwd", "--", "true"],
      ["an empty part, . or ..", "--send", "data/../../x", "--", "true"],
      ["there is no such file", "--send", "nothing", "--", "true"],
      ["link in it is a link", "--send", "data", "--", "true"],
      ["is absolute", "--return", "/tmp/x", "--", "true"],
      ["an empty part, . or ..", "--return", "{}", "--", "true", "{}", ":::", "../x"],
      ["cannot be used with --send", "--send", "fit", "--dir", "/tmp", "--", "true"],
      ["cannot be used with --service", "--send", "fit", "--service", "s", "body"],
    ];
    for (const [why, ...args] of refusals) {
      const { code, stderr } = laboroIn(dir, {}, "run", ...args);
      expect([args.join(" "), code, stderr]).toEqual([args.join(" "), 2, expect.stringContaining(why)]);
    }
    const line = "ln -s /etc/passwd out";
    const linked = laboroIn(dir, {}, "run", "--return", "out", "--", line);
    expect([linked.code, linked.stderr]).toEqual([1, expect.stringContaining("out cannot be returned: it is a link")]);
    expect(fs.existsSync(join(dir, "out"))).toBe(false);
  });

  it("writes nothing through a link in the folder of the client, and nothing that was not asked for", async () => {
    const dir = folder();
    const other = folder();
    fs.symlinkSync(join(other, "data"), join(dir, "out"));
    fs.symlinkSync(join(other, "fit"), join(dir, "file"));
    const through = laboroIn(dir, {}, "run", "--return", "out/x", "--", "mkdir out; echo 1 > out/x");
    expect([through.code, through.stderr]).toEqual([1, expect.stringContaining("a link or a file is in its way")]);
    expect(fs.readdirSync(join(other, "data")).sort()).toEqual(["a.csv", "b.csv"]);
    // A link of the same name is replaced; what it led to stays.
    expect(laboroIn(dir, {}, "run", "--return", "file", "--", "echo 2 > file").code).toBe(0);
    expect([read(dir, "file"), read(other, "fit")]).toEqual(["2\n", expect.stringContaining("tr a-z")]);
    for (const path of ["../x", "/tmp/x", "other", "a/../file"]) {
      const bytes = Buffer.concat([encodeHeader({ path, size: 0 }), Buffer.alloc(32)]);
      const client = { ask: async () => ({ bytes }) } as unknown as Client;
      const receiving = new FileReceiver(["file"], dir).receive(client, 1, { index: 0 });
      await expect(receiving, path).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
    }
    // The digest that follows is of other bytes.
    const changed = Buffer.concat([encodeHeader({ path: "new", size: 1 }), Buffer.from("x"), Buffer.alloc(32)]);
    const client = { ask: async () => ({ bytes: changed }) } as unknown as Client;
    const receiving = new FileReceiver(["new"], dir).receive(client, 1, { index: 0 });
    await expect(receiving).rejects.toMatchObject({ code: "LABORO_DATA_CORRUPT" });
    expect(fs.existsSync(join(dir, "new"))).toBe(false);
  });
});

describe("laboro submit --send --return", () => {
  it("keeps at the broker what tasks return, for laboro fetch, until the job is removed", async () => {
    const setup = await openCliBroker();
    setup.worker();
    const dir = folder();
    const env = { LABORO_BROKER: `${setup.broker.joinUrl("client")}` };
    // The broker is in this process, so the client must not block it.
    const { execFile } = await import("node:child_process");
    const laboro = (...args: string[]) =>
      new Promise<string>((resolve) => {
        const call = { cwd: dir, env: { PATH: process.env.PATH, HOME: dir, ...env } };
        execFile(process.execPath, [LABORO, ...args], call, (_, stdout, stderr) => resolve(stdout + stderr));
      });
    const files = ["--send", "{}", "--send", "fit", "--return", "{.}.out"];
    expect(await laboro("submit", ...files, "--", "./fit", "{}", ":::", "data/a.csv", "data/b.csv")).toBe("1\n");
    expect(await setup.client.job(1).wait()).toBe("succeeded");
    expect(await laboro("fetch", "1.2", "--dir", "new/results")).toBe("data/b.out\n");
    expect(read(dir, "new/results/data/b.out")).toBe("B\n");
    expect(await laboro("fetch", "last")).toBe("data/a.out\ndata/b.out\n");
    expect([read(dir, "data/a.out"), read(dir, "data/b.out")]).toEqual(["A\n", "B\n"]);
    expect(await laboro("submit", "true")).toBe("2\n");
    expect(await laboro("fetch", "2")).toContain("submitted without --return");
    const aborter = new AbortController();
    const sent = describeFiles(["fit"], [], dir);
    const recipe = { kind: "command" as const, argv: ["./fit"], files: { sent } };
    aborter.abort();
    await expect(submitWithFiles(setup.client, { recipe }, dir, { signal: aborter.signal })).rejects.toBeDefined();
    expect((await setup.client.job(3).info()).state).toBe("cancelled");
    await setup.client.job(1).remove();
    expect(await laboro("fetch", "1")).toContain("LABORO_NO_SUCH_JOB");
  });

  it("refuses a file that is the folder of another, and files for the jobs of a schedule", async () => {
    const setup = await openCliBroker();
    const file = (path: string) => ({ path, size: 0, sha256: "0".repeat(64) });
    const jobOf = (...paths: string[]) => ({
      recipe: { kind: "command" as const, argv: ["true"], files: { sent: paths.map(file) } },
    });
    for (const paths of [
      ["a/b", "a-c", "a"],
      ["x/y", "x/y"],
    ])
      await expect(setup.client.submit(jobOf(...paths))).rejects.toThrow(
        /"(a|x\/y)" occurs twice, or is also the folder/,
      );
    expect((await setup.client.submit({ ...jobOf("a/b", "a-c", "ab"), held: true })).id).toBe(1);
    const nightly = setup.client.schedules.set("nightly", { everyMs: 60_000, job: jobOf("a") });
    await expect(nightly).rejects.toThrow("job.recipe.files.sent: expected none");
  });

  it("is not for workers of other protocols", async () => {
    const setup = await openCliBroker();
    const recipe = { kind: "command" as const, argv: ["true"], files: { returns: ["x"] } };
    const job = await setup.client.submit({ recipe });
    expect((await job.info()).recipe.files).toEqual({ count: 0, returns: ["x"] });
    const { kindOf } = await import("../../src/model/recipe.js");
    expect(kindOf(recipe)).toBe("files");
  });
});
