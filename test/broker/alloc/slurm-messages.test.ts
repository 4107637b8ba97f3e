/** What the commands of Slurm 22.05 say when they fail, as recorded, and what is made of it. */
import { describe, expect, it } from "vitest";
import type { AskRequest, BatchError, FailureKind } from "../../../src/broker/alloc/batch-manager.js";
import { Slurm } from "../../../src/broker/alloc/slurm.js";
import { SlurmStandIn } from "../../support/slurm-stand-in.js";

const REQUEST: AskRequest = {
  ...{ name: "short", script: "/x/short.1/job.sh", output: "/x/50%/output.txt", timeLimitMs: 90_000 },
  ...{ nodes: 1, slots: 4, args: ["-p", "debug"] },
};

const failure = (promise: Promise<unknown>): Promise<BatchError> =>
  promise.then(
    () => Promise.reject(new Error("it succeeded")),
    (cause: BatchError) => cause,
  );

describe("sbatch", () => {
  it("is run with what the allocator needs, and its answer is the id", async () => {
    const slurm = new SlurmStandIn();
    expect(await new Slurm().ask(REQUEST)).toBe("1");
    expect(slurm.calls("sbatch")).toEqual([
      "sbatch --parsable --open-mode=append --cpus-per-task=4 -p debug --job-name=laboro-short --nodes=1 --time=2 --output=/x/50%%/output.txt /x/short.1/job.sh",
    ]);
  });

  it.each<[string, number, FailureKind]>([
    [
      "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified",
      1,
      "refused",
    ],
    ["sbatch: error: Batch job submission failed: Requested node configuration is not available", 1, "refused"],
    ["sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)", 1, "refused"],
    [
      "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
      1,
      "refused",
    ],
    ["sbatch: error: Batch job submission failed: Invalid qos specification", 1, "refused"],
    ["sbatch: error: Batch job submission failed: More processors requested than permitted", 1, "refused"],
    ["sbatch: unrecognized option '--nope'\nTry \"sbatch --help\" for more information", 255, "refused"],
    [
      "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
      1,
      "full",
    ],
    ["sbatch: error: Batch job submission failed: Resource temporarily unavailable", 1, "full"],
    [
      "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
      1,
      "unreachable",
    ],
    ["sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", 1, "unreachable"],
    ["sbatch: error: Batch job submission failed: Protocol authentication error", 1, "unreachable"],
    ["", 1, "refused"],
  ])("fails with %j, exit code %i: %s", async (stderr, code, kind) => {
    const slurm = new SlurmStandIn();
    slurm.answer("sbatch", { stderr, code });
    const { kind: found, message } = await failure(new Slurm().ask(REQUEST));
    const last = stderr
      .split("\n")
      .at(-1)
      ?.replace(/^sbatch: (error: )?/, "");
    expect([found, message.endsWith(last || "sbatch failed with exit code 1")]).toEqual([kind, true]);
  });

  it("that sleeps because the queue is full is ended at once, and nothing was accepted", async () => {
    const slurm = new SlurmStandIn();
    const stderr = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying";
    slurm.answer("sbatch", { stderr, code: 0, sleep: 60 });
    expect((await failure(new Slurm(600_000).ask(REQUEST))).kind).toBe("full");
  });

  it("that does not answer in time may have been accepted", async () => {
    const slurm = new SlurmStandIn();
    slurm.answer("sbatch", { stderr: "", code: 0, sleep: 60 });
    expect(await failure(new Slurm(300).ask(REQUEST))).toMatchObject({
      kind: "lost",
      message: "sbatch did not answer within 0.3 s",
    });
  });

  it("that is not installed is missing", async () => {
    const before = process.env.PATH;
    process.env.PATH = "/nowhere";
    const slurm = new Slurm();
    const found = failure(slurm.ask(REQUEST));
    const available = slurm.available();
    process.env.PATH = before;
    expect([available, (await found).kind, (await found).message]).toEqual([
      false,
      "missing",
      "sbatch is not installed here",
    ]);
  });
});

describe("squeue", () => {
  it("tells the state of each job, also of those with reasons in words, and of states that are not known here", async () => {
    const slurm = new SlurmStandIn();
    const manager = new Slurm();
    for (let job = 0; job < 11; job++) await manager.ask(REQUEST);
    slurm.set("2", "PENDING", "PartitionNodeLimit");
    slurm.set(
      "3",
      "PENDING",
      "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
    );
    slurm.set("4", "RUNNING");
    slurm.set("5", "COMPLETED");
    slurm.set("6", "CANCELLED by 1000");
    slurm.set("7", "HIBERNATING");
    slurm.set("8", "PENDING", "launch failed requeued held");
    slurm.set("9", "COMPLETING", "job requeued in held state");
    slurm.set("10", "PENDING", "job requeued in held state");
    slurm.set("11", "PREEMPTED");
    const found = await manager.list(["short", "long"]);
    expect(
      found.map(({ id, state, good, never, taken }) => [id, state, good, never, ...(taken ? ["taken"] : [])]),
    ).toEqual([
      ["1", "queued", false, false],
      ["2", "queued", false, true],
      ["3", "queued", false, false],
      ["4", "running", false, false],
      ["5", "ended", true, false],
      ["6", "ended", false, false],
      ["7", "unknown", false, false],
      ["8", "queued", false, true],
      ["9", "running", false, false],
      ["10", "queued", false, true],
      ["11", "ended", true, false, "taken"],
    ]);
    expect(slurm.calls("squeue")[0]).toContain("--states=all");
    expect(slurm.calls("squeue")[0]).toContain("--name=laboro-short,laboro-long");
  });

  it.each([
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "squeue: error: Zero Bytes were transmitted or received",
    "squeue: error: words of another version",
  ])("fails with %j", async (stderr) => {
    const slurm = new SlurmStandIn();
    slurm.answer("squeue", { stderr, code: 1 });
    expect((await failure(new Slurm().list(["short"]))).kind).toBe("unreachable");
  });

  it("that does not answer in time is unreachable, as is scancel", async () => {
    const slurm = new SlurmStandIn();
    slurm.answer("squeue", { stderr: "", code: 0, sleep: 60 });
    slurm.answer("scancel", { stderr: "", code: 0, sleep: 60 });
    const manager = new Slurm(300);
    expect(await failure(manager.list(["short"]))).toMatchObject({
      kind: "unreachable",
      message: "squeue did not answer within 0.3 s",
    });
    expect((await failure(manager.cancel(["1"]).then(() => "done"))).kind).toBe("unreachable");
  });
});
