/** The job script with the words of a batch system that is not Slurm. */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { AllocationFiles } from "../../../src/broker/alloc/allocation-files.js";
import { scriptText } from "../../../src/broker/alloc/job-script.js";
import { allocatorInput } from "../../../src/model/allocation.js";

const OTHER = { jobId: "$OTHER_JOB", node: "$OTHER_NODE", onEachNode: (slots: number) => `everywhere -c ${slots}` };
const FOLDER = new URL("../../../src/broker/alloc/", import.meta.url);

describe("a job script", () => {
  it.each([
    ["one node", {}],
    ["two nodes and a forward", { nodes: 2, forward: "login1" }],
  ])("for %s has the words of its batch system, and is one for any shell", (_, given) => {
    const spec = { dir: "/x", ...allocatorInput.read({ maxWorkers: 2, timeLimitMs: 3_600_000, ...given }, "") };
    const files = new AllocationFiles("/x", "0123456789abcdef", "a");
    const text = scriptText(spec, files, "a", 3, OTHER);
    expect(text).not.toMatch(/slurm|srun/i);
    expect(text).toContain("/laboro-0123456789ab-$OTHER_JOB.$OTHER_NODE");
    expect(text.includes("exec everywhere -c 1 sh -c")).toBe("nodes" in given);
    expect(() => execFileSync("sh", ["-n"], { input: text })).not.toThrow();
  });
});

it("Slurm's commands and variables are in slurm.ts alone", () => {
  const others = readdirSync(FOLDER).filter((name) => name !== "slurm.ts");
  const found = others.filter((name) =>
    /\b(squeue|scancel|srun|SLURM_)/.test(readFileSync(new URL(name, FOLDER), "utf8")),
  );
  expect(found).toEqual([]);
});
