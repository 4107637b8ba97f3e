import { expect, it } from "vitest";
import type { TaskRange, Write } from "../../../src/model/store.js";
import { ANN, Broker, type MakeStore, newRangeId, request } from "./kit.js";

type Wrong = (waiting: TaskRange, out: TaskRange) => Write;

const WRONG: readonly (readonly [string, Wrong])[] = [
  [
    "a claim under an id that is taken",
    (waiting, out) => ({ op: "claim", from: waiting.id, rangeId: out.id, first: 2, last: 3, attempt: 1, worker: ANN }),
  ],
  [
    "a claim out of the middle of a task range",
    (waiting) => ({ op: "claim", from: waiting.id, rangeId: newRangeId(), first: 4, last: 5, attempt: 1, worker: ANN }),
  ],
  ["a submission under an id that is taken", (_, out) => ({ op: "submit", job: request(), lease: 1, rangeId: out.id })],
];

/** Batches that no right broker gives. */
export function describeRefusals(make: MakeStore): void {
  it.each(WRONG)("refuses %s", async (_, wrong) => {
    const harness = await make();
    const broker = await Broker.at(harness.handle());
    const { taskRange } = await broker.submitAll(10);
    const out = await broker.claim(taskRange, 0, 1);
    const writes: Write[] = [{ op: "hold", job: taskRange.job, held: true }, wrong({ ...taskRange, first: 2 }, out)];
    await expect(broker.store.commit(writes, 1)).rejects.toMatchObject({ code: "LABORO_INTERNAL" });
    await broker.store.close();
    await harness.dispose();
  });
}
