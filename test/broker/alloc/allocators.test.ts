/** Allocators of a broker beside commands that stand in for Slurm's. The tests play the allocations' workers. */
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { AllocationRules } from "../../../src/broker/alloc/decide.js";
import { type Client, connect } from "../../../src/entries/client.js";
import { allocationTag } from "../../../src/model/allocation.js";
import { startBroker } from "../../../src/server.js";
import { ask } from "../../api/kit.js";
import { atEnd } from "../../support/at-end.js";
import { freePort } from "../../support/free-port.js";
import { TRUE } from "../../support/recipes.js";
import { SlurmStandIn } from "../../support/slurm-stand-in.js";
import { NO_SSHD, openSshd } from "../../support/sshd.js";
import { openTestBroker, resultsOf, type TestBroker } from "../../support/test-broker.js";
import { until } from "../../support/wait.js";

const FAST: Partial<AllocationRules> = {
  pollMs: 30,
  unneededMs: 50,
  lostMs: 100,
  failureMs: 20,
  troubleMs: 20,
  maxTroubleMs: 60,
};

async function openSite(rules: Partial<AllocationRules> = {}): Promise<TestBroker & { readonly slurm: SlurmStandIn }> {
  const slurm = new SlurmStandIn();
  const setup = await openTestBroker({ allocations: { rules: { ...FAST, ...rules } } });
  return { ...setup, slurm };
}

const spec = ({ dir }: Pick<TestBroker, "dir">) => ({ maxWorkers: 4, timeLimitMs: 3_600_000, dir: join(dir, "files") });
const add = (setup: TestBroker, more: object = {}) => setup.client.allocators.set("a", { ...spec(setup), ...more });
const work = (client: Client, count = 1, more: object = {}) =>
  client.submit({ recipe: TRUE, count, name: "work", ...more });
const logOf = async (client: Client): Promise<string[]> =>
  (await client.allocators.log("a")).map(({ kind, text }) => `${kind}: ${text}`);
const logs = (client: Client, line: string) =>
  until(`the log has ${line}`, async () => (await logOf(client)).some((one) => one.includes(line)));

/** The sockets on this machine that lead to the broker. */
const socketsTo = (url: string): string[] => {
  const folders = readdirSync("/tmp").filter((name) => name.startsWith("laboro-tunnels-"));
  return folders.filter((name) => existsSync(join("/tmp", name, `${new URL(url).host.replace(":", "_")}.sock`)));
};

