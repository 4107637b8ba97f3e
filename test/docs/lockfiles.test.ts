import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { REPOSITORY } from "../support/launched.js";

interface LockedPackage {
  readonly resolved?: string;
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly engines?: { readonly node?: string };
}

interface LockFile {
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

const { satisfies } = createRequire(import.meta.url)("semver") as {
  satisfies(version: string, range: string): boolean;
};

const run = promisify(execFile);
let dir = "";

afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

describe.each([".", "test", "bench/peers"])("the lock file in %s", (folder) => {
  it("is complete: npm ci accepts it without a registry", async () => {
    dir = mkdtempSync(join(tmpdir(), "laboro-lockfile-"));
    for (const file of ["package.json", "package-lock.json"]) cpSync(join(REPOSITORY, folder, file), join(dir, file));
    // With an empty cache and no network, npm cannot look up a package that the lock file leaves out.
    const offline = ["--dry-run", "--offline", "--cache", join(dir, "cache")];
    const { stdout } = await run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", ...offline], {
      cwd: dir,
    });
    expect(stdout).toMatch(/^added \d+ packages/m);
  });

  it("holds a checksum and no download address for each package", () => {
    const { packages } = JSON.parse(readFileSync(join(REPOSITORY, folder, "package-lock.json"), "utf8")) as LockFile;
    const entries = Object.entries(packages).filter(([path]) => path !== "");
    expect(entries.length).toBeGreaterThan(0);
    expect(entries.filter(([, { integrity }]) => integrity === undefined).map(([path]) => path)).toEqual([]);
    expect(entries.filter(([, { resolved }]) => resolved !== undefined).map(([path]) => path)).toEqual([]);
  });
});

describe("every package that is installed with laboro", () => {
  it.each(["20.19.0", "22.12.0"])("admits Node %s, the oldest of its line that laboro admits", (version) => {
    const { packages } = JSON.parse(readFileSync(join(REPOSITORY, "package-lock.json"), "utf8")) as LockFile;
    const installed = Object.entries(packages).filter(([, { dev }]) => dev !== true);
    expect(installed.length).toBeGreaterThan(10);
    const refusing = installed.filter(([, { engines }]) => !satisfies(version, engines?.node ?? "*"));
    expect(refusing.map(([path, { engines }]) => `${path}: ${engines?.node}`)).toEqual([]);
  });
});
