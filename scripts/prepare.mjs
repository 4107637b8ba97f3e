// Builds dist/ after an install, where the compiler is there. Without it (npm install --omit=dev) nothing can be built, and what is
// built already stays.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";

const root = new URL("..", import.meta.url);
if (existsSync(new URL("node_modules/typescript/package.json", root))) {
  execFileSync("npm", ["run", "--silent", "build"], { cwd: root, stdio: "inherit" });
} else if (!existsSync(new URL("dist/cli/main.js", root))) {
  console.error("laboro: not built, because the compiler was left out; npm install without --omit=dev builds it");
}
