/** The text of the protocol, its server side, rule by rule, with literal runners at the manager. The table in the docs lists these tests. */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { newStudy, openBatch, writeScripts } from "./batch-kit.js";
import { LiteralRunner } from "./peers.js";
import { openPlace } from "./place.js";

const echo = { kind: "command", argv: ["echo", "x"] } as const;

/** A folder with these scripts, and a runner that has said JES. */
async function study(scripts: Readonly<Record<string, string>>, options: Parameters<typeof openBatch>[1] = {}) {
  const dir = newStudy();
  writeScripts(dir, scripts);
  const opened = await openBatch(dir, options);
  const join_ = (host: string): Promise<LiteralRunner> => LiteralRunner.join(opened.port, host);
  return {
    ...opened,
    dir,
    join: join_,
    res: (name: string) => readFileSync(join(dir, "outputs", `${name}.res`), "utf8"),
  };
}

/** Another runner comes, and is answered: whatever the manager had to say before, it has said. */
async function barrier(port: number): Promise<void> {
  const other = await LiteralRunner.join(port, "barrier");
  await other.leaves();
}

describe("server state 1: Accept", () => {
  it("Accept 1: waits for a connection", async () => {
    const { port } = await openPlace();
    const runner = await LiteralRunner.connect(port);
    await barrier(port);
    expect([runner.hasHeardNothing(), runner.closed]).toEqual([true, false]);
  });

  it("Accept 2: takes the host name of the hail for the client's identifier", async () => {
    const { port, client, join: joinAs } = await openPlace();
    await joinAs("node-1_B");
    await until("it is there", async () => (await client.workers()).length === 1);
    expect((await client.workers()).map(({ name }) => name)).toEqual(["node-1_B"]);
    expect(port).toBeGreaterThan(0);
  });

  it.each(["SALUTON MI a", "SALUTON; MI a b", "PETO"])("Accept 3: ends the connection after %j", async (hail) => {
    const { port } = await openPlace();
    const runner = await LiteralRunner.connect(port);
    runner.say(hail);
    await runner.isClosed();
    expect(runner.hasHeardNothing()).toBe(true);
  });

  it("Accept 4: answers the hail with VERSIO and the version", async () => {
    const { port } = await openPlace();
    const runner = await LiteralRunner.connect(port);
    runner.say("SALUTON; MI a");
    await runner.hears("VERSIO 1.3");
  });

  it("Accept 5: waits for KOMPRENAS, and takes nothing else", async () => {
    const { port } = await openPlace();
    const [patient, hasty] = [await LiteralRunner.connect(port), await LiteralRunner.connect(port)];
    for (const runner of [patient, hasty]) {
      runner.say("SALUTON; MI a");
      await runner.hears("VERSIO 1.3");
    }
    hasty.say("PETO");
    await hasty.isClosed();
    await barrier(port);
    expect([patient.hasHeardNothing(), patient.closed]).toEqual([true, false]);
  });

  it("Accept 6: answers KOMPRENAS with ALIGI and the name of its group", async () => {
    for (const [pool, group] of [
      [undefined, "__defaulte__"],
      ["mine", "mine"],
    ] as const) {
      const { port } = await openPlace(pool === undefined ? {} : { pool });
      const runner = await LiteralRunner.connect(port);
      runner.say("SALUTON; MI a");
      await runner.hears("VERSIO 1.3");
      runner.say("KOMPRENAS");
      await runner.hears(`ALIGI ${group}`);
    }
  });

  it("Accept 7: waits for JES, which has no answer", async () => {
    const { port, client } = await openPlace();
    const runner = await LiteralRunner.connect(port);
    runner.say("SALUTON; MI a");
    await runner.hears("VERSIO 1.3");
    runner.say("KOMPRENAS");
    await runner.hears("ALIGI __defaulte__");
    await barrier(port);
    expect((await client.workers()).map(({ name }) => name)).not.toContain("a");
    runner.say("JES");
    await until("it is there", async () => (await client.workers()).some(({ name }) => name === "a"));
    expect(runner.hasHeardNothing()).toBe(true);
  });

  it("Accept 8: serves a client and still expects others", async () => {
    const { join: joinAs, client } = await openPlace();
    const job = await client.submit({ recipe: echo, count: 2 });
    const runners = [await joinAs("a"), await joinAs("b")];
    const jobs = [];
    for (const runner of runners) jobs.push(await runner.takes());
    expect(jobs.map(({ name }) => name).sort()).toEqual([`laboro-${job.id}.1`, `laboro-${job.id}.2`]);
  });
});

