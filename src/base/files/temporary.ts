import { accessSync, constants, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../errors.js";
import { transientCode } from "./durable.js";

/** A new folder of this name and a random ending in the system's temporary folder. The caller removes it. */
export const makeTemporaryFolder = (name: string): string =>
  inTemporaryFolder(tmpdir(), () => mkdtempSync(join(tmpdir(), name)));

/** Throws if no folder can be made there. */
export const checkTemporaryFolder = (dir: string): void =>
  inTemporaryFolder(dir, () => accessSync(dir, constants.W_OK | constants.X_OK));

function inTemporaryFolder<T>(dir: string, act: () => T): T {
  try {
    return act();
  } catch (cause) {
    if (transientCode(errnoOf(cause)) !== undefined) throw cause;
    const reason = errnoOf(cause) === "ENOENT" ? "there is no such folder" : (errnoOf(cause) ?? String(cause));
    throw new LaboroError(
      "LABORO_DATA_UNUSABLE",
      `temporary files cannot be made in ${dir} (${reason}); set TMPDIR to a folder where you may write`,
      { cause },
    );
  }
}
