import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { Job } from "../../../src/model/job.js";
import type { TaskRange, Write } from "../../../src/model/store.js";
import { openSqliteStore } from "../../../src/store/sqlite/index.js";
import { Broker, chunk, NOW, results } from "../suite/kit.js";

/** A disk of 8 MiB, or why there is none. */
function smallDisk(): { readonly path: string } | { readonly why: string } {
  const path = fs.mkdtempSync(join(tmpdir(), "laboro-disk-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=8m", "tmpfs", path], { stdio: "pipe" });
    return { path };
  } catch (cause) {
    fs.rmdirSync(path);
    return { why: cause instanceof Error ? cause.message.split("\n").slice(0, 2).join(" ") : String(cause) };
  }
}

const disk = smallDisk();

afterAll(() => {
  if (!("path" in disk)) return;
  execFileSync("umount", [disk.path]);
  fs.rmdirSync(disk.path);
});

const ROWS = 2000;
type MakeBatch = (job: Job, out: TaskRange, first: number) => readonly Write[];

const settleOnly: MakeBatch = (job, out, first) => [
  { op: "settle", job: job.id, rangeId: out.id, results: results(first, first + ROWS - 1), empty: false },
];
const withOutput: MakeBatch = (job, out, first) => [
  { op: "output", chunks: [chunk(job, first, 0, "x".repeat(400_000))] },
  ...settleOnly(job, out, first),
];

describe.each([
  ["results", settleOnly],
  ["output and results", withOutput],
])("a full disk, with %s", (name, batch) => {
  it.skipIf("why" in disk)(
    `rolls a batch back as a whole and takes it when there is room${"why" in disk ? ` (skipped, cannot mount: ${disk.why})` : ""}`,
    async () => {
      if (!("path" in disk)) return;
      const dir = join(disk.path, name.replaceAll(" ", "-"));
      const ballast = join(disk.path, "ballast");
      fs.writeFileSync(ballast, Buffer.alloc(5 * 1024 * 1024));
      const broker = await Broker.at(openSqliteStore({ dir }));
      const { job, taskRange } = await broker.submitAll(1_000_000);
      const out = await broker.claim(taskRange, 0, 999_999);

      let taken = 0;
      let refusal: unknown;
      while (refusal === undefined) {
        const writes = batch(job, out, taken);
        refusal = await broker.store.commit(writes, NOW).then(
          () => undefined,
          (cause: unknown) => cause,
        );
        if (refusal === undefined) taken += ROWS;
      }
      expect(refusal).toMatchObject({ code: "LABORO_DISK_FULL" });
      expect(taken).toBeGreaterThan(0);
      const writes = batch(job, out, taken);
      await expect(broker.store.commit(writes, NOW)).rejects.toMatchObject({ code: "LABORO_DISK_FULL" });
      expect((await broker.job(job)).counters.succeeded).toBe(taken);
      expect((await broker.store.results(job.id, { from: taken, limit: 5 })).results).toEqual([]);

      fs.rmSync(ballast);
      const answers = await broker.store.commit(writes, NOW);
      const counters = { succeeded: taken + ROWS, failed: 0, cancelled: 0 };
      expect(answers.at(-1)).toEqual({ op: "settle", lost: false, progress: { counters } });
      await broker.store.close();

      const again = await Broker.at(openSqliteStore({ dir }));
      expect((await again.job(job)).counters).toEqual(counters);
      const stored = await again.store.results(job.id, { from: 0, limit: taken + ROWS + 1 });
      console.log(`full disk (${name}): lost: ${counters.succeeded - stored.results.length}`);
      expect(stored.results).toHaveLength(counters.succeeded);
      if (batch === withOutput) {
        const { pieces } = await again.store.output(job.id, taken, { from: 0, limit: 1_000_000 });
        expect(pieces.map(({ bytes }) => bytes.length)).toEqual([400_000]);
      }
      await again.store.close();
      fs.rmSync(dir, { recursive: true });
    },
  );
});
