/** The bundle's code cache: it speeds up a start and must never be the reason that one fails. */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import nodeModule from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { REPOSITORY } from "../support/launched.js";

/** An installed laboro of its own, without a cache. */
function install(): { readonly cache: string; readonly bundle: string; run(...words: readonly string[]): unknown } {
  const dir = mkdtempSync(join(tmpdir(), "laboro-cache-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  const bundle = join(dir, "dist", "bundle");
  const cache = join(bundle, "cache");
  cpSync(join(REPOSITORY, "dist", "bundle"), bundle, { recursive: true, filter: (path) => !path.endsWith("/cache") });
  cpSync(join(REPOSITORY, "bin"), join(dir, "bin"), { recursive: true });
  cpSync(join(REPOSITORY, "package.json"), join(dir, "package.json"));
  symlinkSync(join(REPOSITORY, "node_modules"), join(dir, "node_modules"));
  const work = join(dir, "work");
  mkdirSync(work);
  const run = (...words: readonly string[]): unknown => {
    const args = [join(dir, "bin", "laboro"), "run", ...(words.length === 0 ? ["echo {}", ":::", "a"] : words)];
    const { status, stdout, signal } = spawnSync(process.execPath, args, { cwd: work, encoding: "utf8" });
    return { status, stdout, signal };
  };
  return { cache, bundle, run };
}

/** Newer releases of Node have a cache of their own, with other files. */
const isOfNode = "enableCompileCache" in nodeModule;

const RIGHT = { status: 0, stdout: "a\n", signal: null };

/** Of all files in the folder, with their content. */
const contents = (dir: string): Map<string, string> =>
  new Map(
    readdirSync(dir, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => [name, readFileSync(join(parentPath, name), "latin1")]),
  );

describe("the code cache of the bundle", () => {
  it("is written by the first start and read by the next", () => {
    const { cache, run } = install();
    expect(run()).toEqual(RIGHT);
    const written = contents(cache);
    // The program, the verb, the store's thread.
    expect(written.size).toBeGreaterThanOrEqual(3);
    expect(run()).toEqual(RIGHT);
    const after = contents(cache);
    // A run that takes long here may add code, and files that only a long run loads.
    const changed = [...written].filter(([name, content]) => after.get(name) !== content);
    expect(changed.filter(([name, content]) => (after.get(name)?.length ?? 0) <= content.length)).toEqual([]);
  });

  it.skipIf(isOfNode)(
    "is written again by a longer run, with the functions that the first did not call (on Node 20)",
    () => {
      const { cache, run } = install();
      const sizeOf = (start: string): number =>
        [...contents(cache)].find(([name]) => name.startsWith(start))?.[1].length ?? 0;
      run("--dry-run", "true");
      const first = sizeOf("run-");
      expect(run("sleep 2.1; echo {}", ":::", "a")).toEqual(RIGHT);
      expect(sizeOf("run-")).toBeGreaterThan(first);
    },
  );

  it("is of files without import(), which waits for ever in code from the cache", () => {
    const bundle = join(REPOSITORY, "dist", "bundle");
    const files = readdirSync(bundle).filter((name) => name.endsWith(".cjs"));
    expect(files.length).toBeGreaterThan(10);
    const code = (name: string): string => readFileSync(join(bundle, name), "utf8").replaceAll(/\/\*[\s\S]*?\*\//g, "");
    expect(files.filter((name) => /\bimport\(["'`]/.test(code(name)))).toEqual([]);
  });

  it("is ignored where it is damaged", () => {
    const { cache, run } = install();
    run();
    for (const entry of readdirSync(cache, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const path = join(entry.parentPath, entry.name);
      const content = readFileSync(path);
      for (let at = content.length >> 1; at < content.length; at += 97) content[at] = (content[at] ?? 0) ^ 0x5a;
      writeFileSync(path, content);
    }
    expect(run()).toEqual(RIGHT);
    for (const name of readdirSync(cache)) rmSync(join(cache, name), { recursive: true });
    expect(run()).toEqual(RIGHT);
  });

  it("is not needed where it cannot be written", () => {
    const { cache, run } = install();
    writeFileSync(cache, "not a folder");
    chmodSync(cache, 0o400);
    expect(run()).toEqual(RIGHT);
    expect(readFileSync(cache, "utf8")).toBe("not a folder");
  });
});
