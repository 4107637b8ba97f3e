/**
 * The command line as a few files in dist/bundle, which Node loads in half the time that it needs for the modules they are made of.
 * `bin/laboro` runs it. Programs that embed laboro use the modules in dist/.
 */
import { defineConfig } from "vite";

/** They load native code from their own folders. */
const UNBUNDLED = ["@photostructure/sqlite", "msgpackr", "zeromq"];

export default defineConfig({
  logLevel: "warn",
  ssr: { noExternal: true, external: UNBUNDLED },
  build: {
    ssr: true,
    outDir: "dist/bundle",
    emptyOutDir: true,
    target: "node20",
    minify: false,
    rolldownOptions: {
      input: [
        "dist/cli/main.js",
        // Threads find their files by these names, see threadFile in src/base/package.ts.
        "dist/store/sqlite/thread.js",
        "dist/broker/operations/large-submission-thread.js",
      ],
      output: { entryFileNames: "[name].js", chunkFileNames: "[name]-[hash].js" },
    },
    license: { fileName: "THIRD-PARTY-NOTICES.md" },
  },
});
