/** Whether the npm packages of the peers are there: `npm run bench -- --peers` fetches them. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const installed = (name) => existsSync(fileURLToPath(new URL(`node_modules/${name}`, import.meta.url)));
