/** The text of the protocol, its client side, rule by rule, with a literal manager at the runner. The table in the docs lists these tests. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { HOLD_MS, type Runner, type RunnerOptions } from "../../../src/protocols/runexp/runner/index.js";
import { until } from "../../support/wait.js";
import { type LiteralPeer, listenLiterally } from "./literal-peer.js";
import { newDir, start } from "./runner-kit.js";

interface Met {
  readonly dir: string;
  readonly runner: Runner;
  readonly manager: LiteralPeer;
}

/** A runner, and the manager's end of its connection. */
async function met(options: Partial<RunnerOptions> = {}): Promise<Met> {
  const dir = newDir();
  const { port, accept } = await listenLiterally();
  const runner = start(port, { dir: join(dir, "spool"), host: "vm-1", reconnectTimeoutMs: 0, ...options });
  return { dir, runner, manager: await accept() };
}

/** The same, after JES. */
async function joined(options: Partial<RunnerOptions> = {}): Promise<Met> {
  const all = await met(options);
  const { manager } = all;
  await manager.hears("SALUTON; MI vm-1");
  manager.say("VERSIO 1.3");
  await manager.hears("KOMPRENAS");
  manager.say("ALIGI __defaulte__");
  await manager.hears("JES");
  return all;
}

/** Answers the PETO that has come with this job. */
async function give(manager: LiteralPeer, name: string, script: string): Promise<void> {
  manager.say(`LABORO ${name} .sh ${script.length}`);
  await manager.hears("PRETA");
  manager.say(script);
}

/** The result that comes next, up to RICEVIS. */
async function take(manager: LiteralPeer, start: string): Promise<string> {
  await manager.hears(`REZULTO ${start} `);
  const size = await until("its size comes", () => /^\d+$/.exec(manager.unread)?.[0]);
  await manager.hears(size);
  manager.say("PRETA");
  const output = await manager.hearsBytes(Number(size));
  manager.say("RICEVIS");
  return output.toString("latin1");
}

/** A script that ends when the file is there. */
const waitFor = (file: string): string => `while [ ! -e ${file} ]; do sleep 0.02; done; echo RES:done`;

describe("client state 1: Initialization", () => {
  it("Initialization 1: connects to the server", async () => {
    const { manager } = await met();
    expect(manager.closed).toBe(false);
  });

  it("Initialization 2: sends the hail with its host name", async () => {
    const { manager } = await met({ host: "other_2" });
    await manager.hears("SALUTON; MI other_2");
  });

  it("Initialization 3: waits for the version", async () => {
    const { manager, runner } = await met();
    await manager.hears("SALUTON; MI vm-1");
    manager.say("VERSIO 1.");
    manager.say("3");
    await manager.hears("KOMPRENAS");
    runner.stop(true);
  });

  it.each(["VERSIO 1.2", "VERSIO 2", "SALUTON"])(
    "Initialization 4: ends the connection and itself after %j",
    async (said) => {
      const { manager, runner } = await met();
      await manager.hears("SALUTON; MI vm-1");
      manager.say(said);
      await manager.isClosed();
      expect(manager.hasHeardNothing()).toBe(true);
      expect((await runner.ended).status).toBe(said === "SALUTON" ? "unreachable" : "refused");
    },
  );

  it("Initialization 5: sends KOMPRENAS to a version that it knows", async () => {
    const { manager } = await met();
    await manager.hears("SALUTON; MI vm-1");
    manager.say("VERSIO 1.3");
    await manager.hears("KOMPRENAS");
  });

  it("Initialization 6: waits for the name of the group", async () => {
    const { manager } = await met({ group: "mine" });
    await manager.hears("SALUTON; MI vm-1");
    manager.say("VERSIO 1.3");
    await manager.hears("KOMPRENAS");
    manager.say("ALIGI mine");
    await manager.hears("JES");
  });

  it("Initialization 7: ends the connection where the group is another one", async () => {
    const { manager, runner } = await met({ group: "mine" });
    await manager.hears("SALUTON; MI vm-1");
    manager.say("VERSIO 1.3");
    await manager.hears("KOMPRENAS");
    manager.say("ALIGI __defaulte__");
    await manager.isClosed();
    expect(manager.hasHeardNothing()).toBe(true);
    expect((await runner.ended).status).toBe("refused");
  });

  it("Initialization 9: starts all its workers", async () => {
    const { manager, dir } = await joined({ threads: 3 });
    for (const name of ["a", "b", "c"]) {
      await manager.hears("PETO");
      await give(manager, name, waitFor(`${dir}/go`));
    }
    writeFileSync(join(dir, "go"), "");
    await manager.hears("REZULTO ");
  });
});

