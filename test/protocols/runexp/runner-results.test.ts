/** Results of our runner: the text of .m jobs, results that are kept, and results that a manager will not have. */
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import type { Runner, RunnerOptions } from "../../../src/protocols/runexp/runner/index.js";
import { JobOutput } from "../../../src/protocols/runexp/runner/spool.js";
import { until } from "../../support/wait.js";
import { recording } from "./recordings.js";
import { job, list, manager, newDir, normalized, start as startIn } from "./runner-kit.js";

let dir: string;
beforeEach(() => {
  dir = newDir();
});

const start = (port: number, options: Partial<RunnerOptions> = {}): Runner =>
  startIn(port, { dir: join(dir, "spool"), ...options });

describe("a .m job", () => {
  it("goes to MATLAB, or to Octave where there is none", async () => {
    for (const program of ["octave", "matlab"]) {
      const bin = join(dir, `bin-${program}`);
      mkdirSync(bin);
      // Stands for the program, which is not to be had here: notes its arguments, and runs nothing.
      writeFileSync(
        join(bin, program),
        `#!/bin/sh\nfor word; do echo "[$word]"; done\necho oops >&2\necho RES:done\nexit 3\n`,
      );
      chmodSync(join(bin, program), 0o755);
      const before = process.env.PATH;
      process.env.PATH = `${bin}:${before}`;
      try {
        const served = await manager(list([job("m", "disp(1)", ".m")]));
        await start(served.port).ended;
        const [result] = served.results;
        const text = String(result?.output);
        expect(result?.status).toBe("success");
        // As the original has it: no quotes, no empty line, and status 0 whatever MATLAB's own is.
        expect(normalized(text)).toMatch(
          /^runexp summary: success\n\nDATE -- \[HOST\] Running m\n> bash PROXY\nDATE -- Finished running\nProgram exited with status 0\nProgram output follows\n\n/,
        );
        expect(text).toContain("oops\n");
        const [, folder, name] = /addpath\('([^']+)'\), (runexp_\w+), catch/.exec(text) ?? [];
        expect([folder, name]).toEqual([join(dir, "spool", "jobs"), expect.stringMatching(/^runexp_[A-Za-z0-9]{10}$/)]);
        const words = program === "octave" ? ["[--no-gui]", "[--quiet]", "[--eval]"] : ["[-nodisplay]", "[-r]"];
        for (const word of words) expect(text).toContain(`${word}\n`);
      } finally {
        process.env.PATH = before;
      }
    }
  });

  it("has the result that the original made of it, where there is neither MATLAB nor Octave", async () => {
    const recorded = recording("outcomes").find(({ bytes }) => bytes.includes("matlab: command not found"));
    const [, name = ""] = /Running (.*)\n/.exec(String(recorded?.bytes)) ?? [];
    const before = process.env.PATH;
    const bin = join(dir, "bin");
    mkdirSync(bin);
    for (const tool of ["bash", "sh", "env"]) symlinkSync(`/bin/${tool}`, join(bin, tool));
    process.env.PATH = bin;
    try {
      const served = await manager(list([job(name, "disp(1)", ".m")]));
      await start(served.port).ended;
      expect(normalized(String(served.results[0]?.output))).toBe(normalized(String(recorded?.bytes)));
    } finally {
      process.env.PATH = before;
    }
  });
});

describe("a result", () => {
  it("is kept while the manager is away, and a later runner delivers it", async () => {
    const go = join(dir, "go");
    const script = `while [ ! -e ${go} ]; do sleep 0.02; done; echo RES:done`;
    const first = await manager(list([job("kept", script)]));
    const { port } = first;
    const runner = start(port, { reconnectTimeoutMs: 300 });
    await until("it runs", () => first.said.length >= 4);
    await first.close();
    writeFileSync(go, "");
    expect(await runner.ended).toMatchObject({ status: "unreachable", spooledResults: 1 });
    const [file = ""] = readdirSync(join(dir, "spool", "results"));
    expect(readFileSync(join(dir, "spool", "results", file), "latin1")).toMatch(/^\{"name":"kept","status":"success"/);
    // Another study may be at this address by now: its manager would take the result for its own.
    const other = await manager(list([job("kept", "echo other; echo RES:done")]), port);
    expect(await start(port).ended).toMatchObject({ status: "finished" });
    expect(String(other.results[0]?.output)).toMatch(/\n\nother\nRES:done\n$/);
    await other.close();
    const again = await manager(list([job("kept", script)]), port);
    rmSync(go);
    const names: string[] = [];
    const on = { running: (name: string) => void names.push(name) };
    expect(await start(port, { on }).ended).toMatchObject({ status: "finished", spooledResults: 0 });
    expect(names).toEqual([]);
    expect(again.results).toMatchObject([{ name: "kept", status: "success" }]);
    expect(readdirSync(join(dir, "spool", "results"))).toEqual([]);
  });

  it("that is long and refused leaves one copy, and the runner says where", async () => {
    const long = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo RES:done";
    const served = await manager({ ...list([job("a", long)]), refuse: "a" });
    const { refusedResults, ...end } = await start(served.port, { threads: 1 }).ended;
    expect(end).toMatchObject({ status: "finished", spooledResults: 0 });
    expect(refusedResults).toHaveLength(1);
    const files = readdirSync(join(dir, "spool"), { recursive: true, withFileTypes: true }).filter((at) => at.isFile());
    expect(files.map(({ parentPath, name }) => join(parentPath, name))).toEqual(refusedResults);
  });

  it("that the manager will not have is put aside", async () => {
    const jobs = [job("a", "echo no; echo RES:done"), job("b", "echo yes; echo RES:done")];
    const served = await manager({ ...list(jobs), refuse: "a" });
    const runner = start(served.port, { threads: 1 });
    expect(await runner.ended).toMatchObject({ status: "finished", spooledResults: 0 });
    const aside = readdirSync(join(dir, "spool", "refused"));
    expect(aside).toHaveLength(1);
    expect(readFileSync(join(dir, "spool", "refused", aside[0] ?? ""), "utf8")).toMatch(/\n\nno\nRES:done\n$/);
    expect(served.connections).toBe(4);
    expect(served.results.map(({ name }) => name)).toEqual(["b"]);
  });

  it("whose output cannot be kept is a failure, and says so", () => {
    const output = new JobOutput(join(dir, "nowhere", "output"));
    output.push(Buffer.concat([Buffer.alloc(2_000_000, "x"), Buffer.from("\nRES:done\n")]));
    const outcome = output.outcome({ name: "long", kind: ".sh", content: Buffer.from("echo") }, "");
    expect(outcome.status).toBe("failure");
    expect(Buffer.concat([...(outcome.chunks() as Iterable<Buffer>)]).toString()).toContain(
      "could not be kept: ENOENT",
    );
  });

  it("that an earlier process has left half written is removed", async () => {
    mkdirSync(join(dir, "spool", "results"), { recursive: true });
    for (const [at, text] of [
      '{"name":"half","status":"success","script":"x","size":9}\nok',
      "",
      "{}\n",
      "x",
    ].entries()) {
      writeFileSync(join(dir, "spool", "results", `${at}.result`), text);
    }
    const served = await manager(list([job("half", "echo RES:done")]));
    expect(await start(served.port).ended).toMatchObject({ status: "finished" });
    expect(served.results).toMatchObject([{ name: "half", status: "success" }]);
    expect(readdirSync(join(dir, "spool", "results"))).toEqual([]);
  });
});
