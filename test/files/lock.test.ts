import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { acquireLock } from "../../src/base/files/lock.js";
import { atEnd } from "../support/at-end.js";
import { until } from "../support/wait.js";
import { scratch } from "./scratch.js";

const COMPILED = JSON.stringify(join(import.meta.dirname, "../../dist/base/files/lock.js"));
const NFS = { type: 0x6969, mountinfo: "" };
const mayUnshare = spawnSync("unshare", ["--pid", "--fork", "true"]).status === 0;
if (!mayUnshare) console.log("unshare --pid is not permitted here: locks over process namespaces are not tested");

/** The pipe of a process on another machine, which this kernel has not open. */
function leaveBehind(path: string): string {
  const file = `${path}-elsewhere-1-${"0".repeat(24)}`;
  execFileSync("mkfifo", [file]);
  return file;
}

/** A process that has the lock until it is killed. */
async function holder(path: string, ...prefix: string[]): Promise<ChildProcess> {
  const script = `import { acquireLock } from ${COMPILED};
    acquireLock(${JSON.stringify(path)}, "it");
    console.log("has it");
    setInterval(() => {}, 1_000);`;
  const [file = "", ...args] = [...prefix, process.execPath, "--input-type=module", "-e", script];
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
  atEnd(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

describe("acquireLock", () => {
  it("lets one have it at a time, names the holder, and leaves nothing", () => {
    const path = join(scratch(), "lock");
    const lock = acquireLock(path, "the directory");
    expect(() => acquireLock(path, "the directory")).toThrow(
      expect.objectContaining({
        code: "LABORO_DATA_IN_USE",
        message: expect.stringContaining(`the directory is in use by process ${process.pid} on ${hostname()}. Stop`),
      }),
    );
    expect(fs.statSync(lock.path).mode & 0o777).toBe(0o600);
    lock.release();
    lock.release();
    acquireLock(path, "the directory").release();
    expect(fs.readdirSync(join(path, ".."))).toEqual([]);
  });

  it("takes over at once from a process that was killed", async () => {
    const path = join(scratch(), "lock");
    const child = await holder(path);
    expect(() => acquireLock(path, "it")).toThrow(`process ${child.pid}`);
    await kill(child);
    acquireLock(path, "it").release();
    expect(fs.readdirSync(join(path, ".."))).toEqual([]);
  });

  it("is not held by a child of a process that was killed", async () => {
    const path = join(scratch(), "lock");
    const script = `import { acquireLock } from ${COMPILED};
      import { spawn } from "node:child_process";
      acquireLock(${JSON.stringify(path)}, "it");
      console.log(spawn("sleep", ["60"], { detached: true, stdio: "ignore" }).pid);
      process.kill(process.pid, "SIGKILL");`;
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" });
    atEnd(() => void process.kill(Number(stdout), "SIGKILL"));
    expect(() => process.kill(Number(stdout), 0)).not.toThrow();
    acquireLock(path, "it").release();
  });

  it.skipIf(!mayUnshare)(
    "knows in another process namespace who is alive and who was killed (needs unshare --pid)",
    async () => {
      const path = join(scratch(), "lock");
      const namespace = ["unshare", "--pid", "--fork", "--kill-child"];
      const child = await holder(path, ...namespace);
      expect(() => acquireLock(path, "it")).toThrow("process 1 on");
      const again = spawnSync("unshare", [
        ...["--pid", "--fork", process.execPath, "--input-type=module", "-e"],
        `import { acquireLock } from ${COMPILED}; acquireLock(${JSON.stringify(path)}, "it");`,
      ]);
      expect(String(again.stderr)).toContain("is in use by process 1");
      // The process in the namespace ends with its parent, a moment later.
      const inside = Number(fs.readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8"));
      await kill(child);
      await until("it has ended", () => !fs.existsSync(`/proc/${inside}/fd/0`));
      await kill(await holder(path, ...namespace));
    },
  );

  it("leaves alone on a network filesystem what another machine may hold, and nowhere else", () => {
    const path = join(scratch(), "lock");
    const file = leaveBehind(path);
    expect(() => acquireLock(path, "it", undefined, NFS)).toThrow(
      expect.objectContaining({ code: "LABORO_DATA_IN_USE", message: expect.stringContaining(`remove ${file}`) }),
    );
    acquireLock(path, "it").release();
    expect(fs.existsSync(file)).toBe(false);
    // One of this machine is known to be dead there too.
    const own = acquireLock(path, "it");
    const name = own.path.replace(/[0-9a-f]{8}$/, "01234567");
    own.release();
    execFileSync("mkfifo", [name]);
    acquireLock(path, "it", undefined, NFS).release();
  });

  it("never gives it to two of many processes that claim it at once over a dead one's", async () => {
    const directory = scratch();
    const path = join(directory, "lock");
    leaveBehind(path);
    // Each process that gets the lock checks that nobody else is inside.
    const script = `
      import { acquireLock } from ${COMPILED};
      import * as fs from "node:fs";
      for (let round = 0, got = 0; got < 5 && round < 400; round++) {
        try {
          const lock = acquireLock(${JSON.stringify(path)}, "it");
          fs.mkdirSync(${JSON.stringify(join(directory, "inside"))});
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
          fs.rmdirSync(${JSON.stringify(join(directory, "inside"))});
          lock.release();
          got++;
          console.log("got it");
        } catch (error) {
          if (error.code !== "LABORO_DATA_IN_USE") { console.log("two inside", error); process.exit(1); }
        }
      }`;
    const children = Array.from({ length: 4 }, () => spawn(process.execPath, ["--input-type=module", "-e", script]));
    const outputs = await Promise.all(
      children.map(async (child) => {
        let text = "";
        child.stdout.on("data", (data) => {
          text += data;
        });
        child.stderr.on("data", (data) => {
          text += data;
        });
        await once(child, "close");
        return text;
      }),
    );
    expect(outputs.join("")).not.toContain("two inside");
    expect(outputs.join("").split("got it").length - 1).toBe(20);
    expect(fs.readdirSync(directory)).toEqual([]);
  });
});
