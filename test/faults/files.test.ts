/** Files on their way to a task and back, while links are cut and workers and brokers die. */
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { connect } from "../../src/entries/client.js";
import { describeFiles, fetchFiles, submitWithFiles } from "../../src/entries/files.js";
import { CuttableBroker } from "../client/cuttable-broker.js";
import { NO_MOUNT } from "../files/scratch.js";
import { atEnd } from "../support/at-end.js";
import { LABORO } from "../support/launched.js";
import { proxyTo } from "../support/proxy.js";
import { sites } from "../support/site.js";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { until } from "../support/wait.js";

/** Several messages long, and no whole number of them. */
const SIZE = 5 * 1024 * 1024 + 17;

function inputIn(dir: string): Buffer {
  const bytes = randomBytes(SIZE);
  fs.mkdirSync(join(dir, "in"), { recursive: true });
  fs.writeFileSync(join(dir, "in", "data"), bytes);
  return bytes;
}

/** A job whose tasks return what they got, and leave a mark at each run. */
const copyJob = (dir: string, line = "cp in/data out.$LABORO_TASK") => ({
  recipe: {
    kind: "command" as const,
    argv: [`echo run >> '${join(dir, "runs")}'; ${line}`],
    shell: true,
    files: { sent: describeFiles(["in"], [], dir), returns: ["out.{#}"] },
  },
  count: 2,
});

const newSite = sites();