describe("an allocator", () => {
  it("asks while work waits, its worker does the work, and the allocation's end is seen", async () => {
    const setup = await openSite();
    const { client, slurm } = setup;
    const saved = await add(setup, { tags: ["big"], args: ["--partition=debug"] });
    expect([saved.state, saved.status]).toEqual(["active", "is ready to ask for an allocation"]);
    const job = await work(client, 1, { tags: ["big"] });
    await until("it asks", () => slurm.jobs.length === 1);
    const [{ script } = { script: "" }] = slurm.jobs;
    await logs(client, "asked: job 1 is in the queue");
    const explained = "no worker is connected; allocator a has an allocation in the queue (slurm: Priority)";
    await until(
      "explain names it",
      async () => (await client.ask("explain", { job: job.id, index: 0 })).reason === explained,
    );
    slurm.set("1", "RUNNING");
    const worker = setup.worker({ name: "a.1", tags: ["big", allocationTag("a", 1)] });
    expect(await job.wait()).toBe("succeeded");
    await until("its worker is shown", async () =>
      (await client.allocators.get("a")).allocations[0]?.workers.includes("a.1"),
    );
    await logs(client, "joined: its worker has joined");
    await worker.stop();
    slurm.set("1", "COMPLETED");
    await logs(client, "ended: COMPLETED");
    const { text } = await ask(`${setup.broker.url}/metrics`, { token: setup.broker.tokenOf("read") });
    expect(text.split("\n").filter((line) => line.startsWith("laboro_allocations"))).toEqual([
      'laboro_allocations{allocator="a",state="queued"} 0',
      'laboro_allocations{allocator="a",state="running"} 0',
      'laboro_allocations_total{event="asked"} 1',
      'laboro_allocations_total{event="failed"} 0',
      'laboro_allocations_total{event="cancelled"} 0',
    ]);
    expect(await logOf(client)).toEqual([
      "saved: at most 4 workers, 1 in the queue",
      "asked: job 1 is in the queue",
      "started: job 1 runs",
      "joined: its worker has joined",
      "ended: COMPLETED",
    ]);
    expect([slurm.calls("sbatch").length, slurm.calls("scancel").length]).toEqual([1, 0]);
    expect(readFileSync(script, "utf8")).toContain("--tag allocation:a.1");
  });

  it("keeps the token in a file that nobody else can read, and on no command line", async () => {
    const setup = await openSite();
    await add(setup);
    await work(setup.client);
    await until("it asks", () => setup.slurm.jobs.length === 1);
    const [{ script } = { script: "" }] = setup.slurm.jobs;
    const url = join(script, "..", "..", "join.url");
    const token = setup.broker.tokenOf("worker") ?? "";
    expect(readFileSync(url, "utf8")).toBe(`${setup.broker.joinUrl()}\n`);
    expect([statSync(url).mode & 0o777, statSync(join(script, "..")).mode & 0o777]).toEqual([0o600, 0o700]);
    expect(readFileSync(script, "utf8")).not.toContain(token);
    expect(setup.slurm.calls("sbatch").join()).not.toContain(token);
  });

  it("cancels what is queued when nothing waits any more", async () => {
    const setup = await openSite();
    await add(setup, { backlog: 2 });
    const job = await work(setup.client, 2);
    await until("it asks", () => setup.slurm.jobs.length === 2);
    await job.cancel();
    await until("they are cancelled", () => setup.slurm.jobs.every(({ state }) => state === "CANCELLED"));
    await logs(setup.client, "cancelled: nothing waits that it could do");
    await logs(setup.client, "ended: CANCELLED");
  });

  it("never asks for what cannot fit, and explain says so", async () => {
    const setup = await openSite();
    await add(setup, { slots: 4 });
    const wide = await work(setup.client, 1, { needs: { slots: 8 } });
    const long = await work(setup.client, 1, { timeRequestMs: 7_200_000 });
    await work(setup.client, 1, { held: true });
    const explain = async (job: number) => (await setup.client.ask("explain", { job, index: 0 })).reason;
    expect(await explain(wide.id)).toContain(
      "allocator a asks for nothing: its workers have 4 slots, and the task needs 8",
    );
    expect(await explain(long.id)).toContain("its workers live for 57m, and the task needs 2h");
    const dry = await setup.client.allocators.dryRun("a");
    expect([dry.asks, dry.accepted, dry.unfit.map(({ job }) => job)]).toEqual([0, true, [wide.id, long.id]]);
    const wider = await setup.client.allocators.dryRun("b", { ...spec(setup), slots: 8, backlog: 2 });
    expect([wider.asks, wider.unfit.map(({ job }) => job)]).toEqual([1, [long.id]]);
    expect(setup.slurm.jobs).toEqual([]);
  });

  it.each([
    ["refused", "sbatch: error: Batch job submission failed: Invalid partition name specified"],
    ["unreachable", "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"],
    ["full", "sbatch: error: Batch job submission failed: Resource temporarily unavailable"],
  ])("goes on by itself after sbatch has failed a few times: %s", async (kind, stderr) => {
    const setup = await openSite();
    await add(setup);
    setup.slurm.answer("sbatch", { stderr, code: 1 });
    const job = await work(setup.client);
    await until("it tries again", () => setup.slurm.calls("sbatch").length > 2);
    await logs(setup.client, `${kind}: ${stderr.slice("sbatch: error: ".length)}`);
    await until("explain says so", async () =>
      (await setup.client.ask("explain", { job: job.id, index: 0 })).reason.includes("again in"),
    );
    setup.slurm.answer("sbatch");
    await until("it is in the queue", () => setup.slurm.jobs.length === 1);
  });

  it("is paused with the reason after failures, and resumed by hand", async () => {
    const setup = await openSite();
    const { client, slurm } = setup;
    await add(setup);
    slurm.answer("sbatch", { stderr: "sbatch: error: Batch job submission failed: Invalid account", code: 1 });
    await work(client);
    const found = await until("it is paused", async () => {
      const one = await client.allocators.get("a");
      return one.state === "paused" && one;
    });
    expect(found).toMatchObject({ pausedBy: "failures", failures: 5, problem: { kind: "failed" } });
    expect(found.status).toContain("Invalid account");
    slurm.answer("sbatch");
    expect(await client.allocators.resume("a")).toMatchObject({ state: "active", failures: 0 });
    await until("it asks", () => slurm.jobs.length === 1);
  });

  it("finds a job again whose answer was lost, by its script", async () => {
    const setup = await openSite({ lostMs: 60_000 });
    const { client, slurm } = setup;
    await add(setup);
    slurm.answer("sbatch", { stderr: "sbatch: error: something new", code: 0 });
    await work(client);
    await logs(client, "lost: sbatch gave no job id");
    const { output } = (await client.allocators.get("a")).allocations[0] ?? { output: "" };
    slurm.set("77", "PENDING", "None", join(output, "..", "job.sh"));
    await logs(client, "queued: job 77 was found in the queue");
    expect((await client.allocators.get("a")).allocations).toMatchObject([{ number: 1, id: "77", state: "queued" }]);
  });

  it("knows nothing new while squeue fails, asks for nothing meanwhile, and says so once", async () => {
    const setup = await openSite();
    const { client, slurm } = setup;
    await add(setup, { backlog: 3 });
    await work(client);
    await until("it asks", () => slurm.jobs.length === 1);
    slurm.answer("squeue", { stderr: "slurm_load_jobs error: Unable to contact slurm controller", code: 1 });
    await logs(client, "unreachable: ");
    await work(client, 5);
    const looks = slurm.calls("squeue").length;
    await until("it looks again", () => slurm.calls("squeue").length > looks + 2);
    expect([slurm.jobs.length, (await logOf(client)).filter((line) => line.startsWith("unreachable")).length]).toEqual([
      1, 1,
    ]);
    slurm.answer("squeue");
    await logs(client, "answering: the batch system answers again");
    await until("it asks", () => slurm.jobs.length === 3);
  });

  it("never says that it is ready while squeue does not answer, and counts no failure", async () => {
    const setup = await openSite({ troubleMs: 1, maxTroubleMs: 1, pollMs: 200 });
    const { client, broker, slurm } = setup;
    await add(setup, { backlog: 3 });
    await client.allocators.set("b", spec(setup));
    await work(client);
    await until("it asks", () => slurm.jobs.length === 1);
    slurm.answer("squeue", { stderr: "squeue: error: words of another version", code: 1 });
    await logs(client, "unreachable: words of another version");
    const statuses = new Set<string>();
    const looks = slurm.calls("squeue").length;
    await until("it has looked a few times", async () => {
      for (const { status } of await client.allocators.list()) statuses.add(status.replace(/ in \d+m?s:/, ":"));
      return slurm.calls("squeue").length > looks + 2;
    });
    expect([...statuses].filter((text) => !text.endsWith(": words of another version"))).toEqual([]);
    expect(broker.core.allocators.counts).toEqual({ asked: 1, failed: 0, cancelled: 0 });
    slurm.answer("squeue");
    await until("both are ready", async () =>
      (await client.allocators.list()).every(({ problem }) => problem === undefined),
    );
  });

  it("is paused by an operator, changed and removed; what it has in the queue is cancelled", async () => {
    const setup = await openSite();
    const { client, slurm } = setup;
    await add(setup, { backlog: 2 });
    await work(client, 2);
    await until("it asks", () => slurm.jobs.length === 2);
    expect(await client.allocators.pause("a")).toMatchObject({
      state: "paused",
      pausedBy: "user",
      status: "is paused",
    });
    await until("they are cancelled", () => slurm.jobs.every(({ state }) => state === "CANCELLED"));
    expect(await add(setup, { maxWorkers: 1 })).toMatchObject({ state: "paused", maxWorkers: 1 });
    await client.allocators.resume("a");
    const last = await until("it asks", () => slurm.jobs.find(({ state }) => state === "PENDING"));
    await client.allocators.remove("a");
    await until("it is gone", async () => (await client.allocators.list()).length === 0);
    expect(slurm.jobs.find(({ id }) => id === last.id)?.state).toBe("CANCELLED");
    expect(existsSync(last.script)).toBe(false);
    await expect(client.allocators.get("a")).rejects.toMatchObject({ code: "LABORO_NO_SUCH_ALLOCATOR" });
  });

  it("that has nothing left is removed at once, with its files; under its name numbers never come twice", async () => {
    const setup = await openSite();
    const { client, slurm } = setup;
    await add(setup);
    const job = await work(client);
    await until("it asks", () => slurm.jobs.length === 1);
    const worker = setup.worker({ name: "a.1", tags: [allocationTag("a", 1)] });
    slurm.set("1", "RUNNING");
    expect(await job.wait()).toBe("succeeded");
    await logs(client, "joined: ");
    await worker.stop();
    slurm.set("1", "COMPLETED");
    await logs(client, "ended: COMPLETED");
    await client.allocators.remove("a");
    expect([await client.allocators.list(), existsSync(join(slurm.jobs[0]?.script ?? "", ".."))]).toEqual([[], false]);
    await expect(client.allocators.remove("a")).rejects.toMatchObject({ code: "LABORO_NO_SUCH_ALLOCATOR" });
    await add(setup);
    await work(client);
    await until("it asks", () => slurm.jobs.length === 2);
    expect(slurm.jobs[1]?.script.split("/").at(-2)).toBe("a.2");
    slurm.set("2", "FAILED");
    await logs(client, "failed: FAILED: no worker has joined");
  });

  it("that is removed and added again numbers on: allocations of before may still run", async () => {
    const setup = await openSite();
    const { client, slurm } = setup;
    await add(setup);
    await work(client);
    await until("it asks", () => slurm.jobs.length === 1);
    slurm.set("1", "RUNNING");
    await logs(client, "started: job 1 runs");
    await client.allocators.remove("a");
    await until("it is gone", async () => (await client.allocators.list()).length === 0);
    await add(setup);
    await until("it asks", () => slurm.jobs.length === 2);
    expect(slurm.jobs.map(({ state, script }) => [state, script.split("/").at(-2)])).toEqual([
      ["RUNNING", "a.1"],
      ["PENDING", "a.2"],
    ]);
  });

  it("survives a restart of the broker: its allocations are the same, and none is asked for twice", async () => {
    const slurm = new SlurmStandIn();
    const { dir, broker, client } = await openTestBroker({ allocations: { rules: FAST } });
    await client.allocators.set("a", { ...spec({ dir }), backlog: 2 });
    await work(client, 2);
    await until(
      "it asks",
      async () => (await client.allocators.get("a")).counts.queued === 2 && slurm.jobs.length === 2,
    );
    await until("both answers are recorded", async () =>
      (await client.allocators.get("a")).allocations.every(({ id }) => id !== undefined),
    );
    await broker.stop();
    slurm.set("2", undefined);
    slurm.set("1", "RUNNING");
    const again = await startBroker({ dir: join(dir, "data"), port: await freePort(), allocations: { rules: FAST } });
    atEnd(() => again.stop());
    const second = await connect({ broker: again.url, token: again.token });
    atEnd(async () => second.close());
    await logs(second, "started: job 1 runs");
    await logs(second, "ended: the batch system no longer knows it");
    await until("the join URL is the new one", () =>
      readFileSync(join(slurm.jobs[0]?.script ?? "", "..", "..", "join.url"), "utf8").startsWith(again.joinUrl()),
    );
    await until("what is gone is asked for again", () => slurm.jobs.length === 2);
    expect((await second.allocators.get("a")).failures).toBe(0);
  });
});

