import * as fs from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { ResultSpool } from "../../../src/worker/spool/result-spool.js";
import { fill, NO_MOUNT, scratch, smallDisk } from "../../files/scratch.js";
import { cpuMs } from "../../support/cpu.js";

const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));
const keys = (path: string): string[] => ResultSpool.load(path).results.map(({ key }) => key);

/** What a process that dies at this moment leaves on disk. */
function copyOf(path: string): string {
  const copy = `${path}-copy`;
  fs.copyFileSync(path, copy);
  return copy;
}

describe("ResultSpool", () => {
  it("gives back after a restart what was not acknowledged, oldest first", async () => {
    const path = join(scratch(), "results");
    const { spool, results, damage } = ResultSpool.load(path);
    expect([results, damage]).toEqual([[], []]);
    for (const key of ["7.0.1", "7.1.1", "ü.2.1"]) spool.append(key, bytes(`result of ${key}`));
    await spool.flush();
    spool.acknowledge("7.1.1");
    spool.append("7.3.1", bytes(""));
    await spool.close();
    const again = ResultSpool.load(path);
    expect(again.results.map(({ key, payload }) => [key, Buffer.from(payload).toString()])).toEqual([
      ["7.0.1", "result of 7.0.1"],
      ["ü.2.1", "result of ü.2.1"],
      ["7.3.1", ""],
    ]);
    expect(again.spool.size).toBe(3);
    await again.spool.close();
  });

  it("has everything on disk when flush resolves", async () => {
    const path = join(scratch(), "results");
    const { spool } = ResultSpool.load(path);
    for (let round = 0; round < 20; round++) {
      for (let number = 0; number <= round; number++) spool.append(`${round}.${number}`, bytes("payload"));
      await spool.flush();
      expect(keys(copyOf(path))).toHaveLength(spool.size);
    }
    await spool.close();
  });

  it("never writes what is acknowledged before its write begins", async () => {
    const path = join(scratch(), "results");
    const { spool } = ResultSpool.load(path);
    spool.append("a", bytes("never needed"));
    spool.acknowledge("a");
    await spool.flush();
    expect(fs.statSync(path).size).toBe(0);
    spool.append("b", bytes("kept"));
    spool.append("a", bytes("never needed"));
    spool.acknowledge("a");
    await spool.flush();
    expect(fs.readFileSync(path, "latin1")).not.toContain("never needed");
    await spool.close();
  });

  it("replaces a result by a later one with the same key", async () => {
    const path = join(scratch(), "results");
    const { spool } = ResultSpool.load(path);
    spool.append("a", bytes("old"));
    await spool.flush();
    spool.append("a", bytes("new"));
    await spool.close();
    const { results } = ResultSpool.load(path);
    expect(results.map(({ payload }) => Buffer.from(payload).toString())).toEqual(["new"]);
  });

  it("shrinks to nothing once everything is acknowledged", async () => {
    const path = join(scratch(), "results");
    const { spool } = ResultSpool.load(path);
    for (let number = 0; number < 1000; number++) spool.append(String(number), bytes("x".repeat(100)));
    await spool.flush();
    expect(fs.statSync(path).size).toBeGreaterThan(100_000);
    for (let number = 0; number < 1000; number++) spool.acknowledge(String(number));
    await vi.waitFor(() => expect(fs.statSync(path).size).toBe(0));
    await spool.close();
  });

  it("is rewritten when most of it is not wanted, so that one result that stays does not let it grow", async () => {
    const path = join(scratch(), "results");
    const { spool } = ResultSpool.load(path, { rewriteFrom: 10_000 });
    spool.append("stays", bytes("the one that stays"));
    let most = 0;
    for (let round = 0; round < 100; round++) {
      for (let number = 0; number < 20; number++) spool.append(`${round}.${number}`, bytes("x".repeat(100)));
      await spool.flush();
      for (let number = 0; number < 20; number++) spool.acknowledge(`${round}.${number}`);
      most = Math.max(most, fs.statSync(path).size);
    }
    expect(most).toBeLessThan(20_000);
    expect(keys(copyOf(path))).toContain("stays");
    await spool.close();
    expect(fs.readdirSync(join(path, "..")).sort()).toEqual(["results", "results-copy"]);
  });

  it("loses only the record hit by a flip or a cut at any byte, says so, and mends the file", async () => {
    const path = join(scratch(), "results");
    const { spool } = ResultSpool.load(path);
    for (const key of ["a", "b", "c"]) spool.append(key, bytes("payload"));
    await spool.close();
    const whole = fs.readFileSync(path);
    const size = whole.length / 3;
    for (let at = 0; at < whole.length; at++) {
      const flipped = Buffer.from(whole);
      flipped[at] = (flipped[at] ?? 0) ^ 0x10;
      fs.writeFileSync(path, flipped);
      const hit = ResultSpool.load(path);
      expect(hit.results.map(({ key }) => key)).toEqual(
        ["a", "b", "c"].filter((_, number) => number !== Math.floor(at / size)),
      );
      expect(hit.damage).toHaveLength(1);
      await hit.spool.close();
      expect(ResultSpool.load(path).damage).toEqual([]);

      fs.writeFileSync(path, whole.subarray(0, at));
      const cut = ResultSpool.load(path);
      expect(cut.results).toHaveLength(Math.floor(at / size));
      expect(cut.damage).toHaveLength(at % size === 0 ? 0 : 1);
      cut.spool.append("d", bytes("more"));
      await cut.spool.close();
      const mended = ResultSpool.load(path);
      expect([mended.results.at(-1)?.key, mended.damage]).toEqual(["d", []]);
      await mended.spool.close();
    }
  });

  it("keeps everything while the disk is full, says so, and writes it when there is room", async (context) => {
    const disk = smallDisk(256 * 1024);
    if (disk === undefined) return context.skip(NO_MOUNT);
    const states: (string | undefined)[] = [];
    const path = join(disk, "results");
    // Between two tries: an entry that is being written when it is acknowledged stays in the file.
    let failed = (): void => {};
    const failure = new Promise<void>((resolve) => {
      failed = resolve;
    });
    const onFailing = (error: { readonly code: string } | undefined): void => {
      states.push(error?.code);
      failed();
    };
    const { spool } = ResultSpool.load(path, { retryMs: 20, onFailing });
    spool.append("before", bytes("x"));
    await spool.flush();
    const filler = fill(disk);
    for (let number = 0; number < 100; number++) spool.append(String(number), bytes("x".repeat(200)));
    const flushed = spool.flush();
    await failure;
    expect(spool.failing?.code).toBe("LABORO_DISK_FULL");
    expect(spool.size).toBe(101);
    spool.acknowledge("0");
    fs.rmSync(filler);
    await flushed;
    expect(spool.failing).toBeUndefined();
    expect(states).toEqual(["LABORO_DISK_FULL", undefined]);
    expect(keys(copyOf(path))).toEqual(["before", ...Array.from({ length: 99 }, (_, number) => String(number + 1))]);
    await spool.close();
  });

  it("tells those who wait for a flush when it is closed without having succeeded", async (context) => {
    const disk = smallDisk(64 * 1024);
    if (disk === undefined) return context.skip(NO_MOUNT);
    const { spool } = ResultSpool.load(join(disk, "results"));
    fill(disk);
    spool.append("a", bytes("x".repeat(20_000)));
    const flushed = expect(spool.flush()).rejects.toMatchObject({ code: "LABORO_DISK_FULL" });
    await spool.close();
    await flushed;
  });

  it("takes 40,000 results a second", async () => {
    const { spool } = ResultSpool.load(join(scratch(), "results"));
    const payload = bytes("x".repeat(100));
    const start = cpuMs();
    for (let number = 0; number < 40_000; number += 100) {
      for (let one = number; one < number + 100; one++) spool.append(`1234.${one}.1`, payload);
      await new Promise(setImmediate);
      for (let one = number - 1000; one >= 0 && one < number - 900; one++) spool.acknowledge(`1234.${one}.1`);
    }
    await spool.flush();
    const took = cpuMs() - start;
    console.log(`40,000 results: ${took.toFixed(0)} ms`);
    expect(took).toBeLessThan(1000);
    await spool.close();
  });

  it("agrees with a simple model, whatever is appended, acknowledged and cut off by a crash", async () => {
    const root = scratch();
    const step = fc.oneof(
      { weight: 4, arbitrary: fc.record({ kind: fc.constant("append" as const), key: fc.nat(20), size: fc.nat(50) }) },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant("acknowledge" as const), key: fc.nat(20) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("flush" as const) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("turn" as const) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("crash" as const) }) },
    );
    let number = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        let path = join(root, String(number++));
        let { spool } = ResultSpool.load(path, { rewriteFrom: 200 });
        const wanted = new Map<string, number>();
        const durable = new Map<string, number>();
        for (const one of steps) {
          if (one.kind === "append") {
            spool.append(String(one.key), new Uint8Array(one.size));
            wanted.set(String(one.key), one.size);
            durable.delete(String(one.key));
          } else if (one.kind === "acknowledge") {
            spool.acknowledge(String(one.key));
            wanted.delete(String(one.key));
            durable.delete(String(one.key));
          } else if (one.kind === "flush") {
            await spool.flush();
            for (const [key, size] of wanted) durable.set(key, size);
          } else if (one.kind === "turn") {
            await new Promise(setImmediate);
          } else {
            // The old process may still be writing: it goes on in its own file, as a dead one would not.
            const copy = join(root, String(number++));
            fs.copyFileSync(path, copy);
            await spool.close();
            path = copy;
            const loaded = ResultSpool.load(path, { rewriteFrom: 200 });
            spool = loaded.spool;
            const found = new Map(loaded.results.map(({ key, payload }) => [key, payload.length]));
            for (const [key, size] of durable) expect(found.get(key)).toBe(size);
            wanted.clear();
            for (const [key, size] of found) wanted.set(key, size);
          }
        }
        await spool.close();
        const last = ResultSpool.load(path);
        const found = new Map(last.results.map(({ key, payload }) => [key, payload.length]));
        for (const [key, size] of wanted) expect(found.get(key)).toBe(size);
        await last.spool.close();
      }),
      { numRuns: 150 },
    );
  });
});