describe("server state 2: Wait", () => {
  it("Wait 1: says nothing until the client does", async () => {
    const { join: joinAs, port, client } = await openPlace();
    const runner = await joinAs("a");
    await client.submit({ recipe: echo });
    await barrier(port);
    expect(runner.hasHeardNothing()).toBe(true);
  });

  it("Wait 2: sends a job after PETO, and processes one after REZULTO", async () => {
    const { join: joinAs } = await study({ "a.sh": "1", "b.sh": "2" });
    const runner = await joinAs("vm");
    const job = await runner.takes();
    runner.say(`REZULTO ${job.name} success 1`);
    await runner.hears("PRETA");
    runner.say("x");
    await runner.hears("RICEVIS");
    expect((await runner.takes()).name).not.toBe(job.name);
  });
});

describe("server state 3: SendJob", () => {
  it("SendJob 1: goes to WaitClose when there are no more jobs, also where its client still runs some", async () => {
    const { join: joinAs } = await study({ "a.sh": "1" });
    const runner = await joinAs("vm");
    const { name } = await runner.takes();
    runner.say("PETO");
    await runner.hears("FINO");
    await runner.delivers(name, "success", "x");
    await runner.leaves();
  });

  it("SendJob 2: takes the next job and sends LABORO with its name, type and size", async () => {
    const { join: joinAs } = await study({ "sub dir/my job.sh": "echo 1\n" });
    const runner = await joinAs("vm");
    runner.say("PETO");
    await runner.hears("LABORO sub dir/my job .sh 7");
    const other = await study({ "m.m": "" });
    const second = await other.join("vm");
    second.say("PETO");
    await second.hears("LABORO m .m 0");
  });

  it("SendJob 3: waits for PRETA before it sends the contents", async () => {
    const { join: joinAs, port } = await study({ "a.sh": "echo 1\n" });
    const runner = await joinAs("vm");
    runner.say("PETO");
    await runner.hears("LABORO a .sh 7");
    await barrier(port);
    expect(runner.hasHeardNothing()).toBe(true);
    runner.say("PRETA");
    await runner.hears("echo 1\n");
  });

  it("SendJob 4: sends the contents of the job, byte for byte", async () => {
    const content = "\0\r\n RES: \t\x7f end";
    const { join: joinAs } = await study({ "a.sh": content });
    const runner = await joinAs("vm");
    expect((await runner.takes()).script.toString("latin1")).toBe(content);
  });

  it("SendJob 5: goes back to Wait: the next PETO and REZULTO are taken", async () => {
    const { join: joinAs } = await study({ "a.sh": "1", "b.sh": "2" });
    const runner = await joinAs("vm");
    const jobs = [await runner.takes(), await runner.takes()];
    for (const { name } of jobs) await runner.delivers(name, "success", "x");
  });
});

describe("server state 3-2: ClientOnHold", () => {
  it("ClientOnHold 1: answers PETO with ELIRI, and still takes results of earlier jobs", async () => {
    const scripts = Object.fromEntries(Array.from({ length: 14 }, (_, i) => [`e${i}.sh`, "x"]));
    const { join: joinAs, res } = await study(scripts, { standing: true });
    const runner = await joinAs("bad");
    const kept = await runner.takes();
    for (let i = 0; i < 10; i++) await runner.delivers((await runner.takes()).name, "failure", "no");
    runner.say("PETO");
    await runner.hears("ELIRI");
    await runner.delivers(kept.name, "success", "late");
    expect(res(kept.name)).toBe("late");
    runner.say("PETO");
    await runner.hears("ELIRI");
    await runner.leaves();
  });

  it("ClientOnHold 1: answers PETO with ATENDI until it has evaluated the client's last jobs", async () => {
    const scripts = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`e${i}.sh`, "x"]));
    const { join: joinAs } = await study(scripts, { standing: true });
    const runner = await joinAs("lazy");
    const kept = await runner.takes();
    for (let i = 0; i < 10; i++) await runner.delivers((await runner.takes()).name, i < 7 ? "success" : "failure", "x");
    runner.say("PETO");
    await runner.hears("ATENDI");
    await runner.delivers(kept.name, "success", "x");
    // Its last jobs are evaluated: it gets one more.
    await runner.delivers((await runner.takes()).name, "success", "x");
    const [one, two] = [await runner.takes(), await runner.takes()];
    expect(one.name).not.toBe(two.name);
  });
});

