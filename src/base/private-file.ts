/** Files with secrets: readable by their owner only, written whole or not at all. */
import { chmodSync, renameSync, writeFileSync } from "node:fs";

export function writePrivate(path: string, content: string): void {
  const part = `${path}.${process.pid}`;
  writeFileSync(part, content, { mode: 0o600 });
  // The mode is not used where the file was there already.
  chmodSync(part, 0o600);
  renameSync(part, path);
}
