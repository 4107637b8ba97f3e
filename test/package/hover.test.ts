/** What an editor shows on hover over an export of the package, or over a method of it. */
import { createRequire } from "node:module";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
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
