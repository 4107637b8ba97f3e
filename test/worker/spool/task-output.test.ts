import * as fs from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { OutputStream } from "../../../src/model/outcome.js";
import { spooledOutputs } from "../../../src/worker/spool/block.js";
import { OutputBuffer, type UnsentOutput } from "../../../src/worker/spool/output-buffer.js";
import { fill, NO_MOUNT, scratch, smallDisk } from "../../files/scratch.js";
import { cpuMs } from "../../support/cpu.js";

/** Everything that can be sent now. */
function drain(output: OutputBuffer, maxBytes?: number): UnsentOutput[] {
  const chunks: UnsentOutput[] = [];
  for (let chunk = output.next(maxBytes); chunk !== undefined; chunk = output.next(maxBytes)) chunks.push(chunk);
  return chunks;
}

const text = (chunks: readonly UnsentOutput[]): string =>
  Buffer.concat(chunks.map(({ bytes }) => bytes)).toString("latin1");
const runs = (chunks: readonly UnsentOutput[]): [OutputStream, string][] =>
  chunks.map(({ stream, bytes }) => [stream, Buffer.from(bytes).toString()]);

/** Settings small enough that a few bytes spill and reach the cap. */
const small = (directory: string) => ({ path: join(directory, "7-0-1"), cap: 100, memory: 40 });

