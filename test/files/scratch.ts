import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** A directory of this test's own, removed after it. */
export function scratch(): string {
  const directory = fs.mkdtempSync(join(tmpdir(), "laboro-test-"));
  onTestFinished(() => fs.rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** A filesystem of its own with this much room; undefined where mounting is not permitted. */
export function smallDisk(bytes: number): string | undefined {
  const directory = fs.mkdtempSync(join(tmpdir(), "laboro-disk-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${bytes}`, "tmpfs", directory], { stdio: "ignore" });
  } catch {
    fs.rmdirSync(directory);
    return undefined;
  }
  onTestFinished(() => {
    execFileSync("umount", ["-l", directory]);
    fs.rmdirSync(directory);
  });
  return directory;
}

export const NO_MOUNT = "needs the right to mount a tmpfs";

/** Fills the disk to the last byte, and says which file to remove to make room again. */
export function fill(directory: string): string {
  const path = join(directory, "filler");
  const fd = fs.openSync(path, "w");
  try {
    for (const size of [65536, 4096, 1]) {
      for (;;) if (fs.writeSync(fd, Buffer.alloc(size)) < size) break;
    }
  } catch {
    // Full: that was the purpose.
  } finally {
    fs.closeSync(fd);
  }
  return path;
}
