/** This package: where it is, its version, its files. */
import { existsSync, readFileSync } from "node:fs";

/** Of the sources, of the compiled modules and of the bundle alike. */
export function packageRoot(): URL {
  let folder = new URL("./", import.meta.url);
  while (!existsSync(new URL("package.json", folder))) folder = new URL("../", folder);
  return folder;
}

export function packageVersion(): string {
  const file = new URL("package.json", packageRoot());
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}

/**
 * The file of a thread, which is beside the module that starts it; in the bundle it is CommonJS. For a source it is the compiled one: Node runs
 * no TypeScript there.
 */
export function threadFile(name: string, module: string): URL {
  const beside = new URL(name, module);
  const bundled = new URL(name.replace(/\.js$/, ".cjs"), module);
  if (existsSync(bundled)) return bundled;
  if (existsSync(beside)) return beside;
  const root = packageRoot();
  return new URL(beside.href.replace(`${root.href}src/`, `${root.href}dist/`));
}
