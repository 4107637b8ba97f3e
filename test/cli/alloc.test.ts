import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { SlurmStandIn } from "../support/slurm-stand-in.js";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

/** Times, ids of stores and temporary folders as they are when the test runs. */
const plain = (text: string, dir: string): string =>
  text
    .replaceAll(dir, "DIR")
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, "TIME")
    .replaceAll(/files\/[\w-]{12}\//g, "files/STORE/")
    .replaceAll(/laboro-[\w-]{12}-\$/g, "laboro-STORE-$")
    .replaceAll(/laboro-worker-\w{12}/g, "laboro-worker-VERSION")
    .replaceAll(/\d+(\.\d)?m?s ago/g, "AGO");

async function openSite() {
  const slurm = new SlurmStandIn();
  const setup = await openCliBroker({ allocations: { rules: { pollMs: 100 } } });
  const files = join(setup.dir, "files");
  const add = [
    "alloc",
    "add",
    "slurm",
    "short",
    "--max-workers",
    "20",
    "--time-limit",
    "1h",
    "--slots",
    "4",
    "--dir",
    files,
  ];
  const run = async (...args: string[]): Promise<string> => {
    const { stdout, stderr } = await setup.laboro(args);
    return plain(`${stdout}${stderr}`, setup.dir);
  };
  return { ...setup, slurm, add, run };
}

describe("laboro alloc", () => {
  it("adds an allocator, shows what it does and why, pauses, resumes and removes it", async () => {
    const { add, run, slurm, client } = await openSite();
    expect(await run("alloc")).toContain("there are no allocators; laboro alloc add slurm NAME");
    expect(await run(...add, "--tag", "big", "--", "--partition=debug")).toBe(
      "allocator short is saved; laboro alloc log short shows what it does\nlaboro: the broker listens on this machine only: workers on other nodes cannot reach it; start it with laboro serve --listen 0.0.0.0, or name this machine with --forward\n",
    );
    expect(await run(...add)).toContain("there is an allocator short already; replace or remove it");
    await run("submit", "--tag", "big", "--", "true");
    await until("it is in the queue", async () => (await client.allocators.get("short")).allocations[0]?.reason);
    expect((await run("alloc")).split("\n")[1]?.replaceAll(/ +/g, " ")).toBe(
      "short active 1 0 20 4 1h has an allocation in the queue (slurm: Priority)",
    );
    expect(await run("alloc", "log", "short")).toBe(
      [
        "TIME  saved        short: at most 20 workers, 1 in the queue",
        "TIME  asked        short.1: job 1 is in the queue\n",
      ].join("\n"),
    );
    const shown = await run("alloc", "show", "short");
    expect(shown).toContain("worker      4 slots, pool default, tags big, idle timeout 5m\n");
    expect(shown).toMatch(/^short\.1 {5}queued +1 +AGO +Priority$/m);
    expect(shown).toContain("output of short.1: DIR/files/STORE/short.1/output.txt");
    expect(await run("alloc", "pause", "short")).toBe("allocator short is paused; workers that run stay\n");
    expect(await run("alloc", "resume", "short")).toBe("allocator short is resumed\n");
    expect(await run("alloc", "remove", "short")).toContain("allocator short is removed");
    await until("it is gone", async () => (await client.allocators.list()).length === 0);
    expect(slurm.jobs.every(({ state }) => state === "CANCELLED")).toBe(true);
  });

  it("dry-run shows the command, the script and Slurm's opinion, and asks for nothing", async () => {
    const { add, run, slurm, laboro } = await openSite();
    await run("submit", "--slots", "8", "--", "true");
    await run("submit", "--array", "1-5", "--", "true");
    const shown = await run(...add, "--nodes", "2", "--before", "module load R", "--dry-run", "--", "-p", "debug");
    expect(shown.replaceAll(process.execPath, "NODE")).toBe(
      `it would request 1 allocation now: asks for 1
not for 1 tasks like those of job 1: its workers have 4 slots, and the task needs 8
by sbatch --parsable --open-mode=append --cpus-per-task=4 -p debug --job-name=laboro-short --nodes=2 --ntasks-per-node=1 --time=60 --output=DIR/files/STORE/short.1/output.txt DIR/files/STORE/short.1/job.sh
slurm accepts it: Job 1 to start at 2026-01-01T00:00:00 using 1 processors on nodes n1 in partition debug

#!/bin/sh
# Allocation short.1 of laboro: a worker for as long as the allocation lasts. Written by the broker.
unset LABORO_BROKER LABORO_DATA LABORO_TOKEN
laboro_start=$(date +%s)
module load R
set -- NODE DIR/files/STORE/laboro-worker-VERSION.cjs --join @DIR/files/STORE/join.url --pool default --slots 4 --lifetime-grace 160s --idle-timeout 300s --tag allocation:short.1
exec srun --kill-on-bad-exit=0 --cpus-per-task=4 sh -c 'past=$(($(date +%s)-$1)); shift; [ $past -ge 0 ] || past=0; left=$((3420-past))
[ $left -gt 0 ] || { echo "no time is left for a worker: its start took $past s" >&2; exit 1; }
trap : TERM; dir=\${TMPDIR:-/tmp}/laboro-STORE-$SLURM_JOB_ID.$SLURM_PROCID
"$@" --lifetime "\${left}s" --dir "$dir" --name "$0.$SLURM_PROCID"; code=$?
rm -rf "$dir"; exit $code' short.1 "$laboro_start" "$@"
`,
    );
    expect(slurm.jobs).toEqual([]);
    slurm.answer("sbatch", { stderr: "allocation failure: Invalid partition name specified", code: 1 });
    const refused = await laboro([...add, "--dry-run", "--", "-p", "nope"]);
    expect([
      refused.code,
      refused.stdout.includes("slurm refuses it: allocation failure: Invalid partition name"),
    ]).toEqual([1, true]);
  });

  it("says what is wrong with an option or a name", async () => {
    const { laboro } = await openSite();
    for (const [args, message] of BAD) {
      const { code, stderr } = await laboro(["alloc", ...args]);
      expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
    }
    const { code, stderr } = await laboro(["alloc", "pause", "none"]);
    expect([code, stderr]).toEqual([1, expect.stringContaining("there is no allocator none")]);
  });
});

const BAD: readonly (readonly [readonly string[], string])[] = [
  [["add"], "expected slurm and a name, such as laboro alloc add slurm short"],
  [["add", "pbs", "short"], "expected slurm and a name"],
  [
    ["add", "slurm", "short", "--time-limit", "1h"],
    "--max-workers is missing: at most how many workers at a time, such as",
  ],
  [["add", "slurm", "short", "--max-workers", "1"], "--time-limit is missing: how long each allocation lasts, such as"],
  [
    ["add", "slurm", "a.b", "--max-workers", "1", "--time-limit", "1h"],
    "a name of letters, digits, _ and -, such as short",
  ],
  [
    ["add", "slurm", "a", "--max-workers", "1", "--time-limit", "1h", "--", "-t", "5"],
    "args[0]: expected --time-limit instead",
  ],
  [["add", "slurm", "a", "--max-workers", "1", "--time-limit", "10s"], "timeLimitMs: expected a whole number"],
  [
    ["add", "slurm", "a", "--max-workers", "1", "--time-limit", "1h", "--resource", "gpu"],
    "--resource gpu: expected NAME=AMOUNT",
  ],
  [["show"], "which allocator? laboro alloc show NAME"],
  [["log", "a", "b"], "laboro alloc log takes one allocator, got also b"],
];
