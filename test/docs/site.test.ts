import { execFile } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";
import { REPOSITORY } from "../support/launched.js";

it("the API reference has text on every exported name and member, and no warning", async () => {
  const script = join(REPOSITORY, "scripts", "docs-site.mjs");
  const said = await new Promise<string>((resolve) => {
    execFile(process.execPath, [script, "--check"], { env: { ...process.env, NO_COLOR: "1" } }, (_error, out, errors) =>
      resolve(out + errors),
    );
  });
  expect(said, "run: npm run build && node scripts/docs-site.mjs --check").toBe("");
});
