import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { checkNode } from "../../../src/cli/verbs/doctor.js";
import { REPOSITORY } from "../../support/launched.js";

const textOf = (path: string): string => readFileSync(join(REPOSITORY, path), "utf8");

describe("the versions of Node that laboro runs on", () => {
  it.each(["20.19.0", "20.20.2", "22.12.0", "22.23.3", "23.0.0", "24.0.0", "26.1.0"])("include %s", (version) => {
    expect(checkNode(version).state).toBe("ok");
  });

  it.each(["18.20.8", "20.12.0", "20.18.3", "21.7.3", "22.11.0"])("do not include %s", (version) => {
    expect(checkNode(version)).toMatchObject({ state: "FAIL", remedy: expect.stringMatching(/20\.19 .* 22\.12 /) });
  });

  it("are the same in package.json and in the documents", () => {
    expect(JSON.parse(textOf("package.json")).engines.node).toBe("^20.19.0 || >=22.12.0");
    for (const page of ["README.md", "docs/guide/first-batch.md"])
      expect(textOf(page)).toContain("Node 20.19 or later, or Node 22.12 or newer");
  });
});
