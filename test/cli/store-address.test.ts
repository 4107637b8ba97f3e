import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { resolveStoreUrl } from "../../src/cli/lib/store-url.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "laboro-address-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const none = (): NodeJS.ProcessEnv => ({ PGPASSFILE: join(dir, "none") });

describe("the address of a store", () => {
  it("is what was given, else LABORO_STORE, else there is none", () => {
    expect(resolveStoreUrl("postgres://me@db/work", { ...none(), LABORO_STORE: "postgres://other@db/x" })).toBe(
      "postgres://me@db/work",
    );
    expect(resolveStoreUrl(undefined, { ...none(), LABORO_STORE: "postgres://me:pw@db/work" })).toBe(
      "postgres://me:pw@db/work",
    );
    expect(resolveStoreUrl(undefined, none())).toBeUndefined();
    expect(resolveStoreUrl(undefined, { ...none(), LABORO_STORE: "" })).toBeUndefined();
  });

  it("may stand in a file, with its password", () => {
    writeFileSync(join(dir, "url"), "postgres://me:pw@db:5433/work\n");
    expect(resolveStoreUrl(`@${join(dir, "url")}`, none())).toBe("postgres://me:pw@db:5433/work");
  });

  it("takes its password from PGPASSWORD, or from the first line of .pgpass that fits", () => {
    expect(resolveStoreUrl("postgres://me@db/work", { ...none(), PGPASSWORD: "p@ss" })).toBe(
      "postgres://me:p%40ss@db/work",
    );
    const file = join(dir, "pgpass");
    writeFileSync(file, "# mine\nother:*:*:*:no\ndb:5432:work:me:a\\:b\n*:*:*:*:last\n", { mode: 0o600 });
    expect(resolveStoreUrl("postgres://me@db/work", { PGPASSFILE: file })).toBe("postgres://me:a%3Ab@db/work");
    expect(resolveStoreUrl("postgres://you@db/work", { PGPASSFILE: file })).toBe("postgres://you:last@db/work");
    chmodSync(file, 0o644);
    expect(resolveStoreUrl("postgres://me@db/work", { PGPASSFILE: file })).toBe("postgres://me@db/work");
  });

  it("has no password in an argument", () => {
    expect(() => resolveStoreUrl("postgres://me:pw@db/work", none())).toThrow("everyone can see it");
  });
});
