/**
 * A regular expression in an expected object has to match the text at its place. By itself `toMatchObject` accepts any
 * value there, because the expression has no members to compare.
 */
import { expect } from "vitest";

expect.addEqualityTesters([
  (actual: unknown, expected: unknown) =>
    expected instanceof RegExp && !(actual instanceof RegExp)
      ? typeof actual === "string" && expected.test(actual)
      : undefined,
]);
