/** Files with secrets: readable by their owner only, written whole or not at all. */
import { chmodSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { writeFailure } from "./files/durable.js";

export function writePrivate(path: string, content: string): void {
  const part = `${path}.${process.pid}`;
  try {
    writeFileSync(part, content, { mode: 0o600 });
    // The mode is not used where the file was there already.
    chmodSync(part, 0o600);
    renameSync(part, path);
  } catch (cause) {
    rmSync(part, { force: true });
    throw writeFailure(cause, `cannot write ${path}`);
  }
}