describe("server state 4: ProcessJob", () => {
  it("ProcessJob 1: drops a client whose job was never spawned", async () => {
    const { join: joinAs, port, complaints } = await study({ "a.sh": "1" });
    const runner = await joinAs("vm");
    runner.say("REZULTO a success 1");
    await runner.isClosed();
    expect(runner.hasHeardNothing()).toBe(true);
    await barrier(port);
    expect(complaints).toEqual([
      expect.stringContaining('vm is disconnected: a result of "a", which was never assigned to it'),
    ]);
  });

  it.each(["success", "failure"])("ProcessJob 2: takes note of the status %s", async (status) => {
    const { join: joinAs, batch, aftermath } = await study({ "a.sh": "1", "b.sh": "2" });
    const runner = await joinAs("vm");
    const { name } = await runner.takes();
    await runner.delivers(name, status, "x");
    expect([batch.hasEnded(name), batch.failed.includes(name)]).toEqual([true, status === "failure"]);
    expect(aftermath.isDone(name)).toBe(status === "success");
  });

  it("ProcessJob 3: sends PRETA when it is ready for the output", async () => {
    const { join: joinAs } = await study({ "a.sh": "1" });
    const runner = await joinAs("vm");
    const { name } = await runner.takes();
    runner.say(`REZULTO ${name} success 1`);
    await runner.hears("PRETA");
  });

  it.each(["5", "0005"])("ProcessJob 4: receives as many bytes as %s says, however they arrive", async (size) => {
    const { join: joinAs, res, port } = await study({ "a.sh": "1", "b.sh": "2" });
    const runner = await joinAs("vm");
    const { name } = await runner.takes();
    runner.say(`REZULTO ${name} success ${size}`);
    await runner.hears("PRETA");
    runner.say("PE");
    await barrier(port);
    expect(runner.hasHeardNothing()).toBe(true);
    // The rest, and what follows it.
    runner.say("TO\nPETO");
    await runner.hears("RICEVIS");
    expect(res(name)).toBe("PETO\n");
    await runner.takesAnswer();
  });

  it("ProcessJob 5: sends RICEVIS when the output is in its file, and only then", async () => {
    const { dir, join: joinAs, res } = await study({ "a.sh": "1", "b.sh": "2" });
    const runner = await joinAs("vm");
    const { name } = await runner.takes();
    await runner.delivers(name, "success", "all of it");
    expect(res(name)).toBe("all of it");
    const other = await runner.takes();
    // The file cannot have its name.
    mkdirSync(join(dir, "outputs", `${other.name}.res`));
    runner.say(`REZULTO ${other.name} success 1`);
    await runner.hears("PRETA");
    runner.say("x");
    await runner.isClosed();
    expect(runner.hasHeardNothing()).toBe(true);
  });

  it("ProcessJob 6: goes back to where it came from, Wait or WaitClose", async () => {
    const { join: joinAs } = await study({ "a.sh": "1", "b.sh": "2", "c.sh": "3" });
    const runner = await joinAs("vm");
    const [first, second] = [await runner.takes(), await runner.takes()];
    await runner.delivers(first.name, "success", "x");
    const last = await runner.takes();
    runner.say("PETO");
    await runner.hears("FINO");
    await runner.delivers(second.name, "success", "x");
    runner.say("PETO");
    await runner.hears("FINO");
    await runner.delivers(last.name, "success", "x");
    await runner.leaves();
  });
});

describe("server state 5: WaitClose", () => {
  /** A runner that was told FINO while it runs a job. */
  async function finishing() {
    const opened = await study({ "a.sh": "1" });
    const runner = await opened.join("vm");
    const { name } = await runner.takes();
    runner.say("PETO");
    return { ...opened, runner, name };
  }

  it("WaitClose 1: says no second FINO after a result", async () => {
    const { runner, name, port } = await finishing();
    await runner.hears("FINO");
    await runner.delivers(name, "success", "x");
    await barrier(port);
    expect([runner.hasHeardNothing(), runner.closed]).toEqual([true, false]);
  });

  it("WaitClose 2: writes FINO", async () => {
    const { runner } = await finishing();
    await runner.hears("FINO");
  });

  it("WaitClose 3: waits for the client's reply, and answers a further PETO with FINO", async () => {
    const { runner, port } = await finishing();
    await runner.hears("FINO");
    await barrier(port);
    expect([runner.hasHeardNothing(), runner.closed]).toEqual([true, false]);
    runner.say("PETO");
    await runner.hears("FINO");
  });

  it("WaitClose 4: drops the connection after FINO ANKAU", async () => {
    const { runner, name, lines } = await finishing();
    await runner.hears("FINO");
    await runner.delivers(name, "success", "x");
    runner.say("FINO ANKAU");
    await runner.isClosed();
    expect(lines.join("")).not.toContain("is gone");
  });

  it("WaitClose 5: takes a REZULTO", async () => {
    const { runner, name, batch, res } = await finishing();
    await runner.hears("FINO");
    await runner.delivers(name, "failure", "y");
    expect([batch.failed, res(name)]).toEqual([[name], "y"]);
  });
});
