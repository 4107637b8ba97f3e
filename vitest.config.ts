import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, statfsSync } from "node:fs";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { SkippedReporter } from "./test/support/skipped-reporter.js";

/** Files of more than 12 seconds on two cores, the longest first. Started late, they would be waited for at the end. */
const LONG = [
  ...["browser/dashboard", "cli/run/resume", "faults/one-broker", "faults/schedules"],
  ...["store/postgres/transactions", "package/archive", "cli/run/output", "faults/full-disk"],
  ...["package/tarball", "docs/recipes", "cli/experiments", "faults/group-brokers"],
  ...["protocols/fuq/foreman/silent-worker", "cli/ssh/run", "cli/run/early-end", "cli/run/parallel-options"],
  ...["docs/samples", "cli/rr", "protocols/fuq/worker/our-foreman", "faults/garbage-at-the-listener"],
  ...["cli/run/entries", "faults/group-database", "faults/delayed-jobs", "handlers/command-line"],
  ...["faults/files", "store/postgres/faults", "protocols/round-robin/server", "faults/group-times-and-keys"],
  ...["client/follow", "protocols/scale0/text-broker", "faults/damaged-files", "protocols/scale0/prototype"],
  ...["protocols/fuq/foreman/raw-listener", "faults/another-store", "worker/link-cuts"],
  ...["protocols/round-robin/own-peers", "faults/much-output", "protocols/runexp/refusals"],
  ...["store/postgres/contract"],
];

/** Node reads these certificates at every start, in twice the time that it needs for the rest. Tests use none of them. */
delete process.env.NODE_EXTRA_CA_CERTS;

/** A file system in memory, for temporary files: there a sync costs nothing. A TMPDIR that is set is used instead. */
const MEMORY = "/dev/shm";
const ENOUGH_BYTES = 2 ** 32;

if (process.env.TMPDIR === undefined && freeBytes(MEMORY) > ENOUGH_BYTES) {
  for (const name of readdirSync(MEMORY)) {
    const [, pid] = /^laboro-(\d+)$/.exec(name) ?? [];
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
    try {
      rmSync(`${MEMORY}/${name}`, { recursive: true, force: true });
    } catch {
      // A file system that a killed run left mounted there.
    }
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
    const place = ({ moduleId }: TestSpecification): number => {
      const at = LONG.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
      return at < 0 ? LONG.length : at;
    };
    return sorted.sort((a, b) => place(a) - place(b));
  }
}

const EXCLUDED = ["**/node_modules/**"];
/** Counts what `run` does, which depends on how long its tasks take: these tests run alone, after all others. */
const ALONE = ["test/budgets/run.test.ts"];

export default defineConfig({
  test: {
    // Far more than a test takes on a busy machine: only one that hangs is ended.
    testTimeout: 120_000 * Math.max(1, Number(process.env.LABORO_TEST_SCALE ?? 1)),
    hookTimeout: 120_000,
    // Most of what tests do is wait for processes, disks and time-outs, so more of them run at once than there are cores.
    maxWorkers: 7,
    // Loading laboro takes longer than most files of tests do. What a test opens it closes itself, so files can share what they import.
    isolate: false,
    // Transformed modules, by their content: a later run loads them in a third of the time.
    experimental: { fsModuleCache: true },
    setupFiles: ["collect-garbage", "regular-expressions", "seed"].map((name) => `test/support/${name}.ts`),
    reporters: ["default", new SkippedReporter()],
    sequence: { sequencer: LongFirst },
    projects: [
      {
        extends: true,
        test: {
          name: "all",
          include: ["test/**/*.test.ts"],
          exclude: [...EXCLUDED, ...ALONE],
          globalSetup: "test/store/postgres/shared-server.ts",
          sequence: { groupOrder: 0 },
        },
      },
      { extends: true, test: { name: "alone", include: ALONE, exclude: EXCLUDED, sequence: { groupOrder: 1 } } },
    ],
  },
});
