/** A throw-away data directory for each test. */
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSqliteStore } from "../../../src/store/sqlite/index.js";
import type { StoreHarness } from "../suite/kit.js";

export interface DirectoryHarness extends StoreHarness {
  readonly dir: string;
  readonly database: string;
  /** What the stores reported as missing. */
  readonly reported: string[];
}

export async function sqliteHarness(): Promise<DirectoryHarness> {
  const dir = fs.mkdtempSync(join(tmpdir(), "laboro-store-"));
  const reported: string[] = [];
  const log = (line: string, code?: string): void => {
    if (code !== undefined) reported.push(`${code}: ${line}`);
  };
  return {
    dir,
    reported,
    database: join(dir, "store.db"),
    handle: () => openSqliteStore({ dir, log }),
    dispose: async () => fs.rmSync(dir, { recursive: true, force: true }),
  };
}
