import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { totalmem } from "node:os";
import { describe, expect, it } from "vitest";
import { resultsOf } from "../support/batch.js";
import { freePort } from "../support/free-port.js";
import { LABORO, type Launched } from "../support/launched.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();

function launch(site: Site, ...options: string[]): Launched {
  return site.launch("worker", [LABORO, "worker", "--dir", site.path("worker"), "--name", "w", ...options]);
}

async function endOf(worker: Launched): Promise<{ code: number | null; said: string }> {
  await worker.ended();
  return { code: worker.exitCode, said: worker.said };
}

/** As `--join @FILE` takes it. */
function joinFile(site: Site, token = site.token): string {
  const file = site.path("join");
  writeFileSync(file, `${site.url.replace("://", `://${token}@`)}\n`, { mode: 0o600 });
  return `@${file}`;
}

describe("laboro worker", () => {
  it("joins by a file, works, answers requests, and says why it stopped", async () => {
    const site = newSite();
    await site.startBroker();
    const worker = launch(site, "--join", joinFile(site), "--slots", "2", "--service", "upper=tr a-z A-Z");
    await worker.says("joined the broker");
    const client = await site.client();
    const job = await client.submit({ recipe: { kind: "command", argv: ["true"] }, count: 5 });
    expect(await job.wait()).toBe("succeeded");
    expect(Buffer.from(await client.request("upper", "abc")).toString()).toBe("ABC");
    expect(await client.workers()).toMatchObject([{ name: "w", total: { slots: 2 }, services: ["upper"] }]);
    worker.signal("SIGTERM");
    expect(await endOf(worker)).toMatchObject({
      code: 0,
      said: expect.stringContaining("w has stopped: SIGTERM came"),
    });
    expect(worker.said).not.toContain(site.token);
  });

  it("offers the memory that it finds, unless --no-detect is given", async () => {
    const site = newSite();
    await site.startBroker();
    const client = await site.client();
    const totalWith = async (...options: string[]) => {
      const worker = launch(site, "--join", joinFile(site), "--slots", "1", ...options);
      await worker.says("joined the broker");
      const [{ total } = { total: undefined }] = await client.workers();
      worker.signal("SIGTERM");
      await worker.ended();
      return total;
    };
    const { mem = 0 } = (await totalWith()) ?? {};
    // A container may have less than its machine.
    expect(mem).toBeGreaterThan(0);
    expect(mem).toBeLessThanOrEqual(totalmem() / 2 ** 20);
    expect(await totalWith("--no-detect")).toEqual({ slots: 1 });
    expect(await totalWith("--resource", "mem=7")).toMatchObject({ mem: 7 });
  });

  it("lets commands end after SIGTERM, and returns those that are killed with it or run past --stop-grace", async () => {
    const site = newSite();
    await site.startBroker();
    const client = await site.client();
    const worker = launch(site, "--join", joinFile(site), "--slots", "3", "--stop-grace", "2s");
    const go = site.path("go");
    const script = `[ $LABORO_ATTEMPT = 2 ] && exit; echo $$ > ${go}.$LABORO_TASK
      [ $LABORO_TASK = 1 ] || sleep 60; while [ ! -e ${go} ]; do sleep 0.02; done`;
    const job = await client.submit({
      ...{ recipe: { kind: "command", argv: ["/bin/sh", "-c", script] }, count: 3, crashLimit: 1 },
    });
    const pids = await until("all run", () => {
      const files = [1, 2, 3].map((task) => `${go}.${task}`);
      return files.every((file) => existsSync(file)) && files.map((file) => Number(readFileSync(file, "utf8")));
    });
    worker.signal("SIGTERM");
    await until("it stops", async () => (await client.workers())[0]?.draining);
    process.kill(pids[1] ?? 0, "SIGTERM");
    writeFileSync(go, "");
    expect(await endOf(worker)).toMatchObject({ code: 0 });
    launch(site, "--join", joinFile(site));
    expect(await job.wait()).toBe("succeeded");
    const attempts = (await resultsOf(job)).map(({ attempt }) => attempt);
    expect(attempts).toEqual([1, 2, 2]);
  });

  it("waits for a broker that is not there yet, and says so once", async () => {
    const site = newSite();
    const worker = launch(site, "--data", site.data);
    await worker.says("waiting for one");
    await site.startBroker();
    await worker.says("joined the broker");
    expect(worker.said.split("waiting for one")).toHaveLength(2);
  });

  it("follows its broker to another port", async () => {
    const site = newSite();
    await site.startBroker();
    const worker = launch(site, "--data", site.data);
    await worker.says("joined the broker");
    await site.broker.end("SIGTERM");
    await worker.says("trying again until it answers");
    const elsewhere = site.launch("another", [
      LABORO,
      "serve",
      "--data",
      site.data,
      "--listen",
      `127.0.0.1:${await freePort()}`,
    ]);
    await elsewhere.says("listening on");
    await until("it has joined again", () => worker.said.split("joined the broker").length === 3);
  });

  it("ends with 3 where the broker refuses it, and with --no-wait where there is none", async () => {
    const site = newSite();
    const none = await endOf(launch(site, "--data", site.data, "--no-wait"));
    expect(none).toMatchObject({ code: 3, said: expect.stringContaining("LABORO_BROKER_UNREACHABLE") });
    const deaf = site.path("deaf");
    writeFileSync(deaf, `http://token@127.0.0.1:${await freePort()}`);
    const nobody = await endOf(launch(site, "--join", `@${deaf}`, "--no-wait"));
    expect(nobody).toMatchObject({ code: 3, said: expect.stringContaining("LABORO_BROKER_UNREACHABLE") });
    await site.startBroker();
    const refused = await endOf(launch(site, "--join", joinFile(site, "wrong")));
    expect(refused).toMatchObject({ code: 3, said: expect.stringContaining("LABORO_BAD_TOKEN") });
  });

  it("says which directory it cannot use", async () => {
    const site = newSite();
    writeFileSync(site.path("file"), "");
    const below = site.path("file/below");
    const env = { LABORO_BROKER: "http://token-of-nobody@127.0.0.1:1" };
    const own = await endOf(site.launch("worker", [LABORO, "worker", "--dir", below], { env }));
    expect(own).toMatchObject({ code: 1, said: expect.stringContaining(`cannot use the directory ${below}: ENOTDIR`) });
    expect(own.said).toContain("(LABORO_DATA_UNUSABLE)");
  });

  it("leaves no program behind when it is killed", async () => {
    const site = newSite();
    await site.startBroker();
    const cat = ["--service-mode", "lines", "--service", "echo=cat"];
    const worker = launch(site, "--join", joinFile(site), ...cat);
    await worker.says("joined the broker");
    const client = await site.client();
    expect(Buffer.from(await client.request("echo", "x")).toString()).toBe("x");
    const programs = (): number => site.processes().filter(({ command }) => /^cat\b/.test(command)).length;
    expect(programs()).toBe(1);
    await worker.end("SIGKILL");
    await until("its program is gone", () => programs() === 0, 6_000);
  });

  it("ends with 0 when its lifetime is over or it was idle for too long", async () => {
    const site = newSite();
    await site.startBroker();
    const lived = await endOf(launch(site, "--data", site.data, "--lifetime", "1s"));
    expect(lived).toMatchObject({ code: 0, said: expect.stringContaining("its lifetime of 1s is over") });
    const idle = await endOf(launch(site, "--data", site.data, "--idle-timeout", "500ms"));
    expect(idle).toMatchObject({ code: 0, said: expect.stringContaining("it had nothing to do for 500ms") });
  });

  it.each([
    ["--slots", "0"],
    ["--lifetime", "90 parsecs"],
    ["--min-memory", "much"],
    ["--resource", "gpu"],
    ["--service", "noname"],
    ["--service-mode", "telepathy"],
    ["--join", "node1:5429"],
    ["--name", "a b"],
  ])("ends with 2 for %s %s", async (option, value) => {
    const site = newSite();
    const { code, said } = await endOf(launch(site, option, value));
    expect([code, said.includes(option) || said.includes("--broker")]).toEqual([2, true]);
  });
});
