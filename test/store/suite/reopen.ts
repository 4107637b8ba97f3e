import { expect, it } from "vitest";
import { returnedIndex, sentIndex } from "../../../src/model/task-files.js";
import { ANN, BOB, Broker, chunk, type MakeStore, newRangeId, request, result, results, waiting } from "./kit.js";

export function describeReopen(make: MakeStore): void {
  it("keeps files of a job and of its attempts through a close and an open, and removes them with the job", async () => {
    const harness = await make();
    try {
      const before = await Broker.at(harness.handle());
      const { job } = await before.submit({}, 0, ["a"]);
      const sent = { job: job.id, index: sentIndex(1), attempt: 1 };
      const returned = { job: job.id, index: returnedIndex(0), attempt: 1 };
      await before.write({ op: "output", chunks: [chunk(job, sent.index, 0, "half ")] });
      await before.store.close();

      const after = await Broker.at(harness.handle());
      const { store } = after;
      const read = async ({ index }: { index: number }, from = 0) =>
        (await store.output(job.id, index, { attempt: 1, from, limit: 99 })).pieces
          .map(({ bytes }) => Buffer.from(bytes).toString())
          .join();
      expect(await store.storedOutputBytes([sent])).toEqual([5]);
      await after.write({ op: "output", chunks: [chunk(job, sent.index, 5, "and half")] });
      const [waits] = (await after.lease(job.id, 1)).taskRanges;
      if (waits === undefined) throw new Error("no task range was granted");
      const claimed = await after.claim(waits, 0, 0);
      await after.write({ op: "output", chunks: [chunk(job, returned.index, 0, "back")] });
      expect([await read(sent), await read(sent, 9), await read(returned)]).toEqual(["half and half", "half", "back"]);
      expect(await store.output(job.id, 0, { from: 0, limit: 99 })).toEqual({ pieces: [] });
      await after.settle(claimed, [result(0)]);
      expect([await read(sent), await read(returned)]).toEqual(["half and half", "back"]);
      await after.write({ op: "remove", job: job.id });
      expect([await read(sent), await read(returned)]).toEqual(["", ""]);
      await after.store.close();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });

  it("keeps the output of an attempt that never ended, also after the end of its job and a close", async () => {
    const harness = await make();
    try {
      const before = await Broker.at(harness.handle());
      const { job, taskRange } = await before.submitAll(1);
      const first = await before.claim(taskRange, 0, 0);
      await before.write({ op: "output", chunks: [chunk(job, 0, 0, "lost with its worker")] });
      const again = waiting(first, { crashes: 1 });
      await before.replace(first, [again]);
      await before.settle(await before.claim(again, 0, 0, BOB, 2), [result(0, { attempt: 2 })]);
      await before.store.close();
      const { store } = await Broker.at(harness.handle());
      const { pieces } = await store.output(job.id, 0, { attempt: 1, from: 0, limit: 99 });
      expect(pieces.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(["lost with its worker"]);
      await store.close();
    } finally {
      await harness.dispose();
    }
  });

  it("keeps everything through a close and an open", async () => {
    const harness = await make();
    try {
      const before = await Broker.at(harness.handle());
      const ended = await before.submitAll(1);
      await before.settle(await before.claim(ended.taskRange, 0, 0), [result(0)]);
      const { job, taskRange } = await before.submit({}, 6, ["a", "b", "c", "d", "e", "f", "g", "h"]);
      if (taskRange === undefined) throw new Error("no task range was granted");
      const out = await before.claim(taskRange, 0, 3);
      await before.settle(out, [result(1, { outputBytes: 5 })], false);
      const chunks = [chunk(job, 1, 0, "early"), chunk(job, 2, 0, "going")];
      await before.write({ op: "output", chunks });
      const tried = result(0, { state: "failed", code: 4 });
      const back = waiting(out, { first: 0, last: 0, failures: 1, avoid: ANN, notBefore: 77 });
      const kept = { ...out, id: newRangeId(), first: 1, last: 3 };
      await before.replace(out, [back, kept], { earlierAttempts: [tried] });
      await before.write({ op: "hold", job: job.id, held: true });
      await before.write({ op: "cancel", job: job.id, ranges: [{ first: 2, last: 2 }], reason: "mine" });
      const jobs = await before.store.jobs({ limit: 10 });
      await before.store.close();

      const after = await Broker.at(harness.handle());
      expect(after.held.epoch).toBeGreaterThan(before.held.epoch);
      expect(after.held.identity).toBe(before.held.identity);
      expect(after.held.jobs).toEqual(jobs.jobs.filter(({ id }) => id === job.id));
      expect(await after.store.jobs({ limit: 10 })).toEqual(jobs);
      expect(await after.job(job)).toMatchObject({ held: true, cursor: 6, reason: "mine" });
      expect(await after.store.results(job.id, { from: 0, limit: 9 })).toEqual({
        results: [result(1, { outputBytes: 5 })],
      });
      expect(await after.store.earlierAttempts(job.id, 0)).toEqual([tried]);
      expect(await after.store.entries(job.id, { first: 3, last: 7 })).toEqual(["d", "e", "f", "g", "h"]);
      const { pieces } = await after.store.output(job.id, 2, { from: 0, limit: 99 });
      expect(pieces.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(["going"]);
      expect(await after.store.storedOutputBytes([{ job: job.id, index: 2, attempt: 1 }])).toEqual([5]);
      if (!after.store.shared) {
        expect(after.held.taskRanges.map(({ taskRange: found, settled }) => ({ ...found, settled }))).toEqual(
          [
            { ...taskRange, first: 4, settled: [] },
            { ...back, settled: [] },
            { ...kept, settled: [{ first: 1, last: 1 }] },
          ].sort((a, b) => a.id - b.id),
        );
        expect((await after.settle(kept, results(2, 3))).lost).toBe(false);
      }
      await after.store.close();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });

  it("gives numbers to new jobs that no earlier job had", async () => {
    const harness = await make();
    try {
      const before = await Broker.at(harness.handle());
      const { job } = await before.submit();
      await before.store.close();
      const after = await Broker.at(harness.handle());
      expect((await after.submit()).job.id).toBeGreaterThan(job.id);
      await after.store.close();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });

  it("refuses writes before it is opened and after it is closed", async () => {
    const harness = await make();
    try {
      const store = harness.handle();
      const submit = { op: "submit", job: request(), lease: 0, rangeId: newRangeId() } as const;
      await expect(store.commit([submit], 1)).rejects.toThrow();
      await store.open(1);
      await store.commit([submit], 1);
      await store.close();
      await expect(store.commit([submit], 1)).rejects.toThrow();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });

  it("adopts nothing where the worker's tasks are this broker's already", async () => {
    const harness = await make();
    try {
      const broker = await Broker.at(harness.handle());
      const { taskRange } = await broker.submitAll(2);
      await broker.claim(taskRange, 0, 1, BOB);
      expect(await broker.write({ op: "adopt", worker: BOB })).toEqual({ op: "adopt", taskRanges: [] });
      await broker.store.close();
      harness.check?.();
    } finally {
      await harness.dispose();
    }
  });
}
