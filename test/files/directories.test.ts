import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { makeDirectory } from "../../src/base/files/durable.js";
import { scratch } from "./scratch.js";

describe("making a directory", () => {
  it("makes those above it too, and says which was the first", () => {
    const dir = scratch();
    expect(makeDirectory(join(dir, "a", "b", "c"), 0o700)).toBe(join(dir, "a"));
    expect(fs.statSync(join(dir, "a", "b", "c")).mode & 0o777).toBe(0o700);
    expect(makeDirectory(join(dir, "a", "b", "c"), 0o700)).toBeUndefined();
    expect(makeDirectory(join(dir, "a", "d"), 0o700)).toBe(join(dir, "a", "d"));
  });

  it("fails at once where there can be none", () => {
    const dir = scratch();
    fs.writeFileSync(join(dir, "file"), "");
    for (const path of ["/proc/laboro/x", "/proc/laboro", join(dir, "file"), join(dir, "file", "x")]) {
      expect(() => makeDirectory(path, 0o700)).toThrow(/ENOENT|EEXIST|ENOTDIR|EACCES|EPERM|EROFS/);
    }
  });
});
