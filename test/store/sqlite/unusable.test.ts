import * as fs from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openDataDirectory } from "../../../src/store/sqlite/data-directory.js";
import { openSqliteStore } from "../../../src/store/sqlite/index.js";
import { sqliteHarness } from "./harness.js";

const NFS = "30 1 0:40 / / rw - nfs4 server:/export rw";

it("refuses a network filesystem with the remedy, makes nothing there, and can be told to go on", async () => {
  const { dir, dispose } = await sqliteHarness();
  const inside = join(dir, "new");
  const open = (allowNetworkFilesystem: boolean) =>
    openDataDirectory({ dir: inside, allowNetworkFilesystem, facts: { mountinfo: NFS } });
  expect(() => open(false)).toThrow(
    expect.objectContaining({ code: "LABORO_DATA_NETWORK_FS", message: expect.stringMatching(/nfs4.*--data/) }),
  );
  expect(fs.existsSync(inside)).toBe(false);
  open(true).release();
  expect(fs.existsSync(inside)).toBe(true);
  await dispose();
});

it("refuses a path that cannot be a directory", async () => {
  const { dir, dispose } = await sqliteHarness();
  const file = join(dir, "file");
  fs.writeFileSync(file, "");
  for (const path of [file, join(file, "below")]) {
    await expect(openSqliteStore({ dir: path }).open(1)).rejects.toMatchObject({
      code: "LABORO_DATA_UNUSABLE",
      message: expect.stringContaining(path),
    });
  }
  await dispose();
});

it("refuses a database that is a directory", async () => {
  const { database, handle, dispose } = await sqliteHarness();
  fs.mkdirSync(database);
  await expect(handle().open(1)).rejects.toMatchObject({ code: expect.stringMatching(/UNUSABLE|CORRUPT/) });
  await dispose();
});
