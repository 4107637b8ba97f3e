/** What a runner was told is kept, whatever becomes of the machine. */
import * as fs from "node:fs";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { bootId } from "../../src/base/files/lock.js";
import { encodeRecords, scanRecords } from "../../src/base/files/records.js";
import { ResFile, TempFilePool } from "../../src/protocols/runexp/experiments/result-file.js";
import { ResultLog, recoverResults } from "../../src/protocols/runexp/experiments/result-log.js";

let dir: string;
let outputs: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "laboro-results-"));
  outputs = join(dir, "outputs");
  mkdirSync(outputs);
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const res = (name: string): string => join(outputs, `${name}.res`);
const text = (name: string): string => readFileSync(res(name), "latin1");

/** As the log would be after the machine has been started again: every record is of another boot. */
function reboot(): void {
  const path = join(dir, "results.log");
  const payloads: Buffer[] = [];
  const fd = fs.openSync(path, "r");
  scanRecords(fd, {
    record: (_at, payload) => {
      const here = bootId() ?? "";
      payloads.push(Buffer.from(payload.toString("latin1").replace(here, "an earlier boot"), "latin1"));
      return true;
    },
  });
  fs.closeSync(fd);
  writeFileSync(path, encodeRecords(payloads));
}

describe("the log of results", () => {
  it("gives back what the machine had not written out when it stopped, and nothing else", async () => {
    const log = await ResultLog.open(dir, outputs);
    for (const name of ["kept", "cut", "gone", "sub/gone"]) await log.add(name, Buffer.from(`text of ${name}`));
    writeFileSync(res("kept"), "text of kept");
    writeFileSync(res("cut"), "text of cut");
    truncateSync(res("cut"), 3);
    expect(recoverResults(dir, outputs)).toBe(0);
    expect(existsSync(res("gone"))).toBe(false);
    reboot();
    expect(recoverResults(dir, outputs)).toBe(3);
    for (const name of ["kept", "cut", "gone", "sub/gone"]) expect(text(name)).toBe(`text of ${name}`);
    expect(recoverResults(dir, outputs)).toBe(0);
  });

  it("leaves a file removed that somebody has removed while the machine ran", async () => {
    const log = await ResultLog.open(dir, outputs);
    await log.add("a", Buffer.from("text"));
    expect(recoverResults(dir, outputs)).toBe(0);
    expect(existsSync(res("a"))).toBe(false);
  });

  it("begins anew when it is full, once all have files of their own, and then tells old from new", async () => {
    const log = await ResultLog.open(dir, outputs, 4_096);
    for (let i = 0; i < 40; i++) {
      await log.add("same", Buffer.from(`version ${i} ${"x".repeat(300)}`));
      writeFileSync(res("same"), `version ${i}`);
      log.published();
    }
    expect(fs.statSync(join(dir, "results.log")).size).toBeLessThan(8_192);
    reboot();
    expect(recoverResults(dir, outputs)).toBe(1);
    expect(text("same")).toMatch(/^version 39 x/);
  });

  it("goes on where a result could not get a file of its own", async () => {
    const log = await ResultLog.open(dir, outputs, 4_096);
    const file = new ResFile("a", { outputs, tempFiles: new TempFilePool(join(dir, "nowhere")), log });
    file.write(Buffer.from("text"));
    await expect(file.sync()).rejects.toThrow(/cannot write/);
    file.abandon();
    for (let i = 0; i < 40; i++) {
      await log.add(`b${i}`, Buffer.alloc(300));
      log.published();
    }
    await log.close();
  });

  it("takes many at once, and results of any bytes", async () => {
    const log = await ResultLog.open(dir, outputs);
    const bytes = Buffer.from(Array.from({ length: 1_000 }, (_, i) => i % 256));
    const names = Array.from({ length: 200 }, (_, i) => `\xff ${i}`);
    await Promise.all(names.map((name) => log.add(name, bytes)));
    reboot();
    expect(recoverResults(dir, outputs)).toBe(200);
    expect(readFileSync(Buffer.from(res("\xff 7"), "latin1")).equals(bytes)).toBe(true);
  });

  it("survives a damaged record, and loses that one alone", async () => {
    const log = await ResultLog.open(dir, outputs);
    for (const name of ["a", "b", "c"]) await log.add(name, Buffer.from(`text of ${name}`));
    reboot();
    const path = join(dir, "results.log");
    const content = readFileSync(path);
    const at = content.indexOf("text of b");
    content[at] = 0;
    writeFileSync(path, content);
    expect(recoverResults(dir, outputs)).toBe(2);
    expect([existsSync(res("a")), existsSync(res("b")), existsSync(res("c"))]).toEqual([true, false, true]);
  });

  it("is gone when it is closed, as all is in files then", async () => {
    const log = await ResultLog.open(dir, outputs);
    await log.add("a", Buffer.from("text"));
    log.published();
    await log.close();
    expect(existsSync(join(dir, "results.log"))).toBe(false);
    expect(recoverResults(dir, outputs)).toBe(0);
  });
});
