/** What a verb that asks a running broker loads of Node. Each of these modules would take a part of its start. */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startBroker } from "../../src/server.js";
import { atEnd } from "../support/at-end.js";
import { LABORO } from "../support/launched.js";

const SLOW = [
  "_http_client",
  "_tls_wrap",
  "child_process",
  "crypto",
  "dns",
  "https",
  "perf_hooks",
  "worker_threads",
  "zlib",
];

/** Newer ones use Node's own code cache, which loads what a file names. */
const hasOwnLoader = Number(process.versions.node.split(".")[0]) < 22;

describe.skipIf(!hasOwnLoader)("a verb that asks a running broker", () => {
  it.each([["status"], ["submit", "true"], ["workers"]])("loads no slow module of Node: %s", async (...args) => {
    const dir = mkdtempSync(join(tmpdir(), "laboro-start-"));
    atEnd(() => rmSync(dir, { recursive: true, force: true }));
    const broker = await startBroker({ dir: join(dir, "data"), port: 0 });
    atEnd(() => broker.stop());
    const list = join(dir, "list");
    const hook = join(dir, "hook.cjs");
    writeFileSync(
      hook,
      `process.on("exit", () => require("fs").writeFileSync(${JSON.stringify(list)}, process.moduleLoadList.join("\\n")));`,
    );
    const env = { PATH: process.env.PATH, HOME: dir, LABORO_DATA: join(dir, "data") };
    const run = (): Promise<number | null> =>
      new Promise((resolve) => {
        spawn(process.execPath, ["--require", hook, LABORO, ...args], { env, stdio: "ignore" }).on("exit", resolve);
      });
    expect(await run()).toBe(0);
    const loaded = readFileSync(list, "utf8").split("\n");
    expect(loaded.length).toBeGreaterThan(50);
    expect(SLOW.filter((name) => loaded.includes(`NativeModule ${name}`))).toEqual([]);
  });
});