describe("client state 2: WorkerLoop", () => {
  it("WorkerLoop 1: goes to WaitClose where MASTERSTOP is raised", async () => {
    const { manager, dir } = await joined({ threads: 2 });
    await manager.hears("PETO");
    await give(manager, "a", waitFor(`${dir}/go`));
    await manager.hears("PETO");
    manager.say("ELIRI");
    writeFileSync(join(dir, "go"), "");
    await take(manager, "a success");
    await manager.hears("FINO ANKAU");
  });

  it("WorkerLoop 2: asks again after each job", async () => {
    const { manager } = await joined();
    for (const name of ["a", "b"]) {
      await manager.hears("PETO");
      await give(manager, name, "echo RES:done");
      await take(manager, `${name} success`);
    }
    await manager.hears("PETO");
  });
});

describe("client state 3: RunJob", () => {
  it("RunJob 1: keeps the other workers from speaking while one asks", async () => {
    const { manager, dir } = await joined({ threads: 2 });
    await manager.hears("PETO");
    await give(manager, "a", `${waitFor(`${dir}/go`)}; touch ${dir}/ended`);
    await manager.hears("PETO");
    writeFileSync(join(dir, "go"), "");
    await until("the first job has ended", () => existsSync(join(dir, "ended")));
    // Its result has to wait for the answer to the other worker's PETO.
    await give(manager, "b", waitFor(`${dir}/stop`));
    await take(manager, "a success");
  });

  it("RunJob 2: sends PETO and waits for the reply", async () => {
    const { manager } = await joined();
    await manager.hears("PETO");
    manager.say("FINO");
    await manager.hears("FINO ANKAU");
  });

  it("RunJob 3: after FINO lets the others deliver, and goes to WaitClose", async () => {
    const { manager, dir } = await joined({ threads: 2 });
    await manager.hears("PETO");
    await give(manager, "a", waitFor(`${dir}/go`));
    await manager.hears("PETO");
    manager.say("FINO");
    writeFileSync(join(dir, "go"), "");
    await take(manager, "a success");
    await manager.hears("FINO ANKAU");
  });

  it("RunJob 4: takes ELIRI, ATENDI and LABORO for an answer, and nothing else", async () => {
    const answers = { ELIRI: "FINO ANKAU", ATENDI: "PETO", "LABORO a b .sh 0": "PRETA" };
    for (const [answer, next] of Object.entries(answers)) {
      const { manager } = await joined({ holdMs: 10 });
      await manager.hears("PETO");
      manager.say(answer);
      await manager.hears(next);
    }
    const { manager } = await joined();
    await manager.hears("PETO");
    manager.say("RICEVIS");
    await manager.isClosed();
    expect(manager.hasHeardNothing()).toBe(true);
  });

  it("RunJob 5: acknowledges LABORO with PRETA", async () => {
    const { manager } = await joined();
    await manager.hears("PETO");
    manager.say("LABORO sub dir/a b .sh 1000");
    await manager.hears("PRETA");
  });

  it("RunJob 6: receives as many bytes as LABORO says, however they arrive", async () => {
    const { manager } = await joined();
    await manager.hears("PETO");
    const script = "echo FINO; echo RES:done";
    manager.say(`LABORO a .sh 000${script.length}`);
    await manager.hears("PRETA");
    manager.say(script.slice(0, 7));
    manager.say(script.slice(7));
    expect(await take(manager, "a success")).toMatch(/\n\nFINO\nRES:done\n$/);
  });

  it("RunJob 7: writes the contents to a temporary file", async () => {
    const { manager, dir } = await joined();
    await manager.hears("PETO");
    const script = `cp "$0" ${dir}/copy; echo "$0"; echo RES:done`;
    await give(manager, "a", script);
    const [, file = ""] = /\n\n(.*)\nRES:done\n$/.exec(await take(manager, "a success")) ?? [];
    expect([readFileSync(join(dir, "copy"), "utf8"), file.startsWith(dir)]).toEqual([script, true]);
  });

  it("RunJob 8: lets the other workers speak while the job runs", async () => {
    const { manager, dir } = await joined({ threads: 2 });
    await manager.hears("PETO");
    await give(manager, "a", waitFor(`${dir}/go`));
    await manager.hears("PETO");
    await give(manager, "b", "echo RES:done");
    await take(manager, "b success");
  });

  it("RunJob 9: runs the job", async () => {
    const { manager, dir } = await joined();
    await manager.hears("PETO");
    await give(manager, "a", `echo ran >${dir}/ran`);
    await until("it has run", () => existsSync(join(dir, "ran")));
  });

  it("RunJob 10: goes on to SendOutcome", async () => {
    const { manager } = await joined();
    await manager.hears("PETO");
    await give(manager, "a", "true");
    await manager.hears("REZULTO a failure ");
  });
});

