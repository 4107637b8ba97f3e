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
  it.each([
    [
      "a handler that does not return what its task says",
      "worker.handle(mail, async ({ to }) => to);",
      "'string' is not assignable to type '{ id: string; }'",
    ],
    [
      "an exported handler that returns nothing",
      "mail.handler(async () => {});",
      "'void' is not assignable to type '{ id: string; }'",
    ],
    ["the input of a call", "client.call(mail, { to: 5 });", "'number' is not assignable to type 'string'"],
    ["an option that may be undefined", "client.add(mail, { to: '' }, { key: undefined, at: undefined });", undefined],
    ["the times of a schedule as dates", "client.schedules.edit('nightly', { start: new Date() });", undefined],
  ])("of %s is about the value, in few lines", (_what, line, message) => {
    const file = join(mkdtempSync(join(tmpdir(), "laboro-types-")), "wrong.ts");
    atEnd(() => rmSync(dirname(file), { recursive: true, force: true }));
    const entry = (name: string): string => JSON.stringify(join(REPOSITORY, "dist", "entries", `${name}.js`));
    writeFileSync(
      file,
      `import { type Client, defineTask } from ${entry("client")};
import type { Worker } from ${entry("worker")};
declare const client: Client;
declare const worker: Worker;
const mail = defineTask<{ to: string }, { id: string }>("mail");
void [client, worker];
${line}`,
    );
    const options = {
      ...{ module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, types: ["node"] },
      ...{ target: ts.ScriptTarget.ES2023, strict: true, exactOptionalPropertyTypes: true },
      typeRoots: [join(REPOSITORY, "node_modules", "@types")],
    };
    const program = ts.createProgram([file], options);
    const texts = program
      .getSemanticDiagnostics(program.getSourceFile(file))
      .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));
    expect(texts).toEqual(message === undefined ? [] : [expect.stringContaining(message)]);
    for (const text of texts) expect(text.split("\n").length).toBeLessThan(6);
  });
});
