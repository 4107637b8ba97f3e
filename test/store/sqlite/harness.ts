/** A throw-away data directory for each test. */
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSqliteStore } from "../../../src/store/sqlite/index.js";
import type { StoreHarness } from "../suite/kit.js";

export interface DirectoryHarness extends StoreHarness {
  readonly dir: string;
  readonly database: string;
}

export async function sqliteHarness(): Promise<DirectoryHarness> {
  const dir = fs.mkdtempSync(join(tmpdir(), "laboro-store-"));
  return {
    dir,
    database: join(dir, "store.db"),
    handle: () => openSqliteStore({ dir }),
    dispose: async () => fs.rmSync(dir, { recursive: true, force: true }),
  };
}