it("bad input is refused with the value, and what to use instead", async () => {
  const setup = await openSite();
  for (const [given, message] of BAD)
    await expect(add(setup, given), message).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
      message: expect.stringContaining(message),
    });
  expect(await setup.client.allocators.list()).toEqual([]);
});

const BAD: readonly (readonly [object, string])[] = [
  [{ maxWorkers: 0 }, "maxWorkers: expected a whole number"],
  [{ timeLimitMs: 1_000 }, "timeLimitMs: expected a whole number"],
  [{ args: ["--time=10"] }, 'args[0]: expected --time-limit instead, got "--time=10"'],
  [{ args: ["-Mother"] }, "args[0]: expected a broker that runs on that cluster instead"],
  [{ args: ["--clusters=other"] }, "args[0]: expected a broker that runs on that cluster instead"],
  [{ args: ["-H"] }, "args[0]: expected laboro alloc pause instead"],
  [{ args: ["--hold"] }, "args[0]: expected laboro alloc pause instead"],
  [{ args: ["-t10"] }, 'args[0]: expected --time-limit instead, got "-t10"'],
  [{ args: ["--arr=1-9"] }, "args[0]: expected --max-workers and --backlog instead"],
  [{ args: ["-p", "debug", "evil.sh"] }, "args[2]: expected an option of sbatch such as --partition=short"],
  [{ args: ["--comment=a\nb"] }, "args[0]: expected one line"],
  [{ dir: "files" }, "dir: expected an absolute path such as /home/ann/laboro"],
  [{ resources: { slots: 3 } }, "resources: expected names such as gpu"],
  [{ tags: ["a b"] }, "tags[0]: expected one word such as big"],
];

