import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Client, LaboroError } from "../../src/entries/client.js";
import { fill } from "../files/scratch.js";
import { account, lostOutputs, RunLog, resultsOf } from "../support/batch.js";
import { batchUnder, FULL, report, TEST_MS } from "../support/fault-batch.js";
import { LABORO, Launched } from "../support/launched.js";
import { TRUE } from "../support/recipes.js";
import { type Site, sites } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const newSite = sites();
/** Of each job that fills the disk. */
const ENTRIES = 50;

/** Why no small disk can be mounted here, if so. */
const noMount = ((): string | undefined => {
  const probe = fs.mkdtempSync("/tmp/laboro-probe-");
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", probe], { stdio: "pipe" });
    execFileSync("umount", [probe]);
    return undefined;
  } catch (cause) {
    return String(cause).split("\n").slice(0, 2).join(" ");
  } finally {
    fs.rmdirSync(probe);
  }
})();
const skipped = noMount === undefined ? "" : ` (skipped, cannot mount: ${noMount})`;

function mountSmallDisk(site: Site, dir: string): void {
  fs.mkdirSync(dir);
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", dir]);
  site.atEnd(() => void execFileSync("umount", ["-l", dir]));
}

/** A broker on a disk of its own; the workers' directories are elsewhere. */
async function onSmallDisk(site: Site): Promise<Client> {
  mountSmallDisk(site, site.data);
  await site.startBroker();
  return site.client();
}

const codeOf = (asked: Promise<unknown>): Promise<string | undefined> =>
  asked.then(
    () => undefined,
    (cause: unknown) => (cause instanceof LaboroError ? cause.code : String(cause)),
  );

/** Submits jobs that never run: one, then the disk is filled, then more until the broker has no room left even in the files that it has. */
async function fillUp(site: Site, client: Client) {
  const entries = Array.from({ length: ENTRIES }, (_, i) => `entry ${i}`);
  const submit = () => client.submit({ recipe: TRUE, entries, pool: "nobody" });
  const taken = [(await submit()).id];
  const ballast = fill(site.data);
  let code: string | undefined;
  for (let i = 0; i < 2_000 && code === undefined; i++) {
    code = await codeOf(submit().then(({ id }) => taken.push(id)));
  }
  return { ballast, taken, code };
}

/** Resolves when the broker, which has nothing left that it could try to write, no longer refuses unseen. */
async function hopeful(client: Client): Promise<void> {
  await until("the broker would try again", async () => {
    const { events } = await client.ask("events", { after: 0 });
    const kinds = events.map(({ kind }) => kind);
    return kinds.lastIndexOf("broker-resumed") > kinds.lastIndexOf("broker-halted");
  });
}

describe.skipIf(noMount !== undefined)(`a worker whose disk is full${skipped}`, () => {
  it(
    "loses nothing, also where its broker is killed meanwhile",
    async () => {
      const site = newSite();
      await site.startBroker();
      mountSmallDisk(site, site.path("one"));
      const worker = await site.startWorker("one", { slots: 2 });
      const said = (): string => worker.said.slice(-3_000);
      const batch = { fault: "disk of the worker full, then kill -9 of the broker", tasks: FULL ? 500 : 100, said };
      await batchUnder({ ...batch, client: await site.client(), dir: site.dir }, async () => {
        const ballast = fill(site.path("one"));
        await site.broker.end("SIGKILL");
        await worker.says("LABORO_DISK_FULL");
        await site.startBroker();
        fs.rmSync(ballast);
      });
    },
    TEST_MS,
  );
});

describe.skipIf(noMount !== undefined)(`laboro run whose disk is full${skipped}`, () => {
  it("says what to do, goes on by itself when there is room, and prints all output", async () => {
    const site = newSite();
    mountSmallDisk(site, site.path("disk"));
    const ballast = join(site.path("disk"), "ballast");
    fs.writeFileSync(ballast, Buffer.alloc(5_000_000));
    const line = "head -c 1500000 /dev/zero | tr '\\0' x; echo {}";
    const run = new Launched("run", [LABORO, "run", "-j", "1", line, ":::", "1", "2", "3"], {
      env: { ...process.env, HOME: site.dir },
      // Its output alone: notices come on standard error, in the middle of it.
      prefix: ["env", "-C", site.path("disk"), "sh", "-c", 'exec "$@" >../out', "sh"],
    });
    site.atEnd(() => run.end("SIGKILL"));
    await run.says("no work is assigned or accepted for now");
    await run.says("free disk space, for example with laboro clean");
    fs.rmSync(ballast);
    await run.says("3 tasks: 3 succeeded");
    const printed = ["1", "2", "3"].map((entry) => `${"x".repeat(1_500_000)}${entry}\n`).join("");
    expect(fs.readFileSync(site.path("out"), "utf8") === printed).toBe(true);
  });
});

