/** This package: its folder, version and files. */
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { badInput } from "./errors.js";

/** The version, defined in the worker bundle, which has no package.json beside it. */
declare const WORKER_BUNDLE: string;

/** True in the worker bundle: one file, with no package around it. */
export const isWorkerBundle = typeof WORKER_BUNDLE !== "undefined";

/** Works for the sources, the compiled modules and the bundle. In a bundle of somebody else there may be no package. */
export function packageRoot(): URL {
  let folder = new URL("./", import.meta.url);
  while (!existsSync(new URL("package.json", folder))) {
    const above = new URL("../", folder);
    if (above.href === folder.href) throw badInput(`${import.meta.url} is a bundle: leave laboro out of it`);
    folder = above;
  }
  return folder;
}

export function packageVersion(): string {
  if (isWorkerBundle) return WORKER_BUNDLE;
  const file = new URL("package.json", packageRoot());
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}

/** The file of a thread. Compiled modules have it beside them. The bundle and the sources use the bundle's file. */
export function threadFile(name: string, module: string): URL {
  const beside = new URL(name, module);
  return existsSync(beside) ? beside : new URL(`dist/bundle/${name.replace(/js$/, "cjs")}`, packageRoot());
}

interface WorkerBundle {
  readonly path: string;
  /** In hexadecimal digits, to check a copy. */
  readonly sha256: string;
}

/** `laboro worker` as one file, for machines that have Node 20 or newer and no laboro: `node FILE [options]`. */
export function workerBundle(): WorkerBundle {
  const path = fileURLToPath(new URL("dist/worker-bundle/laboro-worker.cjs", packageRoot()));
  return { path, sha256: createHash("sha256").update(readFileSync(path)).digest("hex") };
}
