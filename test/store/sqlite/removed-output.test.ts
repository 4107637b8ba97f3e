import * as fs from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { Broker, chunk, result } from "../suite/kit.js";
import { sqliteHarness } from "./harness.js";

it("removes the segments of a removed job, also where an earlier broker died before it could, and those of no other", async () => {
  const { dir, handle, dispose } = await sqliteHarness();
  const segments = (path = "output"): string[] => fs.readdirSync(join(dir, path)).filter((name) => name !== "store");
  const before = await Broker.at(handle());
  const jobs = [];
  for (const text of ["kept", "removed", "left"]) {
    const { job, taskRange } = await before.submitAll(1);
    const out = await before.claim(taskRange, 0, 0);
    await before.write({ op: "output", chunks: [chunk(job, 0, 0, text)] });
    await before.settle(out, [result(0, { outputBytes: text.length })]);
    jobs.push(job);
  }
  const [kept, removed, left] = jobs.map(({ id }) => id);
  if (kept === undefined || removed === undefined || left === undefined) throw new Error("there are three jobs");
  expect(segments()).toEqual([kept, removed, left].map(String));

  await before.write({ op: "remove", job: removed });
  expect(segments()).toEqual([kept, left].map(String));

  // As it is when a broker dies right after the commit; and output of a job that this database does not know.
  const copy = join(dir, "copy");
  fs.cpSync(join(dir, "output", String(left)), copy, { recursive: true });
  await before.write({ op: "remove", job: left });
  await before.store.close();
  fs.renameSync(copy, join(dir, "output", String(left)));
  fs.mkdirSync(join(dir, "output", "4711"));
  const after = await Broker.at(handle());
  expect(segments()).toEqual([String(kept)]);
  const [aside] = fs.readdirSync(dir).filter((name) => name.startsWith("unknown-output-"));
  expect(segments(aside)).toEqual(["4711"]);
  expect(after.held.nextJob).toBe(4712);
  const { pieces } = await after.store.output(kept, 0, { from: 0, limit: 9 });
  expect(pieces.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(["kept"]);
  await after.store.close();
  await dispose();
});
