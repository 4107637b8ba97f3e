/**
 * The code in the documentation. A block that begins with `// NAME.ts` is a file of that name, which other blocks of its page import.
 * A block of another language is not laboro's, or not a program.
 */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { REPOSITORY } from "../support/launched.js";

type TypeScript = typeof import("../node_modules/typescript/lib/typescript.js");

/** The compiler that the project uses has no such interface; the one of the documentation has. */
export const ts = createRequire(join(REPOSITORY, "test", "package.json"))("typescript") as TypeScript;

export interface Sample {
  readonly file: string;
  readonly text: string;
  /** The line of the page that it begins at. */
  readonly line: number;
}

export function samplesOf(page: string): Sample[] {
  const text = readFileSync(join(REPOSITORY, page), "utf8");
  return Array.from(text.matchAll(/^```ts\n([\s\S]*?)^```$/gm), ({ 1: code = "", index }, i) => {
    const [, name = `sample-${i}.ts`] = /^\/\/ ([\w.-]+\.ts)(?:, .*)?\n/.exec(code) ?? [];
    return { file: name, text: code, line: text.slice(0, index).split("\n").length + 1 };
  });
}

/** The declarations that all pages share, read once. */
const libraries = new Map<string, import("../node_modules/typescript/lib/typescript.js").SourceFile | undefined>();

/** Errors of the compiler, by line of the page. */
export function typeErrorsOf(page: string): string[] {
  // Nothing is written there. What the samples import beside laboro is installed for tests.
  const folder = join(REPOSITORY, "test", "docs", "samples");
  const samples = new Map(samplesOf(page).map((sample) => [join(folder, sample.file), sample]));
  const options = {
    ...{ module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, noEmit: true },
    ...{ target: ts.ScriptTarget.ES2023, lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts"], types: ["node"] },
    ...{
      strict: true,
      // As `tsc --init` writes them.
      ...{ noUncheckedIndexedAccess: true, exactOptionalPropertyTypes: true, verbatimModuleSyntax: true },
      skipLibCheck: true,
      moduleDetection: ts.ModuleDetectionKind.Force,
    },
    paths: {
      laboro: [join(REPOSITORY, "dist/entries/client.d.ts")],
      "laboro/*": [join(REPOSITORY, "dist/entries/*.d.ts")],
    },
  };
  const host = ts.createCompilerHost(options);
  const { fileExists, readFile } = host;
  host.directoryExists = () => true;
  host.fileExists = (path) => samples.has(path) || fileExists(path);
  const { getSourceFile } = host;
  host.getSourceFile = (path, ...more) => {
    if (samples.has(path)) return getSourceFile(path, ...more);
    const known = libraries.get(path) ?? getSourceFile(path, ...more);
    libraries.set(path, known);
    return known;
  };
  host.readFile = (path) => samples.get(path)?.text ?? readFile(path);
  const program = ts.createProgram([...samples.keys()], options, host);
  return ts.getPreEmitDiagnostics(program).map(({ file, start = 0, messageText }) => {
    const sample = samples.get(file?.fileName ?? "");
    const line = file?.getLineAndCharacterOfPosition(start).line ?? 0;
    return `${page}:${line + (sample?.line ?? 0)}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
  });
}

/** Writes the named samples of a page as JavaScript, into a project that has the package installed. */
export function projectOf(page: string, folder: string): void {
  mkdirSync(join(folder, "node_modules"), { recursive: true });
  symlinkSync(REPOSITORY, join(folder, "node_modules", "laboro"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  for (const { file, text } of samplesOf(page)) {
    const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 };
    writeFileSync(join(folder, file.replace(/ts$/, "js")), ts.transpileModule(text, { compilerOptions }).outputText);
  }
}