describe.skipIf(noMount !== undefined)(`a broker whose disk is full${skipped}`, () => {
  it.each([
    ["goes on by itself", false],
    ["goes on after a kill -9", true],
  ])(
    "refuses submissions with a code, keeps running work's results, and %s when there is room",
    async (_how, killed) => {
      const site = newSite();
      const client = await onSmallDisk(site);
      await site.startWorker("one", { slots: 4 });
      const log = new RunLog(site.path("runs"));
      const go = site.path("go");
      const running = await client.submit({
        recipe: log.speakingRecipe(`while [ ! -e '${go}' ]; do sleep 0.02; done`),
        count: 4,
      });
      const behind = await client.submit({ recipe: log.speakingRecipe(), count: 200, priority: -1 });
      await until("four run", () => log.count === 4);

      const { ballast, taken, code } = await fillUp(site, client);
      expect(code).toBe("LABORO_DISK_FULL");
      await site.broker.says("LABORO_DISK_FULL");

      // The tasks end while nothing can be recorded: their worker keeps the results.
      fs.writeFileSync(go, "");
      const spool = site.path("one/results");
      const keys = Array.from({ length: 4 }, (_, i) => `${running.id}.${i}.1`);
      await until("the worker has spooled them", () => {
        const text = fs.readFileSync(spool, "latin1");
        return keys.every((key) => text.includes(key));
      });
      const heard = async (): Promise<boolean> => (await running.info()).counters.running === 0;
      await until("the broker has heard that they ended", heard);
      expect(await resultsOf(running)).toEqual([]);
      expect(site.broker.over).toBe(false);

      if (killed) await site.broker.end("SIGKILL");
      fs.rmSync(ballast);
      if (killed) await site.startBroker();
      expect(await running.wait()).toBe("succeeded");
      expect(await behind.wait()).toBe("succeeded");
      for (const id of taken) {
        expect(await client.job(id).info()).toMatchObject({ count: ENTRIES, counters: { waiting: ENTRIES } });
      }
      const first = await account(client, running.id, 4, log);
      const second = await account(client, behind.id, 200);
      const runs = log.runs().length;
      const outputsLost = [
        ...(await lostOutputs(client, running.id, 4)),
        ...(await lostOutputs(client, behind.id, 200)),
      ];
      report({
        fault: killed ? "disk of the broker full, then kill -9" : "disk of the broker full",
        submissionsLost: 0,
        resultsLost: first.lost.length + second.lost.length,
        outputsLost: outputsLost.length,
        recordedTwice: 0,
        startedTwice: runs - 204,
      });
      expect([...first.lost, ...second.lost]).toEqual([]);
      expect(runs).toBe(204);
      expect(outputsLost).toEqual([]);
      expect(await codeOf(client.submit({ recipe: TRUE }))).toBeUndefined();
    },
    60_000,
  );

  it("refuses a hold and a cancel with the same code, each time it is asked", async () => {
    const site = newSite();
    const client = await onSmallDisk(site);
    const job = await client.submit({ recipe: TRUE, count: 10 });
    const { ballast, code } = await fillUp(site, client);
    expect(code).toBe("LABORO_DISK_FULL");
    const late = (): Promise<string> => sleep(3_000).then(() => "no answer within 3 s");
    const answers: (string | undefined)[] = [];
    for (let i = 0; i < 4; i++) {
      const asked = i % 2 === 0 ? job.hold() : job.cancel([{ first: 0, last: 0 }]);
      answers.push(await Promise.race([codeOf(asked), late()]));
      // The first two are refused unseen, the others only after it was tried to write them.
      if (i > 0) await hopeful(client);
    }
    fs.rmSync(ballast);
    await until("it takes them again", async () => (await codeOf(job.hold())) === undefined);
    expect((await job.info()).held).toBe(true);
    console.log(`disk full, holds and cancels: answers: ${answers.join(", ")}`);
    expect(answers).toEqual(Array.from({ length: 4 }, () => "LABORO_DISK_FULL"));
  });

  it("does not say that there is room before there is", async () => {
    const site = newSite();
    const client = await onSmallDisk(site);
    const { ballast, taken } = await fillUp(site, client);
    const codes: (string | undefined)[] = [];
    for (let i = 0; i < 3; i++) {
      await hopeful(client);
      codes.push(await codeOf(client.submit({ recipe: TRUE, entries: ["a".repeat(50_000)] })));
    }
    expect(codes).toEqual(["LABORO_DISK_FULL", "LABORO_DISK_FULL", "LABORO_DISK_FULL"]);
    expect(site.broker.said).not.toContain("can be written again");
    fs.rmSync(ballast);
    await until(
      "it takes submissions again",
      async () => (await codeOf(client.submit({ recipe: TRUE }))) === undefined,
    );
    console.log(
      `disk full for three submissions: refused: ${codes.filter((one) => one !== undefined).length}, taken before: ${taken.length}`,
    );
  });

  it("refuses to start with a code, and starts once there is room", async () => {
    const site = newSite();
    const client = await onSmallDisk(site);
    const job = await client.submit({ recipe: TRUE, count: 10 });
    await site.broker.end("SIGTERM");
    const ballast = fill(site.data);
    const refused = await site.launchBroker();
    await refused.ended();
    expect(refused.exitCode).not.toBe(0);
    expect(refused.said).toContain(
      `the disk of ${site.data} is full, so the broker does not start: free some space there`,
    );
    expect(refused.said).toContain("LABORO_DISK_FULL");
    // What is true of a broker that runs.
    expect(refused.said).not.toContain("by itself");
    fs.rmSync(ballast);
    await site.startBroker();
    const full = fill(site.data);
    const worker = site.launch("a worker", [LABORO, "worker", "--data", site.data, "--dir", join(site.data, "worker")]);
    await worker.ended();
    expect(worker.said).toContain(`the disk of ${join(site.data, "worker")} is full, so the worker does not start`);
    fs.rmSync(full);
    await site.startWorker("one");
    expect(await job.wait()).toBe("succeeded");
    const { lost } = await account(client, job.id, 10);
    console.log(`broker started on a full disk, then again: lost: ${lost.length}`);
    expect(lost).toEqual([]);
    expect(fs.existsSync(join(site.data, "filler"))).toBe(false);
  });
});
