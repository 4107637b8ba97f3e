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

/** What a run of the command has loaded of Node when it ends. Its threads end, and write their own lists, before it. */
async function modulesOf(
  args: readonly string[],
  dir: string,
  env: Readonly<Record<string, string>>,
): Promise<string[]> {
  const list = join(dir, "list");
  const hook = join(dir, "hook.cjs");
  writeFileSync(
    hook,
    `process.on("exit", () => require("fs").writeFileSync(${JSON.stringify(list)}, process.moduleLoadList.join("\\n")));`,
  );
  const code = await new Promise((resolve) => {
    const child = spawn(process.execPath, ["--require", hook, LABORO, ...args], {
      ...{ cwd: dir, stdio: "ignore" },
      env: { PATH: process.env.PATH, HOME: dir, ...env },
    });
    child.on("exit", resolve);
  });
  expect(code).toBe(0);
  const loaded = readFileSync(list, "utf8").split("\n");
  expect(loaded.length).toBeGreaterThan(50);
  return loaded;
}

function newFolder(): string {
  const dir = mkdtempSync(join(tmpdir(), "laboro-start-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

const among = (loaded: readonly string[], names: readonly string[]): string[] =>
  names.filter((name) => loaded.includes(`NativeModule ${name}`));

describe.skipIf(!hasOwnLoader)("a verb that asks a running broker (needs Node 20)", () => {
  it.each([["status"], ["submit", "true"], ["workers"]])("loads no slow module of Node: %s", async (...args) => {
    const dir = newFolder();
    const data = join(dir, "data");
    const broker = await startBroker({ dir: data, port: 0 });
    atEnd(() => broker.stop());
    expect(among(await modulesOf(args, dir, { LABORO_DATA: data }), SLOW)).toEqual([]);
  });
});

it.skipIf(!hasOwnLoader)("a run with a broker of its own loads nothing for TLS (needs Node 20)", async () => {
  expect(among(await modulesOf(["run", "true"], newFolder(), {}), ["_tls_wrap", "https"])).toEqual([]);
});