describe("the worker of an allocation", () => {
  it("has the time that its start has left of the allocation", async () => {
    const setup = await openSite();
    setup.slurm.runJobs();
    // One minute, of which the last half is for tasks to end.
    await add(setup, { timeLimitMs: 60_000, before: "laboro_start=$((laboro_start - 10))" });
    const job = await work(setup.client);
    expect(await job.wait()).toBe("succeeded");
    const [worker] = [...setup.broker.core.state.workers.values()];
    const left = (worker?.profile.leavesAt ?? 0) - Date.now();
    expect([worker?.profile.name, left > 10_000, left <= 20_000]).toEqual(["a.1", true, true]);
    const [{ script } = { script: "" }] = setup.slurm.jobs;
    expect(readFileSync(script, "utf8")).toContain(" --lifetime-grace 10s ");
  });

  it("runs on each node of it, with a name of its own", async () => {
    const shop = await openSite();
    const { client, slurm } = shop;
    slurm.program(
      "srun",
      'until [ "$1" = sh ]; do shift; done; for SLURM_PROCID in 0 1; do export SLURM_PROCID; "$@" & done; wait',
    );
    slurm.runJobs();
    await add(shop, { nodes: 2, idleTimeoutMs: 1_000 });
    const go = join(shop.dir, "go");
    const line = `until [ -e ${go} ]; do sleep 0.05; done`;
    const job = await client.submit({ recipe: { kind: "command", argv: [line], shell: true }, count: 2 });
    await until("both nodes have a worker", async () => {
      const { allocations } = await client.allocators.get("a");
      return [...(allocations[0]?.workers ?? [])].sort().join() === "a.1.0,a.1.1";
    });
    writeFileSync(go, "");
    expect(await job.wait()).toBe("succeeded");
    await logs(client, "ended: COMPLETED");
    expect(slurm.jobs).toHaveLength(1);
  });

  it("tells by joining what its machine has: tasks that need it are asked for from then on", async () => {
    const setup = await openSite();
    await add(setup);
    const heavy = await work(setup.client, 1, { needs: { mem: 1 } });
    const reason = async () => (await setup.client.ask("explain", { job: heavy.id, index: 0 })).reason;
    const unknown = "the task needs 1 mem, and its workers are not known to have any; --resource mem=N declares it";
    await until("explain says so", async () => (await reason()).includes(unknown));
    await work(setup.client);
    await until("it asks", () => setup.slurm.jobs.length === 1);
    setup.slurm.set("1", "RUNNING");
    const worker = setup.worker({ name: "a.1", slots: 1, tags: [allocationTag("a", 1)], resources: { mem: 100 } });
    expect(await heavy.wait()).toBe("succeeded");
    await logs(setup.client, "joined: ");
    await worker.stop();
    setup.slurm.set("1", "COMPLETED");
    await logs(setup.client, "ended: COMPLETED");
    await work(setup.client, 1, { needs: { mem: 100 } });
    await until("it asks again", () => setup.slurm.jobs.length === 2);
    await work(setup.client, 1, { needs: { mem: 101 } });
    const { unfit } = await setup.client.ask("allocatorDryRun", { allocator: "a" });
    expect(unfit.map((one) => one.reason)).toEqual(["its workers have 100 mem, and the task needs 101"]);
  });

  it("was idle and has ended: new work asks for another one", async () => {
    const setup = await openSite();
    setup.slurm.runJobs();
    await add(setup, { idleTimeoutMs: 1_000 });
    for (const number of [1, 2]) {
      expect(await (await work(setup.client)).wait()).toBe("succeeded");
      await until(`${number} have ended in order`, async () => {
        const { allocations, failures } = await setup.client.allocators.get("a");
        return (
          allocations.map(({ state, reason }) => `${state} ${reason}`).join() ===
            Array(number).fill("ended COMPLETED").join() && failures === 0
        );
      });
    }
  });

  it("is not started where its start has left no time, and the log says so", async () => {
    const setup = await openSite();
    setup.slurm.runJobs();
    await add(setup, { timeLimitMs: 60_000, before: "laboro_start=$((laboro_start - 30))" });
    await work(setup.client);
    await logs(
      setup.client,
      "no worker has joined; its output ends with: no time is left for a worker: its start took 30 s",
    );
  });
});

