import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { asLaboroError, ERROR_CODES, LaboroError } from "../../src/base/errors.js";

const page = readFileSync(new URL("../../docs/reference/errors.md", import.meta.url), "utf8");
const documented = new Map(
  [...page.matchAll(/^\| `(LABORO_\w+)` \| ([^|]+) \|/gm)].map(([, code, text]) => [code, text?.trim()]),
);

describe("error codes", () => {
  it("stand in the code and on the page with the same words", () => {
    expect(Object.fromEntries(documented)).toEqual(ERROR_CODES);
  });

  it("have advice on the page, each", () => {
    const advised = [...page.matchAll(/^\| `(LABORO_\w+)` \|[^|]+\| *[^| ].* \|$/gm)].map(([, code]) => code);
    expect(advised.sort()).toEqual(Object.keys(ERROR_CODES).sort());
  });

  it("keep their code when they pass through, and get one of laboro's when they had none", () => {
    const known = new LaboroError("LABORO_DEADLINE", "too late");
    expect(asLaboroError(known)).toBe(known);
    expect(asLaboroError(new TypeError("x is not a function"))).toMatchObject({
      code: "LABORO_INTERNAL",
      message: "x is not a function",
    });
  });
});
