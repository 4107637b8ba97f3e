/** The worker as one file, alone in an empty folder: no package around it, nothing but a shell and its tools in PATH. */
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { packageVersion, workerBundle } from "../../src/base/package.js";
import { defineTask } from "../../src/entries/client.js";
import { sh } from "../cli/support/cli.js";
import { atEnd } from "../support/at-end.js";
import { Launched } from "../support/launched.js";
import { openTestBroker } from "../support/test-broker.js";

/** A handler file without an import, as a bundler makes it. */
const HANDLERS = 'export const triple = { task: { name: "triple" }, run: async (n) => ({ tripled: 3 * n }) };\n';

function launchCopy(args: readonly string[]): { readonly dir: string; readonly worker: Launched } {
  const dir = mkdtempSync(join(tmpdir(), "laboro-bundle-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  const file = join(dir, "laboro-worker.cjs");
  copyFileSync(workerBundle().path, file);
  mkdirSync(join(dir, "home"));
  writeFileSync(join(dir, "home", "tasks.mjs"), HANDLERS);
  const env = { PATH: "/usr/bin:/bin", HOME: join(dir, "home") };
  const worker = new Launched("the bundle", [file, ...args.map((arg) => arg.replace("DIR", dir))], { env });
  atEnd(() => worker.end("SIGKILL"));
  return { dir, worker };
}

describe("the worker bundle", () => {
  it("has a digest, and requires modules of Node only", () => {
    const { path, sha256 } = workerBundle();
    const source = readFileSync(path);
    expect(sha256).toBe(createHash("sha256").update(source).digest("hex"));
    const required = [...source.toString().matchAll(/\brequire\(["'`](?:node:)?([^"'`]+)["'`]\)/g)].map(
      ([, name]) => name,
    );
    expect(required.length).toBeGreaterThan(10);
    // The package `ws` tries them and does without.
    const optional = new Set(["bufferutil", "utf-8-validate"]);
    const foreign = required.filter((name = "") => !optional.has(name) && !builtinModules.includes(name));
    expect(foreign).toEqual([]);
  });

  it("knows its version and refuses bad options without a package around it", async () => {
    const { worker } = launchCopy(["--version"]);
    await worker.ended();
    expect(worker.said.trim()).toBe(packageVersion());
    const { worker: bad } = launchCopy(["--slots", "many"]);
    await bad.ended();
    expect([bad.exitCode, bad.said]).toEqual([2, expect.stringContaining("LABORO_BAD_INPUT")]);
  });

  it.each([[], ["--handler-memory", "64M"]])("runs commands and handlers of a broker %s %s", async (...options) => {
    const { broker, client, dir: setupDir } = await openTestBroker();
    const join_ = join(setupDir, "join");
    writeFileSync(join_, broker.url.replace("://", `://${broker.token}@`), { mode: 0o600 });
    const { dir, worker } = launchCopy([
      "--join",
      `@${join_}`,
      "--name",
      "w",
      "--handlers",
      "DIR/home/tasks.mjs",
      ...options,
    ]);
    const job = await client.submit({ recipe: sh('echo "$HOME"') });
    expect((await job.result()).toString()).toBe(`${join(dir, "home")}\n`);
    const triple = defineTask<number, { tripled: number }>("triple");
    expect(await (await client.add(triple, 14)).result()).toEqual({ tripled: 42 });
    await worker.end("SIGTERM");
    expect([worker.exitCode, worker.said]).toEqual([0, expect.stringContaining("w has stopped")]);
  });
});
