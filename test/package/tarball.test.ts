/**
 * The package as npm publishes it, unpacked into an empty project. Its dependencies are links to those of the checkout, so that no
 * registry is needed; scripts/check-install.mjs installs them for real.
 */
import { execFile, execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { builtinModules } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Launched, REPOSITORY } from "../support/launched.js";

interface Manifest {
  readonly version: string;
  readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
  readonly dependencies: Readonly<Record<string, string>>;
}

interface SourceMap {
  readonly sources: readonly string[];
  readonly sourcesContent?: readonly (string | null)[];
}

const run = promisify(execFile);
const read = (...path: string[]): string => readFileSync(join(...path), "utf8");
const MANIFEST = JSON.parse(read(REPOSITORY, "package.json")) as Manifest;
const DEPENDENCIES = Object.keys(MANIFEST.dependencies);
/** What can be imported: `laboro`, and `laboro/NAME` for each further entry. */
const ENTRIES = Object.keys(MANIFEST.exports)
  .filter((path) => !path.endsWith(".json"))
  .map((path) => path.replace(/^\./, "laboro"));

/** Names of packages, not of files: `from "x"`, `import("x")`. */
const IMPORTS = /(?:^(?:import|export)\b[^"';]*?\bfrom |^import |\bimport\()"([^."][^"]*)"/gm;

let temporary = "";
let tarball = Buffer.alloc(0);
let project = "";
let unpacked = "";
let files: string[] = [];

beforeAll(() => {
  temporary = mkdtempSync(join(tmpdir(), "laboro-package-"));
  const args = ["pack", "--silent", "--ignore-scripts", "--pack-destination", temporary];
  const archive = join(temporary, execFileSync("npm", args, { cwd: REPOSITORY, encoding: "utf8" }).trim());
  tarball = readFileSync(archive);
  project = join(temporary, "project");
  unpacked = join(project, "node_modules", "laboro");
  mkdirSync(unpacked, { recursive: true });
  execFileSync("tar", ["-xzf", archive, "--strip-components=1", "-C", unpacked]);
  writeFileSync(join(project, "package.json"), '{ "private": true, "type": "module" }\n');
  for (const name of [...DEPENDENCIES, "@types/node"]) {
    const link = join(project, "node_modules", name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(REPOSITORY, "node_modules", name), link);
  }
  files = readdirSync(unpacked, { recursive: true, encoding: "utf8" });
});

afterAll(() => {
  rmSync(temporary, { recursive: true, force: true });
});

/** Runs a program of Node in the project, where no setting of laboro is inherited. */
async function node(...args: string[]): Promise<string> {
  const { PATH = "" } = process.env;
  const { stdout } = await run(process.execPath, args, { cwd: project, env: { PATH, HOME: project } });
  return stdout.trim();
}

describe("the package that npm publishes", () => {
  it("passes publint without a remark", async () => {
    const copy = new Uint8Array(tarball).buffer;
    const { messages, pkg } = await publint({ pack: { tarball: copy }, strict: true });
    expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([]);
  });

  it("has types that say how each entry is loaded", async () => {
    const result = await checkPackage(createPackageFromTarballData(new Uint8Array(tarball)));
    // The package is for releases of Node that load ES modules by require(), and the checker's compiler does not know of them; the
    // resolution of node10 knows no `exports`, and compilers have dropped it.
    const found = (result.types && "problems" in result ? result.problems : []).filter(
      (problem) =>
        problem.kind !== "CJSResolvesToESM" && !("resolutionKind" in problem && problem.resolutionKind === "node10"),
    );
    expect(result.types).toMatchObject({ kind: "included" });
    expect(found).toEqual([]);
  });

  it("has types that need no types of another package", () => {
    // The compiler takes what an untyped package exports for `any`, and says nothing of it in declarations.
    const entries = Object.values(MANIFEST.exports).flatMap((entry) =>
      typeof entry === "object" ? [entry.types] : [],
    );
    const seen = new Set(entries.map((path) => join(path)));
    const packages = new Set<string>();
    for (const path of seen) {
      for (const [, name = ""] of read(unpacked, path).matchAll(/(?:\bfrom |\bimport\()"([^"]+)"/g)) {
        if (name.startsWith(".")) seen.add(join(dirname(path), name.replace(/\.js$/, ".d.ts")));
        else if (!name.startsWith("node:")) packages.add(name);
      }
    }
    expect(seen.size).toBeGreaterThan(20);
    expect([...packages]).toEqual([]);
  });

  it("ships what each source map refers to", () => {
    const maps = files.filter((path) => path.endsWith(".map"));
    const missing = maps.filter((path) => {
      const { sources, sourcesContent } = JSON.parse(read(unpacked, path)) as SourceMap;
      const isShipped = (source: string, at: number): boolean =>
        typeof sourcesContent?.[at] === "string" || existsSync(join(unpacked, dirname(path), source));
      return !sources.every(isShipped);
    });
    expect(maps.filter((path) => path.endsWith(".d.ts.map")).length).toBeGreaterThan(100);
    expect(missing).toEqual([]);
  });

  it("has a map for each compiled file, and a compiled file for each source", () => {
    const all = new Set(files);
    const sources = files
      .filter((path) => /^src\/.*\.ts$/.test(path))
      .map((path) => path.slice("src/".length, -".ts".length));
    const wanted = sources.flatMap((path) => ["js", "js.map", "d.ts", "d.ts.map"].map((end) => `dist/${path}.${end}`));
    const compiled = files.filter((path) => /^dist\/(?!web\/|bundle\/|worker-bundle\/|man\/).*\.\w+$/.test(path));
    expect(wanted.filter((path) => !all.has(path))).toEqual([]);
    expect(compiled.filter((path) => !wanted.includes(path))).toEqual([]);
  });

  it("imports no package that it does not depend on", () => {
    const known = new Set([...DEPENDENCIES, ...builtinModules]);
    const packageOf = (name: string): string => /^(@[^/]+\/)?[^/]+/.exec(name)?.[0] ?? name;
    const imported = files
      .filter((path) => /^dist\/(?!web\/|bundle\/|worker-bundle\/|man\/).*\.js$/.test(path))
      .flatMap((path) => Array.from(read(unpacked, path).matchAll(IMPORTS), ([, name = ""]) => name));
    expect(imported.length).toBeGreaterThan(100);
    expect(
      [...new Set(imported)].filter((name) => !known.has(name.startsWith("node:") ? name.slice(5) : packageOf(name))),
    ).toEqual([]);
  });

  it.each([
    ["dashboard", "web", "uplot"],
    ["command line", "bundle", "commander"],
    ["worker", "worker-bundle", "ws"],
  ])("ships the licences of the packages that are bundled into the %s", (_what, folder, name) => {
    const notices = read(unpacked, "dist", folder, "THIRD-PARTY-NOTICES.md");
    expect(notices).toContain(read(REPOSITORY, "node_modules", name, "LICENSE").trim());
  });

  it("ships the file of each thread beside the bundle", () => {
    const sources = files.filter((path) => /^src\/.*\.ts$/.test(path)).map((path) => read(unpacked, path));
    const threads = sources.flatMap((text) => Array.from(text.matchAll(/threadFile\("([^"]+)"/g), ([, name]) => name));
    expect(threads.length).toBeGreaterThan(1);
    expect(threads.filter((name) => !files.includes(`dist/bundle/${name?.replace(/js$/, "cjs")}`))).toEqual([]);
  });

  it("ships the documents, the man pages and the examples", () => {
    for (const path of [
      "README.md",
      "LICENSE",
      "CHANGELOG.md",
      "SECURITY.md",
      "docs/guide/first-batch.md",
      "dist/man/laboro-run.1",
      "examples/service.sh",
      "examples/thumbnails/src/app.ts",
    ])
      expect(files).toContain(path);
    expect(files.filter((path) => /^(test|bench|node_modules|\.laboro)\//.test(path))).toEqual([]);
  });
});

describe("a project that has installed it", () => {
  it.each(ENTRIES)("imports and requires %s", async (entry) => {
    const names = "console.log(Object.keys(it).sort().join())";
    const imported = await node("--input-type=module", "--eval", `const it = await import("${entry}"); ${names}`);
    const required = await node("--input-type=commonjs", "--eval", `const it = require("${entry}"); ${names}`);
    expect(imported).not.toBe("");
    expect(required).toBe(imported);
  });

  it("reads the package's own description", async () => {
    const text = 'import it from "laboro/package.json" with { type: "json" }; console.log(it.version)';
    expect(await node("--no-warnings", "--input-type=module", "--eval", text)).toBe(MANIFEST.version);
  });

  it("sees its sources in a stack trace", async () => {
    const call = 'await (await import("laboro/broker")).startBroker({ dir: "/dev/null", port: 0 })';
    const text = `${call}.catch((error) => console.log(error.stack))`;
    expect(await node("--enable-source-maps", "--input-type=module", "--eval", text)).toMatch(
      /laboro\/src\/.*\.ts:\d+/,
    );
  });

  it("compiles the example of the README with a strict compiler that checks all declarations", async () => {
    const [, example = ""] = /```ts\n(import .*?)```/s.exec(read(REPOSITORY, "README.md")) ?? [];
    const entries = ENTRIES.map((entry, at) => `import * as entry${at} from "${entry}";\nconsole.log(entry${at});\n`);
    writeFileSync(join(project, "example.ts"), example);
    writeFileSync(join(project, "entries.ts"), entries.join(""));
    const internals = [
      'import { startBroker } from "laboro/broker";',
      'const broker = await startBroker({ dir: "data" });',
      "// @ts-expect-error: what is inside is no part of the package",
      "console.log(broker.core);",
    ];
    writeFileSync(join(project, "internals.ts"), internals.join("\n"));
    const options = {
      module: "nodenext",
      target: "es2023",
      strict: true,
      skipLibCheck: false,
      noEmit: true,
      types: ["node"],
    };
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions: options, include: ["*.ts"] }));
    const compile = node(join(REPOSITORY, "node_modules", "typescript", "bin", "tsc"), "-p", ".");
    expect(await compile.catch((error: { stdout: string }) => error.stdout)).toBe("");
  });

  it("listens with CURVE keys, which need no other package", async () => {
    const laboro = join(unpacked, "bin", "laboro");
    const data = ["--data", join(project, "with-keys")];
    await node(laboro, "keys", "new", "worker", ...data);
    const args = ["serve", ...data, "--listen", "127.0.0.1:0", "--protocol", "round-robin=127.0.0.1:0", "--curve"];
    const broker = new Launched("the broker", [laboro, ...args], { env: { PATH: process.env.PATH, HOME: project } });
    await broker.says("tcp://127.0.0.1:");
    await broker.end("SIGTERM");
    expect(broker.exitCode).toBe(0);
  });

  it("runs the command line", async () => {
    const laboro = join(unpacked, "bin", "laboro");
    expect(await node(laboro, "--version")).toBe(MANIFEST.version);
    const lines = (await node(laboro, "run", "echo {}", ":::", "a", "b")).split("\n");
    expect(lines.sort()).toEqual(["a", "b"]);
  });

  it("runs it by npx", async () => {
    const { PATH = "" } = process.env;
    const links = join(project, "node_modules", ".bin");
    mkdirSync(links);
    symlinkSync(join("..", "laboro", "bin", "laboro"), join(links, "laboro"));
    const env = { PATH, HOME: project };
    const { stdout } = await run("npx", ["--no", "laboro", "run", "echo {}", ":::", "c", "d"], { cwd: project, env });
    expect(stdout.trim().split("\n").sort()).toEqual(["c", "d"]);
  });
});
