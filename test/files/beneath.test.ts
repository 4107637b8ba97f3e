import * as fs from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openBeneath } from "../../src/base/files/beneath.js";
import { scratch } from "./scratch.js";

it("a file below a directory is opened through no link, neither of its own nor of a directory on the way", () => {
  const [root, other] = [scratch(), scratch()];
  fs.mkdirSync(join(root, "real"));
  for (const dir of [join(root, "real"), other]) fs.writeFileSync(join(dir, "file"), "content");
  fs.symlinkSync(join(other, "file"), join(root, "link"));
  fs.symlinkSync(other, join(root, "linked"));
  fs.closeSync(openBeneath(root, "real/file"));
  expect(() => openBeneath(root, "link")).toThrow(expect.objectContaining({ code: "ELOOP" }));
  expect(() => openBeneath(root, "linked/file")).toThrow(/ELOOP|ENOTDIR/);
});
