import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { KnownBrokers, openWorkerDirectory } from "../../../src/worker/spool/worker-directory.js";
import { scratch } from "../../files/scratch.js";

it("the brokers of a group are remembered for the token and the CA that they accept, and no other", () => {
  const path = join(scratch(), "brokers.json");
  const [one, two, other] = ["https://one", "https://two", "https://other"] as const;
  const known = (url: string, token: string, caFingerprint?: string) =>
    new KnownBrokers(path, [url], { token, caFingerprint });
  known(one, "t").setGroup([one, two]);
  expect(known(one, "t").initialUrls).toEqual([one, two]);
  expect(known(other, "u").initialUrls).toEqual([other]);
  expect(known(other, "t", "ca").initialUrls).toEqual([other]);
});

describe("openWorkerDirectory", () => {
  it("makes the directory for its owner only, and the worker keeps its secret, which is not its id", () => {
    const directory = join(scratch(), "deep/worker");
    const first = openWorkerDirectory(directory, { shared: true });
    expect(fs.statSync(directory).mode & 0o777).toBe(0o700);
    expect(first.id).toMatch(/^[0-9a-f]{32}$/);
    const file = join(directory, "worker-secret");
    expect(fs.statSync(file).mode & 0o777).toBe(0o600);
    expect(fs.readFileSync(file, "utf8")).toBe(`${first.secret}\n`);
    expect(first.secret).not.toContain(first.id);
    first.release();
    const second = openWorkerDirectory(directory, { shared: true });
    expect(second.id).toBe(first.id);
    second.release();
    expect(openWorkerDirectory(join(directory, "other"), { shared: true }).id).not.toBe(first.id);
  });

  it("lets one process have it at a time", () => {
    const directory = scratch();
    const held = openWorkerDirectory(directory, { shared: true });
    expect(() => openWorkerDirectory(directory, { shared: true })).toThrow(
      expect.objectContaining({
        code: "LABORO_DATA_IN_USE",
        message: expect.stringContaining(`the worker directory ${directory} is in use by process ${process.pid}`),
      }),
    );
    held.release();
    openWorkerDirectory(directory, { shared: true }).release();
  });

  it("refuses a file that holds no secret, and a directory that cannot be, and keeps no lock", () => {
    const directory = scratch();
    fs.writeFileSync(join(directory, "worker-secret"), "");
    expect(() => openWorkerDirectory(directory, { shared: true })).toThrow(
      expect.objectContaining({ code: "LABORO_DATA_CORRUPT" }),
    );
    expect(fs.readdirSync(directory).filter((name) => name.startsWith("lock"))).toEqual([]);
    expect(() => openWorkerDirectory(join(directory, "worker-secret"), { shared: true })).toThrow(
      expect.objectContaining({ code: "LABORO_DATA_UNUSABLE" }),
    );
  });
});
