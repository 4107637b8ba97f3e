/**
 * The command line as a few files of CommonJS in dist/bundle, which Node loads in half the time that it needs for the modules they are made
 * of. `bin/laboro` runs it. Programs that embed laboro use the modules in dist/.
 */
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

/** They load native code from their own folders. */
const UNBUNDLED = ["@photostructure/sqlite", "zeromq"];

/** msgpackr without its native reader of strings, which takes longer to load than a verb has strings to read. */
const PLAIN_MSGPACKR = { find: /^msgpackr$/, replacement: fileURLToPath(import.meta.resolve("msgpackr/pack")) };

/** Threads find their files by these names, see threadFile in src/base/package.ts. */
const THREADS = {
  thread: "dist/store/sqlite/thread.js",
  "large-submission-thread": "dist/broker/operations/large-submission-thread.js",
};

/** Files with names that do not change. Each loads what it stands for. */
const startFiles = {
  name: "start-files",
  generateBundle(_options, bundle) {
    for (const { name, fileName, isEntry } of Object.values(bundle)) {
      if (!isEntry || name === "load") continue;
      const source = `require("./load.cjs").load("${fileName}"${name in THREADS ? ", true" : ""});\n`;
      this.emitFile({ type: "asset", fileName: `${name}.cjs`, source });
    }
  },
};

export default defineConfig({
  logLevel: "warn",
  ssr: { noExternal: true, external: UNBUNDLED },
  resolve: { alias: [PLAIN_MSGPACKR] },
  plugins: [startFiles],
  build: {
    ssr: true,
    outDir: "dist/bundle",
    emptyOutDir: true,
    target: "node20",
    minify: false,
    rolldownOptions: {
      input: { load: "dist/cli/lib/load-bundle.js", main: "dist/cli/main.js", ...THREADS },
      output: {
        format: "cjs",
        // V8 cannot execute import() in code from its cache.
        dynamicImportInCjs: false,
        entryFileNames: ({ name }) => (name === "load" ? "load.cjs" : "[name]-[hash].cjs"),
        chunkFileNames: "[name]-[hash].cjs",
      },
    },
    license: { fileName: "THIRD-PARTY-NOTICES.md" },
  },
});