describe("client state 4: SendOutcome", () => {
  it("SendOutcome 1: waits until the job has ended", async () => {
    const { manager, dir } = await joined();
    await manager.hears("PETO");
    await give(manager, "a", `touch ${dir}/begun; ${waitFor(`${dir}/go`)}`);
    await until("it runs", () => existsSync(join(dir, "begun")));
    expect(manager.hasHeardNothing()).toBe(true);
    writeFileSync(join(dir, "go"), "");
    await take(manager, "a success");
  });

  it("SendOutcome 2: collects the output, and the outcome that it tells", async () => {
    const { manager } = await joined();
    const jobs = [
      ["a", "echo one; echo RES:done", "success"],
      ["b", "echo RES:done; echo RES: Failed; exit 0", "failure"],
      ["c", "exit 0", "failure"],
    ] as const;
    for (const [name, script, status] of jobs) {
      await manager.hears("PETO");
      await give(manager, name, script);
      const output = await take(manager, `${name} ${status}`);
      expect(output.startsWith(`runexp summary: ${status}\n`)).toBe(true);
      if (name === "a") expect(output).toMatch(/\nProgram output follows\n\none\nRES:done\n$/);
    }
  });

  it("SendOutcome 3: locks communications: results go one after the other", async () => {
    const { manager, dir } = await joined({ threads: 2 });
    for (const name of ["a", "b"]) {
      await manager.hears("PETO");
      await give(manager, name, `${waitFor(`${dir}/go`)}; touch ${dir}/ended-${name}`);
    }
    writeFileSync(join(dir, "go"), "");
    const ended = (name: string): boolean => existsSync(join(dir, `ended-${name}`));
    await until("both have ended", () => ended("a") && ended("b"));
    const first = await until("one speaks", () => /^REZULTO ([ab]) /.exec(manager.unread)?.[1]);
    await take(manager, `${first} success`);
    // The second job's file may be there before its process has ended: the runner then asks for a job first.
    await until("more comes", () => manager.unread.length >= "PETO".length);
    if (manager.unread.startsWith("PETO")) {
      await manager.hears("PETO");
      manager.say("ATENDI");
    }
    await take(manager, `${first === "a" ? "b" : "a"} success`);
  });

  it("SendOutcome 4: sends REZULTO with the name, the outcome and the size of the output", async () => {
    const { manager } = await joined();
    await manager.hears("PETO");
    await give(manager, "sub dir/a success 3", "echo RES:done");
    await manager.hears("REZULTO sub dir/a success 3 success ");
    const size = await until("its size comes", () => /^\d+$/.exec(manager.unread)?.[0]);
    await manager.hears(size);
    manager.say("PRETA");
    await manager.hearsBytes(Number(size));
    manager.say("RICEVIS");
    await manager.hears("PETO");
  });

  it("SendOutcome 9: waits for PRETA", async () => {
    const { manager } = await joined();
    await manager.hears("PETO");
    await give(manager, "a", "echo RES:done");
    await manager.hears("REZULTO a success ");
    await until("its size comes", () => /^\d+$/.exec(manager.unread));
    await manager.hears(manager.unread);
    manager.say("RICEVIS");
    await manager.isClosed();
    expect(manager.hasHeardNothing()).toBe(true);
  });

  it("SendOutcome 10: sends the output, however long", async () => {
    const { manager } = await joined();
    await manager.hears("PETO");
    await give(manager, "a", "head -c 3000000 /dev/zero; echo; echo RES:done");
    const output = await take(manager, "a success");
    expect(output.endsWith(`${"\0".repeat(3_000_000)}\nRES:done\n`)).toBe(true);
  });

  it("SendOutcome 11: waits for RICEVIS before anything else", async () => {
    const { manager } = await joined({ threads: 2 });
    await manager.hears("PETO");
    await give(manager, "a", "echo RES:done");
    await manager.hears("PETO");
    manager.say("ATENDI");
    await manager.hears("REZULTO a success ");
    const size = await until("its size comes", () => /^\d+$/.exec(manager.unread)?.[0]);
    await manager.hears(size);
    manager.say("PRETA");
    await manager.hearsBytes(Number(size));
    expect(manager.hasHeardNothing()).toBe(true);
    manager.say("RICEVIS");
    await manager.hears("PETO");
  });

  it("SendOutcome 12: unlocks communications and goes back to WorkerLoop", async () => {
    const { manager } = await joined();
    await manager.hears("PETO");
    await give(manager, "a", "echo RES:done");
    await take(manager, "a success");
    await manager.hears("PETO");
  });
});

