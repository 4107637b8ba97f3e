import { execFile } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { REPOSITORY } from "../support/launched.js";

describe("docs/reference/cli.md", () => {
  it("says what the verbs say", async () => {
    const check = join(REPOSITORY, "scripts", "cli-docs.mjs");
    const stderr = await new Promise<string>((resolve) => {
      execFile(process.execPath, [check, "--check"], (_error, _stdout, said) => resolve(said));
    });
    expect(stderr, "run: npm run build && node scripts/cli-docs.mjs").toBe("");
  });
});