describe.skipIf(NO_SSHD !== undefined)(
  `nodes that cannot reach the broker${NO_SSHD === undefined ? "" : ` (${NO_SSHD})`}`,
  () => {
    it("forward a socket through ssh for each allocation, also two on one node, and again after a cut", async () => {
      const sshd = await openSshd();
      await sshd.machine("login1");
      const setup = await openSite({ unneededMs: 60_000 });
      const { client, slurm, broker, dir } = setup;
      slurm.program("ssh", `exec /usr/bin/${sshd.command} "$@"`);
      slurm.runJobs();
      expect(await add(setup, { forward: "login1", maxWorkers: 2, backlog: 2 })).not.toHaveProperty("warning");
      const go = join(dir, "go");
      const line = `echo x >>${join(dir, "began")}; until [ -e ${go} ]; do sleep 0.05; done`;
      const job = await client.submit({ recipe: { kind: "command", argv: [line], shell: true }, count: 2 });
      const workers = () => [...broker.core.state.workers.values()].filter(({ connected }) => connected);
      await until("both have joined", () => workers().length === 2);
      sshd.cut("login1");
      await until("they are gone", () => workers().length === 0);
      await until("they are back", () => workers().length === 2);
      writeFileSync(go, "");
      expect(await job.wait()).toBe("succeeded");
      expect(new Set((await resultsOf(job)).map(({ worker }) => worker))).toEqual(new Set(["a.1", "a.2"]));
      expect(readFileSync(join(dir, "began"), "utf8")).toBe("x\nx\n");
      expect(socketsTo(broker.url)).toHaveLength(2);
      await client.allocators.remove("a", { cancelRunning: true });
      await until("nothing of them is left", () => workers().length === 0 && socketsTo(broker.url).length === 0);
    });
  },
);
