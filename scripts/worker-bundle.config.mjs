/** The worker as one file of CommonJS, dist/worker-bundle/laboro-worker.cjs, for machines that have Node and no laboro. */
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";
import { ascii, PLAIN_MSGPACKR } from "./bundle.config.mjs";

const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));

/** Native code that the `ws` package uses where it is installed. */
const OPTIONAL = ["bufferutil", "utf-8-validate"];

export default defineConfig({
  logLevel: "warn",
  define: { WORKER_BUNDLE: JSON.stringify(version) },
  ssr: { noExternal: true, external: OPTIONAL },
  resolve: { alias: [PLAIN_MSGPACKR] },
  plugins: [ascii],
  build: {
    ssr: true,
    outDir: "dist/worker-bundle",
    emptyOutDir: true,
    target: "node20",
    minify: true,
    rolldownOptions: {
      input: { "laboro-worker": "dist/cli/worker-main.js" },
      output: { format: "cjs", entryFileNames: "[name].cjs", codeSplitting: false },
    },
    license: { fileName: "THIRD-PARTY-NOTICES.md" },
  },
});