describe("files of tasks", () => {
  it("arrive byte for byte, wherever the worker's link is cut on their way there and back", async () => {
    const { dir, broker, client, worker } = await openTestBroker();
    const bytes = inputIn(dir);
    const proxy = await proxyTo(Number(new URL(broker.url).port));
    atEnd(() => proxy.close());
    let cuts = 0;
    let left = 0;
    // Each connection is cut a little later than the one before, so that all parts of the way are met.
    worker({
      broker: proxy.url,
      slots: 1,
      onJoined: () => {
        left += 700_000;
        cuts++;
        proxy.cutAfter(left);
      },
    });
    const job = await submitWithFiles(client, copyJob(dir), dir);
    expect(await job.wait({ timeoutMs: 60_000 })).toBe("succeeded");
    expect(cuts).toBeGreaterThan(3);
    const back = join(dir, "back");
    fs.mkdirSync(back);
    expect(await fetchFiles(client, job.id, back)).toEqual(["out.1", "out.2"]);
    for (const name of ["out.1", "out.2"]) expect(fs.readFileSync(join(back, name)).equals(bytes)).toBe(true);
    // A cut costs no run: the transfer goes on where it was.
    expect(fs.readFileSync(join(dir, "runs"), "utf8")).toBe("run\nrun\n");
  });

  it("arrive byte for byte, wherever the client's link is cut", async () => {
    const { dir, broker, worker } = await openTestBroker();
    const bytes = inputIn(dir);
    worker();
    const back = join(dir, "back");
    fs.mkdirSync(back);
    let cuts = 0;
    for (let at = 0; ; at += 3) {
      const cuttable = new CuttableBroker(broker);
      let left = at;
      let cut = false;
      cuttable.pass = ({ type }) => {
        if (type === "HELLO_ACK" || cut || left-- > 0) return true;
        cut = true;
        cuts++;
        return false;
      };
      const client = await connect({ broker: cuttable });
      const job = await submitWithFiles(client, { ...copyJob(dir), count: 1 }, dir).catch(() => undefined);
      // A submission that could not be followed to its end is repeated by its caller.
      if (job !== undefined && (await job.wait({ timeoutMs: 20_000 })) === "succeeded") {
        expect(await fetchFiles(client, job.id, back)).toEqual(["out.1"]);
        expect(fs.readFileSync(join(back, "out.1")).equals(bytes)).toBe(true);
      }
      client.close();
      if (!cut) break;
    }
    expect(cuts).toBeGreaterThan(2);
    expect(fs.readdirSync(back)).toEqual(["out.1"]);
  });

  it("come from the next worker, where one is killed while it returns them", async () => {
    const site = newSite();
    const bytes = inputIn(site.dir);
    await site.startBroker();
    const client = await site.client();
    const proxy = await proxyTo(Number(new URL(site.url).port));
    site.atEnd(() => proxy.close());
    await site.startWorker("first", { url: proxy.url, slots: 1 });
    const gate = site.path("gate");
    const line = `while ! [ -e '${gate}' ]; do sleep 0.05; done; cp in/data out.$LABORO_TASK`;
    const job = await submitWithFiles(client, { ...copyJob(site.dir, line), count: 1 }, site.dir);
    await until("the task runs", () => fs.existsSync(site.path("runs")));
    // What it returns goes into a hole.
    proxy.swallow(["up"]);
    fs.writeFileSync(gate, "");
    const made = join(site.path("first"), "tasks", "1.0.1", "out.1");
    await until("it has made its file", () => fs.statSync(made, { throwIfNoEntry: false })?.size === SIZE);
    await site.workerNamed("first").end("SIGKILL");
    proxy.heal();
    await site.startWorker("second", { slots: 1 });
    expect(await job.wait({ timeoutMs: 60_000 })).toBe("succeeded");
    const back = site.path("back");
    fs.mkdirSync(back);
    expect(await fetchFiles(client, job.id, back)).toEqual(["out.1"]);
    expect(fs.readFileSync(join(back, "out.1")).equals(bytes)).toBe(true);
    expect(fs.readFileSync(site.path("runs"), "utf8")).toBe("run\nrun\n");
  });

  it("are still there after kill -9 of the broker, for the tasks that have not run", async () => {
    const site = newSite();
    const bytes = inputIn(site.dir);
    await site.startBroker();
    const client = await site.client();
    const job = await submitWithFiles(client, copyJob(site.dir), site.dir);
    await site.broker.end("SIGKILL");
    await site.startBroker();
    await site.startWorker("only", { slots: 1 });
    expect(await client.job(job.id).wait({ timeoutMs: 60_000 })).toBe("succeeded");
    const again = await site.client();
    const back = site.path("back");
    fs.mkdirSync(back);
    expect(await fetchFiles(again, job.id, back)).toEqual(["out.1", "out.2"]);
    expect(fs.readFileSync(join(back, "out.2")).equals(bytes)).toBe(true);
    expect(await resultsOf(again.job(job.id))).toHaveLength(2);
  });

  /** A broker behind a slow link, and the command line in the folder of its files. */
  async function slowly() {
    const site = newSite();
    const bytes = inputIn(site.dir);
    await site.startBroker();
    const proxy = await proxyTo(Number(new URL(site.url).port));
    site.atEnd(() => proxy.close());
    proxy.delay(150);
    const env = { LABORO_BROKER: proxy.url.replace("//", `//${site.token}@`), HOME: site.dir };
    const prefix = ["sh", "-c", `cd '${site.dir}' && exec "$@"`, "sh"];
    const launch = (...words: string[]) => site.launch(`laboro ${words[0]}`, [LABORO, ...words], { env, prefix });
    const client = await site.client();
    /** Of the file of job 1. */
    const stored = (): Promise<number> =>
      client.ask("sendFile", { job: 1, file: 0 }).then(({ stored }) => stored, zero);
    const someIsStored = () => until("a part of the file is there", async () => (await stored()) > 0);
    return { site, bytes, proxy, launch, client, stored, someIsStored };
  }
  const zero = (): number => 0;
  const TASK = ["--send", "in/data", "--return", "out.{#}", "--", "echo run >>$PWD/../runs; cp in/data out.1"];

  it("are sent on by the same command after kill -9 of a run that sends them", async () => {
    const { site, bytes, proxy, launch, client, stored, someIsStored } = await slowly();
    const killed = launch("run", ...TASK);
    await someIsStored();
    await killed.end("SIGKILL");
    const before = await stored();
    expect(before).toBeLessThan(SIZE);
    expect((await client.ask("job", { job: 1 })).state).toBe("held");
    proxy.delay(0);
    await site.startWorker("one", { slots: 1 });
    const again = launch("run", ...TASK);
    await again.ended();
    expect([again.exitCode, again.said]).toEqual([0, expect.stringContaining("1 succeeded")]);
    expect((await client.ask("jobs", {})).jobs).toHaveLength(1);
    expect(fs.readFileSync(site.path("out.1")).equals(bytes)).toBe(true);
  });

  it("keep their job held after kill -9 of a submit that sends them", async () => {
    const { launch, client, someIsStored } = await slowly();
    const killed = launch("submit", ...TASK);
    await someIsStored();
    await killed.end("SIGKILL");
    expect((await client.ask("job", { job: 1 })).state).toBe("held");
    const cancel = launch("cancel", "1");
    await cancel.ended();
    expect([cancel.exitCode, (await client.ask("job", { job: 1 })).state]).toEqual([0, "cancelled"]);
  });

  it("are refused if they become shorter while they are sent, and their job is cancelled", async () => {
    const { site, launch, client, someIsStored } = await slowly();
    const submit = launch("submit", ...TASK);
    await someIsStored();
    fs.truncateSync(site.path("in/data"), 1_000);
    await submit.ended();
    expect([submit.exitCode, submit.said]).toEqual([2, expect.stringMatching(/--send in\/data: it became shorter/)]);
    expect((await client.ask("job", { job: 1 })).state).toBe("cancelled");
  });

  it("wait while the broker's disk is full, and go on when there is room", async (context) => {
    const site = newSite();
    try {
      fs.mkdirSync(site.data);
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", site.data], { stdio: "pipe" });
    } catch {
      return context.skip(NO_MOUNT);
    }
    site.atEnd(() => void execFileSync("umount", ["-l", site.data]));
    await site.startBroker();
    const client = await site.client();
    await site.startWorker("one", { slots: 1 });
    const bytes = inputIn(site.dir);
    const filler = join(site.data, "filler");
    fs.writeFileSync(filler, Buffer.alloc(9 * 2 ** 20));
    const submitted = submitWithFiles(client, { ...copyJob(site.dir), count: 1 }, site.dir);
    await site.broker.says(/LABORO_DISK_FULL/);
    fs.rmSync(filler);
    const job = await submitted;
    expect(await job.wait({ timeoutMs: 60_000 })).toBe("succeeded");
    const back = site.path("back");
    fs.mkdirSync(back);
    await fetchFiles(client, job.id, back);
    expect(fs.readFileSync(join(back, "out.1")).equals(bytes)).toBe(true);
  });
});
