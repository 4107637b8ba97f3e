import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Client, LaboroError } from "../../src/entries/client.js";
import { fill } from "../files/scratch.js";
import { account, RunLog, resultsOf } from "../support/batch.js";
import { batchUnder, FULL, TEST_MS } from "../support/fault-batch.js";
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

const ROUNDS = FULL ? 5 : 1;
const TASKS = FULL ? 500 : 100;

describe.skipIf(noMount !== undefined)(`a disk that is full for a while under a batch${skipped}`, () => {
  it(
    "of the broker, which is then killed: nothing is lost",
    async () => {
      const site = newSite();
      const client = await onSmallDisk(site);
      await site.startWorker("one", { slots: 2 });
      const said = (): string => site.broker.said.slice(-3_000);
      const batch = { fault: "disk of the broker full, then kill -9", tasks: TASKS, client, dir: site.dir, said };
      await batchUnder(batch, async () => {
        for (let round = 0; round < ROUNDS; round++) {
          const ballast = fill(site.data);
          await sleep(500);
          fs.rmSync(ballast);
          await site.broker.end("SIGKILL");
          await site.startBroker();
        }
      });
    },
    TEST_MS,
  );

  it(
    "of a worker: nothing is lost",
    async () => {
      const site = newSite();
      await site.startBroker();
      mountSmallDisk(site, site.path("one"));
      const worker = await site.startWorker("one", { slots: 2 });
      const said = (): string => worker.said.slice(-3_000);
      const client = await site.client();
      await batchUnder({ fault: "disk of the worker full", tasks: TASKS, client, dir: site.dir, said }, async () => {
        const ballast = fill(site.path("one"));
        await site.broker.end("SIGKILL");
        await sleep(1_000);
        await site.startBroker();
        fs.rmSync(ballast);
      });
    },
    TEST_MS,
  );
});

describe.skipIf(noMount !== undefined)(`a broker whose disk is full${skipped}`, () => {
  it("refuses submissions with a code, keeps running work's results, and goes on by itself when there is room", async () => {
    const site = newSite();
    const client = await onSmallDisk(site);
    await site.startWorker("one", { slots: 4 });
    const log = new RunLog(site.path("runs"));
    const go = site.path("go");
    const running = await client.submit({
      recipe: log.recipe(`while [ ! -e '${go}' ]; do sleep 0.02; done; echo out`),
      count: 4,
    });
    const behind = await client.submit({ recipe: log.recipe(), count: 200, priority: -1 });
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

    fs.rmSync(ballast);
    expect(await running.wait()).toBe("succeeded");
    expect(await behind.wait()).toBe("succeeded");
    for (const id of taken) {
      expect(await client.job(id).info()).toMatchObject({ count: ENTRIES, counters: { waiting: ENTRIES } });
    }
    const first = await account(client, running.id, 4, log);
    const second = await account(client, behind.id, 200);
    const runs = log.runs().length;
    console.log(
      `disk full under a batch: lost: ${first.lost.length + second.lost.length}, run twice: ${runs - 204}, submissions taken before: ${taken.length}`,
    );
    expect([...first.lost, ...second.lost]).toEqual([]);
    expect(runs).toBe(204);
    expect(await running.text(3)).toBe("out\n");
    expect(await codeOf(client.submit({ recipe: TRUE }))).toBeUndefined();
  }, 60_000);

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
  }, 60_000);

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
  }, 30_000);

  it("refuses to start with a code, and starts once there is room", async () => {
    const site = newSite();
    const client = await onSmallDisk(site);
    const job = await client.submit({ recipe: TRUE, count: 10 });
    await site.broker.end("SIGTERM");
    const ballast = fill(site.data);
    const refused = await site.launchBroker();
    await refused.ended();
    expect(refused.exitCode).not.toBe(0);
    expect(refused.said).toContain("LABORO_DISK_FULL");
    fs.rmSync(ballast);
    await site.startBroker();
    await site.startWorker("one");
    expect(await job.wait()).toBe("succeeded");
    const { lost } = await account(client, job.id, 10);
    console.log(`broker started on a full disk, then again: lost: ${lost.length}`);
    expect(lost).toEqual([]);
    expect(fs.existsSync(join(site.data, "filler"))).toBe(false);
  }, 30_000);
});
