// Removes files from dist/ whose source is gone, so that they are not packed. What is still current stays: programs may be running
// from it. dist/web and the bundles are emptied by their own builds.
import { existsSync, readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const compiled = /\.(?:js|d\.ts)(?:\.map)?$/;

for (const path of existsSync(`${root}dist`) ? readdirSync(`${root}dist`, { recursive: true, encoding: "utf8" }) : []) {
  if (/^(?:web|bundle|worker-bundle)\//.test(path) || !compiled.test(path)) continue;
  if (!existsSync(`${root}src/${path.replace(compiled, ".ts")}`)) rmSync(`${root}dist/${path}`);
}
