import { expect, it } from "vitest";
import type { JobId, TaskIndex } from "../../../src/model/ids.js";
import type { SmallOutput, TaskResult } from "../../../src/model/outcome.js";
import type { Store, Write } from "../../../src/model/store.js";
import type { OutputPage } from "../../../src/model/store-reads.js";
import { type Broker, chunk, NOW, newRangeId, result, waiting } from "./kit.js";

const ALL = { from: 0, limit: 1_000_000 };

/** Pieces as `stream@offset:text`. */
const read = (page: OutputPage): string[] =>
  page.pieces.map(({ stream, offset, bytes }) => `${stream}@${offset}:${Buffer.from(bytes).toString()}`);

async function everything(store: Store, job: JobId, index: TaskIndex, limit: number): Promise<string> {
  let text = "";
  for (let from: number | undefined = 0; from !== undefined; ) {
    const page: OutputPage = await store.output(job, index, { from, limit });
    for (const { bytes } of page.pieces) text += Buffer.from(bytes).toString();
    from = page.next;
  }
  return text;
}

export function describeOutput(broker: () => Broker): void {
  it("keeps both streams in order, from a running task and from an ended one", async () => {
    const { job, taskRange } = await broker().submitAll(2);
    const out = await broker().claim(taskRange, 0, 1);
    const chunks = [
      chunk(job, 0, 0, "one "),
      chunk(job, 0, 4, "two", { stream: "stderr" }),
      chunk(job, 0, 7, " three"),
    ];
    expect(await broker().write({ op: "output", chunks })).toEqual({ op: "output" });
    const { store } = broker();
    const whole = ["stdout@0:one ", "stderr@4:two", "stdout@7: three"];
    expect(read(await store.output(job.id, 0, ALL))).toEqual(whole);
    expect(await store.storedOutputBytes([{ job: job.id, index: 0, attempt: 1 }])).toEqual([13]);
    await broker().settle(out, [result(0, { outputBytes: 13 })], false);
    expect(read(await store.output(job.id, 0, ALL))).toEqual(whole);
    expect(read(await store.output(job.id, 0, { ...ALL, stream: "stdout" }))).toEqual([
      "stdout@0:one ",
      "stdout@7: three",
    ]);
    expect(read(await store.output(job.id, 0, { ...ALL, from: 5 }))).toEqual(["stderr@5:wo", "stdout@7: three"]);
    expect(await store.output(job.id, 1, ALL)).toEqual({ pieces: [] });
    await broker().settle(out, [result(1)]);
    expect(read(await store.output(job.id, 0, ALL))).toEqual(whole);
  });

  it("joins what follows on within a stream, and pages through it", async () => {
    const { job, taskRange } = await broker().submitAll(1);
    await broker().claim(taskRange, 0, 0);
    await broker().write({ op: "output", chunks: [chunk(job, 0, 0, "abc"), chunk(job, 0, 3, "def")] });
    const { store } = broker();
    expect(read(await store.output(job.id, 0, ALL))).toEqual(["stdout@0:abcdef"]);
    const first = await store.output(job.id, 0, { from: 0, limit: 4 });
    expect(read(first)).toEqual(["stdout@0:abcd"]);
    expect(first.next).toBe(4);
    const second = await store.output(job.id, 0, { from: 4, limit: 2 });
    expect(read(second)).toEqual(["stdout@4:ef"]);
    expect(second).not.toHaveProperty("next");
    expect(await everything(store, job.id, 0, 1)).toBe("abcdef");
  });

  it("shows a gap as a jump, and takes bytes that come again only once", async () => {
    const { job, taskRange } = await broker().submitAll(1);
    await broker().claim(taskRange, 0, 0);
    await broker().write({ op: "output", chunks: [chunk(job, 0, 0, "head"), chunk(job, 0, 100, "tail")] });
    await broker().write({ op: "output", chunks: [chunk(job, 0, 100, "tail"), chunk(job, 0, 102, "il!")] });
    const { store } = broker();
    expect(read(await store.output(job.id, 0, ALL))).toEqual(["stdout@0:head", "stdout@100:tail!"]);
    expect(read(await store.output(job.id, 0, { from: 50, limit: 2 }))).toEqual(["stdout@100:ta"]);
    expect(await store.storedOutputBytes([{ job: job.id, index: 0, attempt: 1 }])).toEqual([105]);
  });

  it("keeps attempts apart and shows the latest with any", async () => {
    const { job, taskRange } = await broker().submitAll(1);
    const first = await broker().claim(taskRange, 0, 0);
    await broker().write({ op: "output", chunks: [chunk(job, 0, 0, "first")] });
    const back = waiting(first, { failures: 1 });
    const failed = result(0, { state: "failed", code: 1, outputBytes: 5 });
    await broker().replace(first, [back], { earlierAttempts: [failed] });
    const second = await broker().claim(back, 0, 0, undefined, 2);
    const { store } = broker();
    expect(read(await store.output(job.id, 0, ALL))).toEqual(["stdout@0:first"]);
    await broker().write({ op: "output", chunks: [chunk(job, 0, 0, "second", { attempt: 2 })] });
    expect(read(await store.output(job.id, 0, ALL))).toEqual(["stdout@0:second"]);
    // This worker was lost, so the attempt has no end of its own.
    const lost = waiting(second, { crashes: 1 });
    await broker().replace(second, [lost]);
    const third = await broker().claim(lost, 0, 0, undefined, 3);
    await broker().settle(third, [result(0, { attempt: 3 })]);
    expect(read(await store.output(job.id, 0, ALL))).toEqual(["stdout@0:second"]);
    expect(read(await store.output(job.id, 0, { ...ALL, attempt: 1 }))).toEqual(["stdout@0:first"]);
    expect(await store.output(job.id, 0, { ...ALL, attempt: 3 })).toEqual({ pieces: [] });
  });

  it("says where each running attempt's output ends", async () => {
    const { job, taskRange } = await broker().submitAll(3);
    await broker().claim(taskRange, 0, 2);
    await broker().write({ op: "output", chunks: [chunk(job, 0, 0, "abc"), chunk(job, 2, 0, "z")] });
    const tasks = [0, 1, 2].map((index) => ({ job: job.id, index, attempt: 1 }));
    expect(await broker().store.storedOutputBytes(tasks)).toEqual([3, 0, 1]);
    expect(await broker().store.storedOutputBytes([])).toEqual([]);
  });

  it("takes views of a larger buffer for what they show", async () => {
    const { job, taskRange } = await broker().submitAll(1);
    await broker().claim(taskRange, 0, 0);
    const frame = Buffer.from("....payload....");
    const bytes = frame.subarray(4, 11);
    const committed = broker().write({ op: "output", chunks: [chunk(job, 0, 0, "", { bytes })] });
    frame.fill(0);
    await committed;
    expect(read(await broker().store.output(job.id, 0, ALL))).toEqual(["stdout@0:payload"]);
  });

  it("keeps small output with its result, and shows it like any other", async () => {
    const { job, taskRange } = await broker().submitAll(2);
    const first = await broker().claim(taskRange, 0, 1);
    const output = [part("stdout", "one "), part("stderr", "two"), part("stderr", "!"), part("stdout", " three")];
    const { store } = broker();
    const back = waiting({ ...first, first: 0, last: 0 }, { failures: 1 });
    const stays = { ...first, id: newRangeId(), first: 1, last: 1 };
    const failed = result(0, { state: "failed", code: 1, outputBytes: 5, output: [part("stdout", "first")] });
    await broker().replace(first, [back, stays], { earlierAttempts: [failed] });
    expect(read(await store.output(job.id, 0, ALL))).toEqual(["stdout@0:first"]);
    const before = await store.bytesUsed();
    const second = await broker().claim(back, 0, 0, undefined, 2);
    await broker().settle(second, [result(0, { attempt: 2, outputBytes: 14, output })]);
    await broker().settle(stays, [result(1)]);
    expect(await store.bytesUsed()).toBeGreaterThanOrEqual(before);
    expect(read(await store.output(job.id, 0, ALL))).toEqual(["stdout@0:one ", "stderr@4:two!", "stdout@8: three"]);
    expect(read(await store.output(job.id, 0, { ...ALL, attempt: 1 }))).toEqual(["stdout@0:first"]);
    expect(read(await store.output(job.id, 0, { ...ALL, stream: "stderr" }))).toEqual(["stderr@4:two!"]);
    const page = await store.output(job.id, 0, { from: 2, limit: 4 });
    expect([read(page), page.next]).toEqual([["stdout@2:e ", "stderr@4:tw"], 6]);
    expect(await everything(store, job.id, 0, 3)).toBe("one two! three");
    expect(await store.output(job.id, 1, ALL)).toEqual({ pieces: [] });
    expect(await store.storedOutputBytes([{ job: job.id, index: 0, attempt: 2 }])).toEqual([0]);
    const { results } = await store.results(job.id, { from: 0, limit: 2, withOutput: true });
    expect(results.map(text)).toEqual([["one ", "two", "!", " three"], []]);
    expect((await store.results(job.id, { from: 0, limit: 1 })).results[0]).not.toHaveProperty("output");
  });

  it("keeps the value of a result and of an earlier attempt, apart from its output", async () => {
    const { job, taskRange } = await broker().submitAll(2);
    const out = await broker().claim(taskRange, 0, 1);
    const { store } = broker();
    const frame = Buffer.from('....{"out":1}....');
    const value = frame.subarray(4, 13);
    const back = waiting({ ...out, first: 1, last: 1 }, { failures: 1 });
    const writes: Write[] = [
      { op: "settle", job: job.id, rangeId: out.id, results: [result(0, { value })], empty: false },
      {
        ...{ op: "replace", job: job.id, rangeId: out.id, replacements: [back], cancelled: 0 },
        earlierAttempts: [result(1, { state: "failed", value })],
      },
    ];
    const committed = store.commit(writes, NOW);
    frame.fill(0);
    await committed;
    const again = await broker().claim(back, 1, 1, undefined, 2);
    await broker().settle(again, [result(1, { attempt: 2, value: Buffer.alloc(100_000, 7) })]);
    const listed = await store.results(job.id, { from: 0, limit: 2, maxValue: 4096 });
    expect(listed.results.map((one) => [one.valueBytes, one.value && Buffer.from(one.value).toString()])).toEqual([
      [9, '{"out":1}'],
      [100_000, undefined],
    ]);
    const [large] = (await store.results(job.id, { from: 1, limit: 1, maxValue: 100_000 })).results;
    expect(Buffer.from(large?.value ?? []).equals(Buffer.alloc(100_000, 7))).toBe(true);
    const [earlier] = await store.earlierAttempts(job.id, 1);
    expect(Buffer.from(earlier?.value ?? []).toString()).toBe('{"out":1}');
    expect((await store.results(job.id, { from: 0, limit: 1 })).results[0]).not.toHaveProperty("value");
    expect(await store.output(job.id, 0, ALL)).toEqual({ pieces: [] });
  });

  it("takes small output that is a view of a larger buffer for what it shows, of a last and of an earlier attempt", async () => {
    const { job, taskRange } = await broker().submitAll(2);
    const out = await broker().claim(taskRange, 0, 1);
    const frame = Buffer.from("....payload....");
    const output = [{ stream: "stdout" as const, bytes: frame.subarray(4, 11) }];
    const back = waiting({ ...out, first: 1, last: 1 }, { failures: 1 });
    const writes: Write[] = [
      { op: "settle", job: job.id, rangeId: out.id, results: [result(0, { outputBytes: 7, output })], empty: false },
      {
        ...{ op: "replace", job: job.id, rangeId: out.id, replacements: [back], cancelled: 0 },
        earlierAttempts: [result(1, { state: "failed", outputBytes: 7, output })],
      },
    ];
    const committed = broker().store.commit(writes, NOW);
    frame.fill(0);
    await committed;
    for (const index of [0, 1])
      expect(read(await broker().store.output(job.id, index, ALL))).toEqual(["stdout@0:payload"]);
  });
}

const part = (stream: "stdout" | "stderr", content: string): SmallOutput => ({ stream, bytes: Buffer.from(content) });

const text = ({ output = [] }: TaskResult): string[] => output.map(({ bytes }) => Buffer.from(bytes).toString());
