import { expect, it } from "vitest";
import { JobId, TaskRangeId } from "../../../src/model/ids.js";
import type { Write } from "../../../src/model/store.js";
import { type Stage, stagesOf } from "../../../src/store/postgres/stages.js";
import { ANN, request } from "../suite/kit.js";

const JOB = JobId(1);
const P = TaskRangeId;
const settle = (taskRange: number, empty = true): Write => ({
  op: "settle",
  job: JOB,
  rangeId: P(taskRange),
  results: [],
  empty,
});
const claim = (from: number, taskRange: number, first: number, last = first): Write => ({
  op: "claim",
  from: P(from),
  rangeId: P(taskRange),
  first,
  last,
  attempt: 1,
  worker: ANN,
});
const replace = (taskRange: number, ...pieces: number[]): Write => ({
  op: "replace",
  job: JOB,
  rangeId: P(taskRange),
  replacements: pieces.map((id) => ({
    id: P(id),
    job: JOB,
    first: 0,
    last: 0,
    attempt: 1,
    failures: 0,
    crashes: 0,
    notBefore: 0,
  })),
  earlierAttempts: [],
  cancelled: 0,
});
const lease = (job: number, taskRange: number): Write => ({
  op: "lease",
  job: JobId(job),
  max: 9,
  rangeId: P(taskRange),
});
const release = (taskRange: number): Write => ({ op: "release", rangeId: P(taskRange) });
const submit = (taskRange: number): Write => ({ op: "submit", job: request(), lease: 1, rangeId: P(taskRange) });

/** The places of the writes, stage by stage, in the order in which they are carried out. */
const shape = (stages: readonly Stage[]): number[][] =>
  stages.map(({ submits, settles, replaces, claims, leases, singles: solo }) =>
    [submits, settles, replaces, claims, leases, solo].flatMap((list) => list.map(({ at }) => at)),
  );

it("takes results, tasks that go back and claims of one batch together", () => {
  const writes = [settle(1), claim(9, 10, 0), replace(2, 20), claim(20, 21, 0), settle(3), claim(9, 11, 1), submit(30)];
  expect(shape(stagesOf(writes, false))).toEqual([[6, 0, 4, 2, 1, 3, 5]]);
});

it.each<[string, Write[]]>([
  ["a claim and the result of its task", [claim(9, 10, 0), settle(10)]],
  ["a task range that is emptied, and settled again", [settle(1), settle(1)]],
  ["a task range that is replaced, and settled", [replace(1, 2), settle(1)]],
  ["a piece, and what replaces it", [replace(1, 2), replace(2, 3)]],
  ["a task range that is claimed from, and replaced", [claim(9, 10, 0), replace(9, 2)]],
  ["a task range that is claimed from, and settled", [claim(9, 10, 0), settle(9)]],
  ["a claim from what was claimed", [claim(9, 10, 0), claim(10, 11, 0)]],
  ["claims that do not follow on", [claim(9, 10, 0), claim(9, 11, 5)]],
  ["a lease, and a claim that may be from it", [lease(1, 5), claim(5, 6, 0)]],
  ["a lease, and another of the same job", [lease(1, 5), lease(1, 6)]],
  ["a lease after what is given back", [release(1), lease(1, 5)]],
  ["results around a cancel", [settle(1), { op: "cancel", job: JOB, ranges: [] }]],
])("keeps apart %s", (_, writes) => {
  expect(shape(stagesOf(writes, false))).toEqual(writes.map((_, at) => [at]));
});

it("gives back what is given back in a row at once", () => {
  expect(shape(stagesOf([release(1), release(2), release(3)], false))).toEqual([[0, 1, 2]]);
});

it("keeps every write apart where it is told to, and leaves out output", () => {
  const output: Write = { op: "output", chunks: [] };
  expect(shape(stagesOf([settle(1), output, settle(2), claim(9, 10, 0)], true))).toEqual([[0], [2], [3]]);
});