describe("TaskOutput", () => {
  it("gives out what was written, streams in order of arrival, neighbours of one stream merged", () => {
    const output = new OutputBuffer({ path: join(scratch(), "o") });
    for (const [stream, bytes] of [
      ["stdout", "a"],
      ["stdout", "b"],
      ["stderr", "c"],
      ["stdout", "d"],
    ] as const) {
      output.write(stream, Buffer.from(bytes));
    }
    expect(runs(drain(output))).toEqual([
      ["stdout", "ab"],
      ["stderr", "c"],
      ["stdout", "d"],
    ]);
    expect(output.next()).toBeUndefined();
    output.write("stdout", Buffer.from("e"));
    expect(output.next()).toEqual({ stream: "stdout", offset: 4, bytes: Buffer.from("e") });
    expect(output.sentAll).toBe(false);
    expect(output.end()).toBe(5);
    expect([output.sentAll, output.delivered]).toEqual([true, false]);
    output.markStored(5);
    expect(output.delivered).toBe(true);
  });

  it("gives chunks of 32 KiB at most", () => {
    const output = new OutputBuffer({ path: join(scratch(), "o") });
    output.write("stdout", Buffer.alloc(100_000, "x"));
    const chunks = drain(output, 1 << 20);
    expect(Math.max(...chunks.map(({ bytes }) => bytes.length))).toBe(32 * 1024);
    expect(text(chunks)).toBe("x".repeat(100_000));
  });

  it("makes no file while the link keeps up, and reuses its space when it does not", () => {
    const settings = { path: join(scratch(), "o"), cap: 1 << 30, memory: 4096 };
    const output = new OutputBuffer(settings);
    for (let round = 0; round < 50; round++) {
      output.write("stdout", Buffer.alloc(1000, round));
      for (const { offset, bytes } of drain(output)) output.markStored(offset + bytes.length);
    }
    expect(fs.existsSync(settings.path)).toBe(false);
    for (let round = 0; round < 50; round++) {
      output.write("stdout", Buffer.alloc(10_000, round));
      for (const { offset, bytes } of drain(output)) output.markStored(offset + bytes.length);
    }
    expect(fs.statSync(settings.path).size).toBeLessThan(15 * 20_000);
    output.discard();
    expect(fs.existsSync(settings.path)).toBe(false);
  });

  it("keeps head and tail past the cap and sends the tail only after the end", () => {
    const output = new OutputBuffer(small(scratch()));
    const written = Array.from({ length: 50 }, (_, line) => `line ${String(line).padStart(3)}\n`).join("");
    output.write("stdout", Buffer.from(written));
    expect(text(drain(output))).toBe(written.slice(0, 50));
    expect(output.end()).toBe(450);
    const tail = drain(output);
    expect(tail[0]?.offset).toBe(400);
    expect(text(tail)).toBe(written.slice(400));
    expect([output.sentAll, output.lost]).toEqual([true, 0]);
  });

  it("leaves nothing out up to the cap", () => {
    const output = new OutputBuffer(small(scratch()));
    output.write("stdout", Buffer.from("x".repeat(100)));
    output.end();
    expect(text(drain(output))).toHaveLength(100);
  });

  it("starts again at the broker's offset after a reconnect", () => {
    const output = new OutputBuffer(small(scratch()));
    output.write("stdout", Buffer.from("0123456789"));
    output.write("stderr", Buffer.from("abcdef"));
    drain(output);
    output.rewind(4);
    expect(runs(drain(output, 3))).toEqual([
      ["stdout", "456"],
      ["stdout", "789"],
      ["stderr", "abc"],
      ["stderr", "def"],
    ]);
    output.rewind(12);
    expect(text(drain(output))).toBe("cdef");
    output.rewind(0);
    expect(output.next()?.offset).toBe(10);
  });

  it("outlives its process by persist and load, and leaves no file once discarded", async () => {
    const directory = scratch();
    const output = new OutputBuffer(small(directory));
    const written = Array.from({ length: 40 }, (_, line) => `${line},`).join("");
    output.write("stdout", Buffer.from(written.slice(0, 45)));
    output.write("stderr", Buffer.from(written.slice(45)));
    output.markStored(7);
    output.end();
    await output.persist();
    fs.writeFileSync(join(directory, "orphan"), "of a task that never ended");
    expect(spooledOutputs(directory)).toEqual(["7-0-1"]);
    expect(fs.readdirSync(directory).sort()).toEqual(["7-0-1", "7-0-1.index"]);

    const loaded = OutputBuffer.load({ path: join(directory, "7-0-1") });
    expect(loaded?.length).toBe(written.length);
    loaded?.rewind(7);
    const chunks = loaded === undefined ? [] : drain(loaded);
    expect(text(chunks)).toBe(written.slice(7, 50) + written.slice(-50));
    expect(chunks.filter(({ stream }) => stream === "stdout").at(-1)?.offset).toBeLessThan(45);
    loaded?.discard();
    expect(fs.readdirSync(directory)).toEqual([]);
    expect(OutputBuffer.load({ path: join(directory, "7-0-1") })).toBeUndefined();
  });

  it("leaves no file when it is discarded while it is persisted", async () => {
    const directory = scratch();
    const output = new OutputBuffer(small(directory));
    output.write("stdout", Buffer.from("some text"));
    output.end();
    const persisted = output.persist();
    output.discard();
    await persisted;
    expect(fs.readdirSync(directory)).toEqual([]);
  });

  it("travels inside a result when it is small", () => {
    const directory = scratch();
    const output = new OutputBuffer({ path: join(directory, "o") });
    output.write("stdout", Buffer.from("done\n"));
    output.write("stderr", Buffer.from("warning\n"));
    output.end();
    const packed = output.pack();
    expect(packed?.length).toBeLessThan(60);
    const again = OutputBuffer.unpack(packed ?? new Uint8Array(), { path: join(directory, "o") });
    expect(runs(drain(again))).toEqual([
      ["stdout", "done\n"],
      ["stderr", "warning\n"],
    ]);
    expect([again.length, again.sentAll]).toEqual([13, true]);
    expect(output.pack(10)).toBeUndefined();
    expect(fs.readdirSync(directory)).toEqual([]);
  });

  it("reports persisted output that is damaged, and gives the rest", async () => {
    const settings = small(scratch());
    const output = new OutputBuffer(settings);
    output.write("stdout", Buffer.from("0123456789abcdefghij"));
    output.end();
    await output.persist();
    const file = fs.readFileSync(settings.path);
    file[file.indexOf("0123")] = 0;
    fs.writeFileSync(settings.path, file);
    const lost: unknown[] = [];
    const loaded = OutputBuffer.load({
      ...settings,
      onLost: ({ from, to, error }) => lost.push([from, to, error.code]),
    });
    expect(loaded && text(drain(loaded))).toBe("abcdefghij");
    expect(lost).toEqual([[0, 10, "LABORO_DATA_CORRUPT"]]);
    expect(loaded?.lost).toBe(10);
  });

  it("drops to a gap when the disk is full, says so, and never stops the task", async (context) => {
    const disk = smallDisk(256 * 1024);
    if (disk === undefined) return context.skip(NO_MOUNT);
    const codes = new Set<string>();
    const output = new OutputBuffer({ path: join(disk, "o"), onLost: ({ error }) => codes.add(error.code) });
    for (let round = 0; round < 100; round++) output.write("stdout", Buffer.alloc(10_000, "x"));
    expect(output.end()).toBe(1_000_000);
    expect([...codes]).toEqual(["LABORO_DISK_FULL"]);
    const sent = text(drain(output)).length;
    expect(sent).toBe(1_000_000 - output.lost);
    expect(sent).toBeGreaterThan(256 * 1024);
    const filler = fill(disk);
    output.rewind(0);
    await expect(output.persist()).rejects.toMatchObject({ code: "LABORO_DISK_FULL" });
    expect(text(drain(output))).toHaveLength(sent);
    fs.rmSync(filler);
    output.discard();
  });

  it("takes 100 MB without growing memory, in under two seconds", () => {
    const output = new OutputBuffer({ path: join(scratch(), "o") });
    const bytes = Buffer.alloc(64 * 1024, "x");
    const before = process.memoryUsage.rss();
    const start = cpuMs();
    let most = 0;
    for (let sum = 0; sum < 100e6; sum += bytes.length) {
      output.write(sum % 3 === 0 ? "stdout" : "stderr", bytes);
      if (sum % (64 * 65536) === 0) most = Math.max(most, process.memoryUsage.rss());
    }
    const took = cpuMs() - start;
    console.log(`100 MB: ${took.toFixed(0)} ms, RSS grew by ${((most - before) / 1e6).toFixed(1)} MB`);
    expect(most - before).toBeLessThan(16e6);
    expect(took).toBeLessThan(2000);
    output.end();
    expect(text(drain(output))).toHaveLength(16 * 1024 * 1024);
    output.discard();
  });

  it("takes a million small lines quickly, also when the streams alternate", () => {
    const output = new OutputBuffer({ path: join(scratch(), "o") });
    const line = Buffer.from("ten bytes\n");
    const start = cpuMs();
    for (let number = 0; number < 1_000_000; number++) output.write(number % 2 === 0 ? "stdout" : "stderr", line);
    const took = cpuMs() - start;
    console.log(`1,000,000 alternating lines: ${took.toFixed(0)} ms`);
    expect(took).toBeLessThan(3000);
    output.end();
    const chunks = drain(output);
    // The line at the end of the head is in two blocks.
    expect(chunks).toHaveLength(1_000_001);
    expect(text(chunks)).toBe("ten bytes\n".repeat(1_000_000));
    output.discard();
  });

  it("agrees with a simple model, whatever is written, sent, stored, rewound and loaded", async () => {
    const root = scratch();
    const step = fc.oneof(
      fc.record({ kind: fc.constant("write" as const), err: fc.boolean(), length: fc.integer({ min: 1, max: 60 }) }),
      fc.record({ kind: fc.constant("send" as const), count: fc.nat(5), max: fc.integer({ min: 1, max: 40 }) }),
      fc.record({ kind: fc.constant("store" as const), behind: fc.nat(30) }),
      fc.record({ kind: fc.constant("rewind" as const) }),
    );
    const settings = fc.record({ cap: fc.nat(300), memory: fc.integer({ min: 4, max: 120 }) });
    const how = fc.constantFrom("same process" as const, "persist" as const, "pack" as const);
    let number = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), settings, how, async (steps, limits, way) => {
        const path = join(root, String(number++));
        let output = new OutputBuffer({ path, ...limits });
        const all: [OutputStream, number][] = [];
        const broker = new Map<number, [OutputStream, number]>();
        let stored = 0;
        let sent = 0;
        const receive = (chunk: UnsentOutput): void => {
          expect(chunk.offset).toBeGreaterThanOrEqual(sent);
          for (const [at, byte] of chunk.bytes.entries()) broker.set(chunk.offset + at, [chunk.stream, byte]);
          sent = chunk.offset + chunk.bytes.length;
        };
        for (const one of steps) {
          if (one.kind === "write") {
            const bytes = Buffer.from(Array.from({ length: one.length }, (_, at) => (all.length + at) % 251));
            for (const byte of bytes) all.push([one.err ? "stderr" : "stdout", byte]);
            output.write(one.err ? "stderr" : "stdout", bytes);
          } else if (one.kind === "send") {
            for (let left = one.count; left > 0; left--) {
              const chunk = output.next(one.max);
              if (chunk !== undefined) receive(chunk);
            }
          } else if (one.kind === "store") {
            stored = Math.max(stored, sent - one.behind);
            output.markStored(stored);
          } else {
            sent = stored;
            output.rewind(stored);
          }
        }
        expect(output.end()).toBe(all.length);
        if (way === "persist") {
          await output.persist();
          output = OutputBuffer.load({ path }) ?? output;
          output.rewind(stored);
          sent = stored;
        } else if (way === "pack") {
          const packed = output.pack();
          if (packed !== undefined) {
            output = OutputBuffer.unpack(packed, { path: `${path}-packed` });
            output.rewind(stored);
            sent = stored;
          }
        }
        for (const chunk of drain(output, 50)) receive(chunk);
        expect(output.sentAll).toBe(true);
        const head = Math.floor(limits.cap / 2);
        const tail = all.length > limits.cap ? all.length - (limits.cap - head) : head;
        const expected = all.flatMap((byte, offset) => (offset < head || offset >= tail ? [[offset, byte]] : []));
        expect([...broker].sort(([a], [b]) => a - b)).toEqual(expected);
        output.markStored(sent);
        expect(output.delivered).toBe(true);
        output.discard();
      }),
      { numRuns: 300 },
    );
  });
});
