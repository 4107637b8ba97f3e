/** Two hosts of this test's own, in network namespaces, joined by a wire and by nothing else. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { LABORO } from "../support/launched.js";
import { NO_SSHD, openSshd } from "../support/sshd.js";
import { until } from "../support/wait.js";

const [HEAD, NODE] = [`lbr-head-${process.pid}`, `lbr-node-${process.pid}`];
const ip = (...words: readonly string[]): void => void execFileSync("ip", words, { stdio: "pipe" });

function makeHosts(): boolean {
  try {
    for (const name of [HEAD, NODE]) ip("netns", "add", name);
    ip("-n", HEAD, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", NODE);
    for (const [name, address] of [
      [HEAD, "10.231.77.1/30"],
      [NODE, "10.231.77.2/30"],
    ] as const) {
      ip("-n", name, "addr", "add", address, "dev", "wire");
      for (const device of ["lo", "wire"]) ip("-n", name, "link", "set", device, "up");
    }
    return true;
  } catch {
    return false;
  }
}

function removeHosts(): void {
  for (const name of [HEAD, NODE]) {
    try {
      ip("netns", "del", name);
    } catch {
      // It was never made.
    }
  }
}

const possible = makeHosts();
if (!possible) {
  removeHosts();
  console.log("skipped: network namespaces cannot be made here (needs root and ip)");
}

describe.skipIf(!possible)("a worker on another machine (needs root and network namespaces)", () => {
  const dir = possible ? mkdtempSync(join(tmpdir(), "laboro-machines-")) : "";
  const children: ChildProcess[] = [];

  const begin = (host: string, words: readonly string[], env: NodeJS.ProcessEnv = {}) => {
    const child = spawn("ip", ["netns", "exec", host, process.execPath, LABORO, ...words], {
      cwd: dir,
      env: { PATH: process.env.PATH, HOME: join(dir, host), ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    children.push(child);
    let said = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => (said += text));
    return { child, said: () => said };
  };

  afterAll(async () => {
    for (const child of children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const gone = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      await gone;
    }
    removeHosts();
    rmSync(dir, { recursive: true, force: true });
  });

  it("joins with what is in the file that serve names, and nothing else", async () => {
    const broker = begin(HEAD, ["serve", "--listen", "0.0.0.0:5429"]);
    await until("the broker has named the file", () => broker.said().includes("join.url"));
    const [, file = ""] = /--join @(\S+)/.exec(broker.said()) ?? [];
    const address = readFileSync(file, "utf8").trim();
    expect(address).toMatch(/^https:\/\/[\w-]+@10\.231\.77\.1:5429#[0-9a-f]{64}$/);
    const worker = begin(NODE, ["worker", "--name", "far", "--slots", "1"], { LABORO_BROKER: address });
    await until(
      () => `the worker has joined: ${worker.said()}`,
      () => worker.said().includes("joined the broker"),
    );
    const asked = begin(HEAD, ["run", "--dir", "/", "echo from $LABORO_SLOT; cat /proc/net/dev | grep -c wire"]);
    await until(
      () => `the task is done: ${asked.said()}`,
      () => asked.child.exitCode !== null,
    );
    expect(asked.said()).toContain("from 0\n1\n");
    expect(asked.child.exitCode).toBe(0);
  });

  it.skipIf(NO_SSHD !== undefined)(
    `does tasks over ssh for a broker on loopback, which it cannot reach (${NO_SSHD ?? "sshd"})`,
    async () => {
      const sshd = await openSshd({ namespace: NODE, address: "10.231.77.2" });
      await sshd.machine("far");
      const env = { LABORO_SSH: sshd.command };
      const line = "echo {}; cat /proc/net/fib_trie | grep -c 10.231.77.2";
      const run = begin(HEAD, ["run", "--dir", "/", "--local", "--ssh", "far/2", "-k", line, ":::", "a", "b"], env);
      await until(
        () => `the run ends: ${run.said()}`,
        () => run.child.exitCode !== null,
      );
      expect([run.child.exitCode, run.said().replace(/^\d+ tasks: .*\n/m, "")]).toEqual([
        0,
        expect.stringMatching(/^a\n[1-9]\nb\n[1-9]\n$/),
      ]);
      // The broker of the first test listens on the wire, too.
      const doctor = begin(HEAD, ["doctor", "far"], env);
      await until(
        () => `the doctor ends: ${doctor.said()}`,
        () => doctor.child.exitCode !== null,
      );
      expect(doctor.said()).toMatch(/^ok +far: the broker answers there through a tunnel/m);
      expect(doctor.said()).toMatch(
        /^ok +far: https:\/\/10\.231\.77\.1:5429 can be reached from there without a tunnel/m,
      );
    },
  );
});
