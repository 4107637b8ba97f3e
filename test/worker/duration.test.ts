import { InvalidArgumentError } from "commander";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { formatDuration, parseDuration, parseSize } from "../../src/cli/lib/option-parsers.js";

describe("a duration", () => {
  it.each([
    ["90s", 90_000],
    ["1", 1_000],
    ["0.5", 500],
    ["5m", 300_000],
    ["1h30m", 5_400_000],
    ["1h 30m", 5_400_000],
    ["1.5h", 5_400_000],
    ["250ms", 250],
    ["2d", 172_800_000],
    ["0s", 0],
    ["01:30:00", 5_400_000],
    ["1-02:03:04", 93_784_000],
    ["100:00:01", 360_001_000],
  ])("%s is %d ms", (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  it.each(["", "90 90", "1:30", "5 parsecs", "30m1h", "1m1m", "-5s", "01:60:00", "1h30", "s"])("is not %j", (text) => {
    expect(() => parseDuration(text)).toThrow(InvalidArgumentError);
  });

  it("is read back as it is written", () => {
    fc.assert(fc.property(fc.nat(), (ms) => parseDuration(formatDuration(ms)) === ms));
  });
});

describe("a size", () => {
  it.each([
    ["2G", 2 * 1024 ** 3],
    ["512M", 512 * 1024 ** 2],
    ["1.5 GiB", 1.5 * 1024 ** 3],
    ["64kb", 65_536],
    ["4096", 4096],
    ["1T", 1024 ** 4],
  ])("%s is %d bytes", (text, bytes) => {
    expect(parseSize(text)).toBe(bytes);
  });

  it.each(["", "G", "2X", "-1G", "1e3"])("is not %j", (text) => {
    expect(() => parseSize(text)).toThrow(InvalidArgumentError);
  });
});
