/**
 * Installs the packed package from the registry, on several releases of Node, and uses it:
 *
 *     node scripts/check-install.mjs [VERSION ...]      20.19.0 22.12.0 24 unless given
 *
 * Each release of Node comes from the registry, too. The tests do the same without a registry, on the Node that runs them
 * (test/package/).
 */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const { version, exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const ENTRIES = Object.keys(exports)
  .filter((path) => !path.endsWith(".json"))
  .map((path) => path.replace(/^\./, "laboro"));
const given = process.argv.slice(2);
const temporary = mkdtempSync(join(tmpdir(), "laboro-install-"));

try {
  const tarball = join(
    temporary,
    call("npm", ["pack", "--silent", "--pack-destination", temporary], ROOT).trim().split("\n").at(-1),
  );
  for (const release of given.length > 0 ? given : ["20.19.0", "22.12.0", "24"]) check(release, tarball);
  await checkBundle("20.0.0");
} finally {
  rmSync(temporary, { recursive: true, force: true });
}

function check(release, tarball) {
  const { LABORO_BROKER, LABORO_DATA, ...inherited } = process.env;
  const env = { ...inherited, PATH: `${dirname(fetchNode(release))}${delimiter}${process.env.PATH}` };
  const project = emptyProject(`project-${release}`);
  const inProject = (program, ...args) => call(program, args, project, env).trim();
  const evaluate = (text) => inProject("node", "--input-type=module", "--eval", text);
  // What laboro run keeps goes below the home directory.
  const laboro = (...args) => call("npx", ["--no", "--", "laboro", ...args], project, { ...env, HOME: project }).trim();

  inProject("npm", "install", "--engine-strict", "--no-audit", "--no-fund", "--loglevel=error", tarball);
  for (const entry of ENTRIES) {
    const imported = evaluate(`console.log(Object.keys(await import("${entry}")).sort().join())`);
    const required = inProject("node", "--eval", `console.log(Object.keys(require("${entry}")).sort().join())`);
    expect(`import("${entry}") has exports`, imported !== "", true);
    expect(`require("${entry}") has the same`, required, imported);
  }
  expect("laboro --version", laboro("--version"), version);
  expect("laboro run", laboro("run", "echo {}", ":::", "a", "b").split("\n").sort().join(), "a,b");
  const elsewhere = emptyProject(`npx-${release}`);
  const once = ["--yes", "--package", tarball, "--", "laboro", "run", "echo {}", ":::", "a"];
  expect("npx from the tarball", call("npx", once, elsewhere, { ...env, HOME: elsewhere }).trim(), "a");
  console.log(`${evaluate("console.log(process.version)")}: installed, imported, required, run`);
}

/** The worker in one file runs on any Node 20. The broker runs on the Node of this script. */
async function checkBundle(release) {
  const folder = emptyProject("bundle");
  const env = { ...process.env, HOME: folder, LABORO_DATA: join(folder, "data") };
  const laboro = join(ROOT, "bin", "laboro");
  const broker = spawn(process.execPath, [laboro, "serve", "--listen", "127.0.0.1:0"], { env, stdio: "ignore" });
  const wait = () => new Promise((resolve) => setTimeout(resolve, 100));
  while (!existsSync(join(folder, "data", "access.json"))) await wait();
  const file = join(ROOT, "dist", "worker-bundle", "laboro-worker.cjs");
  const worker = spawn(fetchNode(release), [file, "--data", env.LABORO_DATA], { env, stdio: "ignore" });
  expect("a task of the bundle", call(process.execPath, [laboro, "run", "echo {}", ":::", "a"], folder, env), "a\n");
  for (const child of [worker, broker]) {
    child.kill();
    await new Promise((resolve) => child.once("exit", resolve));
  }
  console.log(`v${release}: the worker bundle joined and ran a task`);
}

/** The program of that release of Node. */
function fetchNode(release) {
  const name = `node-${process.platform}-${process.arch}`;
  const folder = emptyProject(`node-${release}`);
  call("npm", ["install", "--no-audit", "--no-fund", `${name}@${release}`], folder);
  return join(folder, "node_modules", name, "bin", "node");
}

function emptyProject(name) {
  const folder = join(temporary, name);
  mkdirSync(folder);
  writeFileSync(join(folder, "package.json"), `${JSON.stringify({ private: true, type: "module" })}\n`);
  return folder;
}

function call(program, args, cwd, env = process.env) {
  return execFileSync(program, args, {
    cwd,
    env,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    timeout: 600_000,
  });
}

function expect(what, found, wanted) {
  if (found !== wanted) throw new Error(`${what}: ${found}, not ${wanted}`);
}