describe("client state 5: WaitClose", () => {
  it("WaitClose 1: the last worker sends FINO ANKAU and closes the connection, the others just end", async () => {
    const { manager, runner, dir } = await joined({ threads: 3 });
    for (const name of ["a", "b"]) {
      await manager.hears("PETO");
      await give(manager, name, waitFor(`${dir}/go-${name}`));
    }
    await manager.hears("PETO");
    manager.say("FINO");
    for (const name of ["a", "b"]) {
      writeFileSync(join(dir, `go-${name}`), "");
      await take(manager, `${name} success`);
    }
    await manager.hears("FINO ANKAU");
    await manager.isClosed();
    expect([manager.unread, (await runner.ended).status]).toEqual(["", "finished"]);
  });
});

describe("client state 6: ClientOnHold", () => {
  it("ClientOnHold 1: after ELIRI raises MASTERSTOP, lets results out and goes to WaitClose", async () => {
    const { manager, runner, dir } = await joined({ threads: 2 });
    await manager.hears("PETO");
    await give(manager, "a", waitFor(`${dir}/go`));
    await manager.hears("PETO");
    manager.say("ELIRI");
    writeFileSync(join(dir, "go"), "");
    await take(manager, "a success");
    await manager.hears("FINO ANKAU");
    expect((await runner.ended).status).toBe("banned");
  });

  it("ClientOnHold 2: after ATENDI lets the others speak, waits ten seconds and asks again", async () => {
    expect(HOLD_MS).toBe(10_000);
    const { manager, dir } = await joined({ threads: 2, holdMs: 500 });
    await manager.hears("PETO");
    await give(manager, "a", waitFor(`${dir}/go`));
    await manager.hears("PETO");
    manager.say("ATENDI");
    writeFileSync(join(dir, "go"), "");
    await take(manager, "a success");
    // The worker that has delivered asks for itself, and is held too.
    await manager.hears("PETO");
    const held = performance.now();
    manager.say("ATENDI");
    for (let asked = 0; asked < 2; asked++) {
      await manager.hears("PETO");
      manager.say("ATENDI");
    }
    expect(performance.now() - held).toBeGreaterThan(490);
  });
});
