/**
 * The command line as a few files of CommonJS in dist/bundle, which Node loads in half the time that it needs for the modules they are made
 * of. `bin/laboro` runs it. Programs that embed laboro use the modules in dist/.
 */
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

/** It loads native code from its own folder. */
const UNBUNDLED = ["@photostructure/sqlite"];

/** msgpackr without its native reader of strings, which takes longer to load than a verb has strings to read. */
export const PLAIN_MSGPACKR = { find: /^msgpackr$/, replacement: fileURLToPath(import.meta.resolve("msgpackr/pack")) };

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

/** Other characters are escaped: V8 keeps a text with one of them in twice the memory, and takes longer for it. */
export const ascii = {
  name: "ascii",
  generateBundle(_options, bundle) {
    for (const chunk of Object.values(bundle)) {
      if (chunk.type !== "chunk") continue;
      if (/\\[^\0-\x7f]/.test(chunk.code)) throw new Error(`${chunk.fileName}: an escaped character that is not ASCII`);
      chunk.code = chunk.code.replaceAll(/[^\0-\x7f]/g, escapeUnit);
    }
  },
};

const escapeUnit = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** required.json: for each file that is loaded by itself, all that it requires, see src/cli/lib/load-bundle.ts. */
const requiredFiles = {
  name: "required-files",
  generateBundle(_options, bundle) {
    const filesOf = (fileName, found = new Set()) => {
      if (found.has(fileName) || bundle[fileName] === undefined) return found;
      found.add(fileName);
      for (const required of bundle[fileName].imports) filesOf(required, found);
      return found;
    };
    const loaded = Object.values(bundle).filter(({ isEntry, isDynamicEntry }) => isEntry || isDynamicEntry);
    const lists = loaded.map(({ fileName }) => [`./${fileName}`, [...filesOf(fileName)].map((name) => `./${name}`)]);
    this.emitFile({ type: "asset", fileName: "required.json", source: JSON.stringify(Object.fromEntries(lists)) });
  },
};

export default defineConfig({
  logLevel: "warn",
  ssr: { noExternal: true, external: UNBUNDLED },
  resolve: { alias: [PLAIN_MSGPACKR] },
  plugins: [startFiles, requiredFiles, ascii],
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
