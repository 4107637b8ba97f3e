/** What an editor shows on hover over an export of the package, or over a method of it. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { REPOSITORY } from "../support/launched.js";

// The compiler that the project uses has no such interface; the one of the documentation has.
const ts = createRequire(join(REPOSITORY, "test", "package.json"))(
  "typescript",
) as typeof import("../node_modules/typescript/lib/typescript.js");

const ENTRIES = ["client", "task", "files", "worker", "broker"].map((name) =>
  join(REPOSITORY, "dist", "entries", `${name}.d.ts`),
);

describe("every export of the package, and every method of it,", () => {
  const options = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext };
  const program = ts.createProgram(ENTRIES, { ...options, target: ts.ScriptTarget.ES2023, skipLibCheck: true });
  const checker = program.getTypeChecker();
  const isBare = (symbol: import("../node_modules/typescript/lib/typescript.js").Symbol): boolean =>
    symbol.getDocumentationComment(checker).length === 0;

  it.each(ENTRIES)("has a text: %s", (path) => {
    const file = program.getSourceFile(path);
    const module = file && checker.getSymbolAtLocation(file);
    const exported = module === undefined ? [] : checker.getExportsOfModule(module);
    expect(exported.length).toBeGreaterThan(2);
    const bare: string[] = [];
    for (const one of exported) {
      const symbol = one.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(one) : one;
      if (isBare(symbol)) bare.push(symbol.name);
      for (const [name, member] of symbol.members ?? [])
        if (member.flags & ts.SymbolFlags.Method && isBare(member)) bare.push(`${symbol.name}.${String(name)}`);
    }
    expect(bare).toEqual([]);
  });

  it.each(["AddOptions", "Submission", "ScheduledTaskOptions", "TransactionOptions", "WorkerOptions", "ThreadOptions"])(
    "and every property of %s",
    (name) => {
      const found = ENTRIES.flatMap((path) => {
        const file = program.getSourceFile(path);
        const module = file && checker.getSymbolAtLocation(file);
        return module === undefined ? [] : checker.getExportsOfModule(module).filter((one) => one.name === name);
      });
      const [symbol] = found.map((one) => (one.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(one) : one));
      const properties = symbol === undefined ? [] : checker.getDeclaredTypeOfSymbol(symbol).getProperties();
      expect(properties.length).toBeGreaterThan(2);
      expect(properties.filter(isBare).map((one) => one.name)).toEqual([]);
    },
  );
});

describe("what the compiler says", () => {
  it("of a handler that does not return what its task says is about the result", () => {
    const file = join(mkdtempSync(join(tmpdir(), "laboro-types-")), "wrong.ts");
    atEnd(() => rmSync(dirname(file), { recursive: true, force: true }));
    const entry = join(REPOSITORY, "dist", "entries", "worker.js");
    writeFileSync(
      file,
      `import { defineTask, type Worker } from ${JSON.stringify(entry)};
declare const worker: Worker;
worker.handle(defineTask<{ to: string }, { id: string }>("mail"), async ({ to }) => to);`,
    );
    const options = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext };
    const program = ts.createProgram([file], { ...options, target: ts.ScriptTarget.ES2023, strict: true, types: [] });
    const texts = program
      .getSemanticDiagnostics(program.getSourceFile(file))
      .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));
    expect(texts).toEqual([expect.stringContaining("'string' is not assignable to type '{ id: string; }'")]);
  });
});
