import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { ERROR_CODES } from "../../src/base/errors.js";
import { HTTP_STATUS } from "../../src/broker/api/json.js";
import { OPERATIONS } from "../../src/broker/operations/index.js";
import { apiOf, openListener } from "./kit.js";

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required: boolean;
  readonly schema: object;
}

interface Described {
  readonly operationId: string;
  readonly summary: string;
  readonly parameters: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema: object }>> }>
  >;
}

interface Document {
  readonly openapi: string;
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
}

async function fetched(): Promise<Document> {
  const { broker } = await openListener();
  return (await apiOf(broker)("/openapi.json")).json as Document;
}

describe("the OpenAPI document", () => {
  it("lists every operation once, where it lies, with all of its input", async () => {
    const document = await fetched();
    expect(document.openapi).toBe("3.1.0");
    expect(document.info).toMatchObject({ title: "laboro", version: "0.2.0" });
    const listed = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => `${operationId} ${method.toUpperCase()} ${path}`),
    );
    const table = Object.values(OPERATIONS).map(({ name, method, path }) => `${name} ${method} ${path}`);
    expect(listed.sort()).toEqual(table.sort());
    for (const [path, methods] of Object.entries(document.paths)) {
      for (const described of Object.values(methods)) {
        const inPath = described.parameters.filter((one) => one.in === "path");
        expect(inPath.map(({ name }) => `{${name}}`)).toEqual(path.match(/\{\w+\}/g) ?? []);
        expect(inPath.every(({ required }) => required)).toBe(true);
        const body = described.requestBody?.content["application/json"]?.schema as { properties?: object } | undefined;
        const members = [...described.parameters.map(({ name }) => name), ...Object.keys(body?.properties ?? {})];
        const { input } = OPERATIONS[described.operationId as keyof typeof OPERATIONS];
        const wanted = Object.keys(input.shape).filter(
          (name) => described.operationId !== "request" || name !== "body",
        );
        expect(members.sort()).toEqual(wanted.sort());
      }
    }
  });

  it("holds schemas that are JSON Schema", async () => {
    const ajv = new Ajv2020({ strict: true, allowUnionTypes: true, formats: { "date-time": true } });
    for (const methods of Object.values((await fetched()).paths)) {
      for (const { parameters, requestBody, responses } of Object.values(methods)) {
        const contents = [requestBody?.content, ...Object.values(responses).map(({ content }) => content)];
        for (const { schema } of [...parameters, ...contents.flatMap((content) => Object.values(content ?? {}))]) {
          expect(() => ajv.compile(schema)).not.toThrow();
        }
      }
    }
  });
});

describe("docs/reference/api.md", () => {
  const page = readFileSync(new URL("../../docs/reference/api.md", import.meta.url), "utf8");

  it("lists every event", () => {
    const kinds = /"kind":\{"type":"string","enum":\[([^\]]+)\]/.exec(
      JSON.stringify(OPERATIONS.events.output.json()),
    )?.[1];
    const section = page.slice(page.indexOf("\n## Events"), page.indexOf("\n## Errors"));
    const cells = Array.from(section.matchAll(/^\| (`[^|]+) \|/gm), ([, cell = ""]) => cell);
    const listed = cells.flatMap((cell) => Array.from(cell.matchAll(/`([\w-]+)`/g), ([, name = ""]) => name));
    expect(listed.sort()).toEqual((JSON.parse(`[${kinds}]`) as string[]).sort());
  });

  it("has the status of every code that has one of its own", () => {
    const rows = new Map(
      Array.from(page.matchAll(/^\| `(LABORO_\w+)` \| (\d{3}) \|$/gm), ([, code = "", status]) => [
        code,
        Number(status),
      ]),
    );
    expect(Object.fromEntries(rows)).toEqual(HTTP_STATUS);
    const missing = Object.keys(ERROR_CODES).filter((code) => code.startsWith("LABORO_NO_SUCH_"));
    expect(missing.length).toBeGreaterThan(4);
    expect(missing.filter((code) => rows.get(code) !== 404)).toEqual([]);
  });
});

it("docs/reference/api.md and docs/reference/json.md have the operations and the members of answers that the code has", () => {
  const script = fileURLToPath(new URL("../../scripts/api-docs.mjs", import.meta.url));
  const { stderr } = spawnSync(process.execPath, [script, "--check"], { encoding: "utf8" });
  expect(stderr, "run: npm run build && node scripts/api-docs.mjs").toBe("");
});
