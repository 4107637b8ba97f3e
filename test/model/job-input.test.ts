import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LaboroError } from "../../src/base/errors.js";
import { MAX_TASKS, readSubmission } from "../../src/model/job-input.js";
import { TRUE } from "../support/recipes.js";

const SHA256 = "0".repeat(64);
const COMMAND = { kind: "command", argv: ["echo", "{}"] };

function refusal(input: unknown): string {
  try {
    readSubmission(input);
  } catch (cause) {
    if (cause instanceof LaboroError && cause.code === "LABORO_BAD_INPUT") return cause.message;
    throw cause;
  }
  throw new Error("it was not refused");
}

describe("a submission", () => {
  it("needs nothing but a recipe", () => {
    const { spec: request, entries } = readSubmission({ recipe: TRUE });
    expect(entries).toBeUndefined();
    expect(request).toMatchObject({
      count: 1,
      priority: 0,
      requirement: { pool: "default", tags: [], needs: { slots: 1 } },
      limits: { retries: 0, crashLimit: 5 },
      after: [],
      held: false,
    });
    expect(request.limits).not.toHaveProperty("maxFails");
  });

  it("names files below the folder of a task only", () => {
    const sent = (path: string) => ({ recipe: { ...COMMAND, files: { sent: [{ path, size: 1, sha256: SHA256 }] } } });
    expect(readSubmission(sent("data/x..csv")).spec.count).toBe(1);
    for (const path of ["../x", "data/../../x", "data/..", ".", "/etc/passwd", "data//x", "", "a\0b"])
      expect(refusal(sent(path)), path).toMatch(/^recipe\.files\.sent\[0\]\.path: /);
  });

  it("may give its tasks numbers, one each and rising", () => {
    const [seven, nine] = [7, 9].map((first) => ({ first, last: first, step: 1 }));
    const entries = ["a", "b"];
    expect(readSubmission({ recipe: COMMAND, entries, numbers: [seven, nine], resumes: 3 }).spec).toMatchObject({
      count: 2,
      numbers: [seven, nine],
      resumes: 3,
    });
    expect(readSubmission({ recipe: TRUE, numbers: [{ first: 5, last: 9, step: 2 }] }).spec.count).toBe(3);
    expect(refusal({ recipe: COMMAND, entries, numbers: [nine, seven] })).toBe(
      "numbers: expected each number to be larger than the one before it",
    );
    expect(refusal({ recipe: COMMAND, entries, numbers: [seven] })).toBe("numbers: expected 2, one an entry, got 1");
    expect(refusal({ recipe: COMMAND, count: 3, numbers: [seven, nine] })).toContain("count: expected 2");
    expect(refusal({ recipe: { ...COMMAND, array: [seven] }, numbers: [seven] })).toContain("none beside an array");
  });

  it("has an array that names each number once", () => {
    const array = [
      { first: 1, last: 9, step: 2 },
      { first: 4, last: 6 },
    ];
    expect(refusal({ recipe: { ...COMMAND, array } })).toBe(
      "recipe.array: expected each number once, but 5 is named twice",
    );
    expect(refusal({ recipe: { ...COMMAND, array: [{ first: -1, last: 3 }] } })).toContain("recipe.array[0].first");
  });

  it("has as many tasks as entries, and may not say another number", () => {
    expect(readSubmission({ recipe: COMMAND, entries: ["a", "b"] }).spec.count).toBe(2);
    expect(refusal({ recipe: COMMAND, entries: ["a", "b"], count: 3 })).toBe(
      "count: expected 2, the number of entries, got 3",
    );
    expect(refusal({ recipe: COMMAND, entries: [] })).toContain("at least one entry");
  });

  it("for a service asks for a worker that offers it", () => {
    const { spec: request } = readSubmission({ recipe: { kind: "call", service: "sum" } });
    expect(request.requirement.service).toBe("sum");
  });

  it("says what was expected and what came", () => {
    const cases: [unknown, string][] = [
      [undefined, "expected an object, got undefined"],
      [{}, "recipe: expected an object, got undefined"],
      [{ recipe: { kind: "magic" } }, 'recipe.kind: expected command, script or call, got "magic"'],
      [{ recipe: { kind: "command", argv: [] } }, 'recipe.argv: expected a command, got "nothing"'],
      [{ recipe: COMMAND, cout: 3 }, 'got "cout"'],
      [{ recipe: COMMAND, count: MAX_TASKS + 1 }, "count: expected a whole number from 0 to 1000000000"],
      [{ recipe: COMMAND, count: 0 }, "count: expected a whole number from 1"],
      [{ recipe: COMMAND, needs: { slots: 0 } }, "needs.slots: expected a whole number from 1"],
      [{ recipe: COMMAND, needs: { gpu: -1 } }, "needs.gpu: expected a number above 0, got -1"],
      [{ recipe: COMMAND, priority: 1.5 }, "priority: expected a whole number from -1000 to 1000, got 1.5"],
      [{ recipe: COMMAND, after: [{ job: 0 }] }, "after[0].job: expected a whole number from 1"],
      [{ recipe: { ...COMMAND, env: { "A B": "x" } } }, "recipe.env: expected names of letters, digits and _"],
      [{ recipe: { ...COMMAND, argv: ["a\0b"] } }, "recipe.argv[0]: expected text or bytes without NUL"],
      [{ recipe: { ...COMMAND, shell: true } }, "recipe.argv: expected one line for the shell"],
    ];
    for (const [input, message] of cases) expect(refusal(input)).toContain(message);
  });

  it("of any shape is read or refused with LABORO_BAD_INPUT, never with another error", () => {
    const known = fc.record(
      {
        recipe: fc.oneof(fc.constant(COMMAND), fc.anything()),
        count: fc.anything(),
        entries: fc.anything(),
        needs: fc.anything(),
        tags: fc.anything(),
        limits: fc.anything(),
        after: fc.anything(),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.oneof(known, fc.anything()), (input) => {
        try {
          readSubmission(input);
        } catch (cause) {
          expect(cause).toBeInstanceOf(LaboroError);
          expect((cause as LaboroError).code).toBe("LABORO_BAD_INPUT");
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
