import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { acquireLock } from "../../src/base/files/lock.js";
import { isAlive, thisProcess } from "../../src/base/files/process-identity.js";
import { scratch } from "./scratch.js";

const leaveBehind = (path: string, content: object | string): void =>
  fs.writeFileSync(`${path}-0123456789abcdef`, typeof content === "string" ? content : JSON.stringify(content));

describe("acquireLock", () => {
  it("lets one have it at a time and names the holder", () => {
    const path = join(scratch(), "lock");
    const lock = acquireLock(path, "the directory");
    expect(() => acquireLock(path, "the directory")).toThrow(
      expect.objectContaining({
        code: "LABORO_DATA_IN_USE",
        message: expect.stringContaining(`the directory is in use by process ${process.pid} on`),
      }),
    );
    lock.release();
    lock.release();
    acquireLock(path, "the directory").release();
    expect(fs.readdirSync(join(path, ".."))).toEqual([]);
  });

  it("takes over from a process that was killed", async () => {
    const path = join(scratch(), "lock");
    const child = spawn("sleep", ["60"]);
    const start = fs.readFileSync(`/proc/${child.pid}/stat`, "utf8").split(") ")[1]?.split(" ")[19];
    leaveBehind(path, { ...thisProcess(), pid: child.pid, started: start });
    expect(() => acquireLock(path, "it")).toThrow(`process ${child.pid}`);
    child.kill("SIGKILL");
    await once(child, "exit");
    acquireLock(path, "it");
    expect(fs.readdirSync(join(path, ".."))).toHaveLength(1);
  });

  it("takes over from an earlier boot and from a process id that was used again", () => {
    const path = join(scratch(), "lock");
    leaveBehind(path, { ...thisProcess(), boot: "another boot" });
    acquireLock(path, "it").release();
    leaveBehind(path, { ...thisProcess(), started: "1" });
    acquireLock(path, "it").release();
  });

  it("leaves alone what it cannot judge: another machine, other process ids, an unreadable file", () => {
    const path = join(scratch(), "lock");
    for (const holder of [
      { host: "elsewhere", pid: 1, boot: "another boot" },
      { ...thisProcess(), machine: "another", boot: "another boot" },
      { ...thisProcess(), pid: 999_999_999, pids: "pid:[1]" },
      "nonsense",
    ]) {
      leaveBehind(path, holder);
      expect(() => acquireLock(path, "it")).toThrow(expect.objectContaining({ code: "LABORO_DATA_IN_USE" }));
    }
  });

  it("never gives it to two of many processes that claim it at once over a stale lock", async () => {
    const directory = scratch();
    const path = join(directory, "lock");
    leaveBehind(path, { ...thisProcess(), boot: "another boot" });
    // Each process that gets the lock checks that nobody else is inside.
    const script = `
      import { acquireLock } from ${JSON.stringify(compiledLock(scratch()))};
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
  });
});

describe("isAlive", () => {
  it("knows itself, and a process id that is gone", () => {
    expect(isAlive(thisProcess())).toBe(true);
    expect(isAlive({ ...thisProcess(), pid: 999_999_999 })).toBe(false);
  });

  it("does not need Linux", () => {
    expect(isAlive({ host: thisProcess().host, pid: process.pid }, { host: thisProcess().host, pid: 1 })).toBe(true);
    expect(isAlive({ host: "h", pid: 999_999_999 }, { host: "h", pid: 1 })).toBe(false);
  });
});

/** The lock compiled to JavaScript, for processes that vitest does not run. */
function compiledLock(directory: string): string {
  const root = join(import.meta.dirname, "../..");
  const options = "--ignoreConfig --module nodenext --target es2023 --types node --skipLibCheck --rootDir src".split(
    " ",
  );
  fs.writeFileSync(join(directory, "package.json"), '{"type":"module"}');
  execFileSync(join(root, "node_modules/.bin/tsc"), [...options, "--outDir", directory, "src/base/files/lock.ts"], {
    cwd: root,
  });
  return join(directory, "base/files/lock.js");
}
