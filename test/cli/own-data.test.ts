import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { localData, lockDirectory } from "../../src/base/files/local-data.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "laboro-own-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const NFS = 0x6969;
const EXT4 = 0xef53;

describe("the data of a broker of one's own", () => {
  it("lies in the directory", () => {
    expect(localData(dir, { type: EXT4, mountinfo: "" })).toEqual({ dir: join(dir, ".laboro") });
    expect(existsSync(join(dir, ".laboro"))).toBe(false);
  });

  it("lies on this machine where the directory is on a network filesystem: one place for each, and for its user alone", () => {
    const options = { type: NFS, mountinfo: "", baseDir: join(dir, "local") };
    const [a, b] = [join(dir, "a", "study 1"), join(dir, "b", "study 1")];
    for (const made of [a, b]) mkdirSync(made, { recursive: true });
    const home = join(dir, "local", `laboro-${userInfo().uid}`);
    const { dir: place, elsewhere } = localData(a, options);
    expect(elsewhere).toMatchObject({ kind: "network", reason: expect.stringContaining("nfs") });
    expect(place).toMatch(new RegExp(`^${home}/study_1-[0-9a-f]{16}$`));
    expect(localData(a, options).dir).toBe(place);
    expect(localData(b, options).dir).not.toBe(place);
    expect(statSync(home).mode & 0o777).toBe(0o700);
  });

  it("that lies elsewhere leaves a lock in the directory, for those on other machines", () => {
    const lock = lockDirectory(dir, "/elsewhere");
    expect(() => lockDirectory(dir, "/elsewhere")).toThrow(`${dir} is in use by process ${process.pid}`);
    lock?.release();
    lockDirectory(dir, "/elsewhere")?.release();
    expect(lockDirectory(dir, join(dir, ".laboro"))).toBeUndefined();
  });

  it("is not put into a folder that others can write to, or that is a link of somebody's", () => {
    const options = { type: NFS, mountinfo: "", baseDir: dir };
    const home = join(dir, `laboro-${userInfo().uid}`);
    mkdirSync(home);
    chmodSync(home, 0o777);
    expect(() => localData(dir, options)).toThrow(/others can write to it/);
    rmSync(home, { recursive: true });
    mkdirSync(join(dir, "elsewhere"), { mode: 0o700 });
    symlinkSync(join(dir, "elsewhere"), home);
    expect(() => localData(dir, options)).toThrow(/it is a link/);
  });
});
