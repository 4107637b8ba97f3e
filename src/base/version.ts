/** Where this package is, and its version. */
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
