import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, statfsSync } from "node:fs";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Tests that share a server of PostgreSQL, which is started only where one of them is run. */
const POSTGRES = "test/store/postgres/**/*.test.ts";

/** Files of a minute or so. Begun last, as their size would have it, they would be waited for when all others have ended. */
const LONG = /\/test\/(browser\/dashboard|interop\/day|cli\/experiments|cli\/scale0)\./;

/** Node reads these certificates at every start, in twice the time that it needs for the rest. Tests use none of them. */
delete process.env.NODE_EXTRA_CA_CERTS;

/** A file system in memory, for temporary files: there a sync costs nothing. A TMPDIR that is set is used instead. */
const MEMORY = "/dev/shm";
const ENOUGH_BYTES = 2 ** 32;

if (process.env.TMPDIR === undefined && freeBytes(MEMORY) > ENOUGH_BYTES) {
  for (const name of readdirSync(MEMORY)) {
    const [, pid] = /^laboro-(\d+)$/.exec(name) ?? [];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) rmSync(`${MEMORY}/${name}`, { recursive: true, force: true });
  }
  const dir = `${MEMORY}/laboro-${process.pid}`;
  mkdirSync(dir);
  // As /tmp: some tests run a process as another user.
  chmodSync(dir, 0o1777);
  process.env.TMPDIR = dir;
  process.once("exit", () => rmSync(dir, { recursive: true, force: true }));
}

function freeBytes(dir: string): number {
  try {
    const { bavail, bsize } = statfsSync(dir);
    return bavail * bsize;
  } catch {
    return 0;
  }
}

class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification): boolean => LONG.test(moduleId);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

export default defineConfig({
  test: {
    testTimeout: 30_000 * Math.max(1, Number(process.env.LABORO_TEST_SCALE ?? 1)),
    hookTimeout: 30_000,
    // Most of what tests do is wait for processes, disks and time-outs, so more of them run at once than there are cores.
    maxWorkers: 4,
    // Loading laboro takes longer than most files of tests do. What a test opens it closes itself, so files can share what they import.
    isolate: false,
    setupFiles: "test/support/collect-garbage.ts",
    sequence: { sequencer: LongFirst },
    projects: [
      {
        extends: true,
        test: { name: "postgres", include: [POSTGRES], globalSetup: "test/store/postgres/shared-server.ts" },
      },
      {
        extends: true,
        test: { name: "laboro", include: ["test/**/*.test.ts"], exclude: [POSTGRES, "**/node_modules/**"] },
      },
    ],
  },
});
