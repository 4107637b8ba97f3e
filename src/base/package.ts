/** This package: where it is, its version, its files. */
import { existsSync, readFileSync } from "node:fs";

/** Works for the sources, the compiled modules and the bundle. */
export function packageRoot(): URL {
  let folder = new URL("./", import.meta.url);
  while (!existsSync(new URL("package.json", folder))) folder = new URL("../", folder);
  return folder;
}

export function packageVersion(): string {
  const file = new URL("package.json", packageRoot());
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}

/** The file of a thread. Compiled modules have it beside them; the bundle and the sources use the bundle's file. */
export function threadFile(name: string, module: string): URL {
  const beside = new URL(name, module);
  return existsSync(beside) ? beside : new URL(`dist/bundle/${name.replace(/js$/, "cjs")}`, packageRoot());
}
