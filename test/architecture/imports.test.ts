/** The import graph of `src` and `web`: imports go one way, as docs/architecture.md draws them. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");

/** The first pattern that fits a file says which layer it is in. */
const LAYERS: readonly (readonly [RegExp, string])[] = [
  [/^src\/(base|model|dispatch|store|broker|worker|client|cli|entries)\//, "$1"],
  [/^src\/server\.ts$/, "server"],
  [/^src\/protocols\/\w[\w-]*\/broker\//, "protocol-broker"],
  [/^src\/protocols\/\w[\w-]*\/(worker|runner)\//, "protocol-worker"],
  [/^src\/protocols\/runexp\/experiments\//, "experiments"],
  [/^src\/protocols\//, "codec"],
  [/^web\//, "web"],
];

/** What each layer may import besides itself. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  base: [],
  model: ["base"],
  dispatch: ["base", "model"],
  store: ["base", "model"],
  broker: ["base", "model", "dispatch", "store"],
  codec: ["base", "model"],
  "protocol-broker": ["base", "model", "dispatch", "broker", "codec"],
  worker: ["base", "model", "codec"],
  client: ["base", "model", "codec"],
  "protocol-worker": ["base", "model", "codec", "worker"],
  experiments: ["base", "model", "dispatch", "broker", "codec", "protocol-broker", "protocol-worker", "client"],
  server: ["base", "model", "dispatch", "store", "broker", "codec", "protocol-broker", "client"],
  entries: ["base", "model", "dispatch", "broker", "client", "worker", "server"],
  cli: [
    ...["base", "model", "dispatch", "store", "broker", "codec", "protocol-broker", "protocol-worker"],
    ...["experiments", "worker", "client", "server"],
  ],
  web: ["base", "model"],
};

/** The table of operations is the one source of their types; importing a type loads nothing. */
const OPERATION_TYPES = "src/broker/operations/index.ts";

interface Import {
  readonly from: string;
  readonly to: string;
  readonly typeOnly: boolean;
}

const layerOf = (file: string): string => {
  for (const [pattern, layer] of LAYERS) {
    const found = pattern.exec(file);
    if (found !== null) return layer.replace("$1", found[1] ?? "");
  }
  throw new Error(`${file} is in no layer`);
};

const sourceFiles = (folder: string): readonly string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => `${folder}/${name}`);

const IMPORT = /^(?:import|export)\s+(type\s)?[^;"]*?from\s+"(\.[^"]+)"|import\("(\.[^"]+)"\)|^import\s+"(\.[^"]+)"/gm;

function importsIn(file: string): readonly Import[] {
  const text = readFileSync(join(ROOT, file), "utf8");
  return [...text.matchAll(IMPORT)].flatMap(([, type, named, loaded, bare]) => {
    const specifier = named ?? loaded ?? bare ?? "";
    const to = relative(ROOT, resolve(ROOT, dirname(file), specifier.replace(/\.js$/, ".ts")));
    return to.endsWith(".ts") ? [{ from: file, to, typeOnly: type !== undefined }] : [];
  });
}

const isAllowed = ({ from, to, typeOnly }: Import): boolean => {
  const [source, target] = [layerOf(from), layerOf(to)];
  if (source === target || MAY_IMPORT[source]?.includes(target)) return true;
  return typeOnly && to === OPERATION_TYPES && (source === "client" || source === "web");
};

const IMPORTS = [...sourceFiles("src"), ...sourceFiles("web/src")].flatMap(importsIn);

describe("the import graph", () => {
  it("is read whole", () => {
    expect(IMPORTS.length).toBeGreaterThan(2_000);
    expect(new Set(IMPORTS.map(({ from }) => layerOf(from)))).toEqual(new Set(Object.keys(MAY_IMPORT)));
  });

  it("has no arrow against the layers", () => {
    const wrong = IMPORTS.filter((one) => !isAllowed(one)).map(({ from, to }) => `${from} -> ${to}`);
    expect(wrong).toEqual([]);
  });

  it("keeps the protocols apart: one protocol uses another's codec only", () => {
    const protocolOf = (file: string): string | undefined => /^src\/protocols\/([\w-]+)\//.exec(file)?.[1];
    const wrong = IMPORTS.filter(({ from, to }) => {
      const [source, target] = [protocolOf(from), protocolOf(to)];
      return source !== undefined && target !== undefined && source !== target && layerOf(to) !== "codec";
    });
    expect(wrong).toEqual([]);
  });
});

describe("the broker's side of a protocol", () => {
  const files = sourceFiles("src").filter(
    (file) => ["protocol-broker", "experiments"].includes(layerOf(file)) || file.startsWith("src/broker/sessions/"),
  );

  it("imports types of dispatch only: it asks the core instead", () => {
    const wrong = files.flatMap(importsIn).filter(({ to, typeOnly }) => layerOf(to) === "dispatch" && !typeOnly);
    expect(wrong.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
  });

  it("does not touch the store or dispatch's state through the core", () => {
    const member = /core\s*\??\.\s*(?:store|state)\b/i;
    const destructured = /\{[^{}=]*\b(?:store|state)\b[^{}=]*\}\s*=\s*[\w.#]*core\b/i;
    for (const text of ["this.#core.state.jobs", "context.core.store", "const { state, requests } = this.#core;"])
      expect(member.test(text) || destructured.test(text), text).toBe(true);
    const wrong = files.filter((file) => {
      const text = readFileSync(join(ROOT, file), "utf8");
      return member.test(text) || destructured.test(text);
    });
    expect(files.length).toBeGreaterThan(30);
    expect(wrong).toEqual([]);
  });
});

describe("docs/architecture.md", () => {
  it("draws the layers as they are checked here", () => {
    const text = readFileSync(join(ROOT, "docs/architecture.md"), "utf8");
    const [, table = ""] = /^\| layer \| files \| may import \|\n\|[-|]+\|\n((?:\|.*\n)+)/m.exec(text) ?? [];
    const drawn: Record<string, readonly string[]> = {};
    for (const row of table.trimEnd().split("\n")) {
      const [layer = "", , allowed = ""] = row.slice(2, -2).split(" | ");
      const [, excepted] = /^all above except (.+)$/.exec(allowed) ?? [];
      if (excepted !== undefined) {
        const left = excepted.split(" and ");
        drawn[layer] = Object.keys(drawn).filter((name) => !left.includes(name));
      } else drawn[layer] = allowed === "nothing" ? [] : allowed.split(", ");
    }
    const sorted = (layers: Readonly<Record<string, readonly string[]>>) =>
      Object.fromEntries(Object.entries(layers).map(([name, others]) => [name, [...others].sort()]));
    expect(sorted(drawn)).toEqual(sorted(MAY_IMPORT));
  });
});

describe("the name of a class", () => {
  it("belongs to one class", () => {
    const files = ["src", "web"].flatMap(sourceFiles);
    const names = files.flatMap((file) =>
      Array.from(
        readFileSync(join(ROOT, file), "utf8").matchAll(/^(?:export )?(?:abstract )?class (\w+)/gm),
        ([, name]) => name,
      ),
    );
    expect(names.length).toBeGreaterThan(200);
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
  });
});

describe("an entry of the package", () => {
  const loadedBy = (entry: string): ReadonlySet<string> => {
    const loaded = new Set<string>();
    const open = [`src/entries/${entry}.ts`];
    for (let file = open.pop(); file !== undefined; file = open.pop()) {
      if (loaded.has(file)) continue;
      loaded.add(file);
      open.push(...importsIn(file).flatMap(({ to, typeOnly }) => (typeOnly ? [] : [to])));
    }
    return loaded;
  };

  // Ceilings that only ever go down.
  it.each([
    ["client", 40, ["base", "client", "codec", "entries", "model"]],
    ["task", 5, ["base", "entries", "model"]],
  ])("%s loads no broker, no worker, no store, no dispatch", (entry, most, layers) => {
    const loaded = loadedBy(entry);
    expect([...new Set([...loaded].map(layerOf))].sort()).toEqual(layers);
    expect(loaded.size).toBeLessThanOrEqual(most);
  });
});
