import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { EscapeFilter } from "../../src/cli/lib/terminal/escape-filter.js";

const RESET = "\u001b[0m";
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
const HARMLESS = /^(?:[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]|\u001b\[[\d;:]*m)*$/;

function filtered(...chunks: readonly Uint8Array[]): string {
  const filter = new EscapeFilter();
  return chunks.map((chunk) => filter.filter(chunk)).join("") + filter.end();
}

const text = fc
  .oneof(
    fc.string({ unit: "grapheme", maxLength: 8 }),
    fc.constantFrom("\n", "\t", "\r", "[", "m", "31m", "\\", "ü", "日本"),
  )
  .filter((one) => HARMLESS.test(one));
const style = fc
  .array(fc.constantFrom("0", "1", "31", ";", ":", "38;5;9", "48:2::1:2:3"), { maxLength: 5 })
  .map((parts) => `\u001b[${parts.join("")}m`);
const introducer = (letter: string, one: string) => fc.constantFrom(`\u001b${letter}`, one);
const control = fc
  .tuple(
    introducer("[", "\u009b"),
    fc.string({ unit: fc.constantFrom(..."0123456789;:<=>? !$\"'"), maxLength: 100 }),
    fc.constantFrom(..."ABCDEFGHJKLMPSTXZ@`abcdefghilnpqrstuxyz{|}~m"),
  )
  .map((parts) => parts.join(""))
  .filter((sequence) => !(sequence.startsWith("\u001b[") && /^[\d;:]{0,64}m$/.test(sequence.slice(2))));
const string = fc
  .tuple(
    fc.oneof(
      introducer("]", "\u009d"),
      introducer("P", "\u0090"),
      introducer("X", "\u0098"),
      introducer("^", "\u009e"),
      introducer("_", "\u009f"),
    ),
    fc.constantFrom("0;title", "52;c;aGk=", "8;;http://x", "$q m", "[31m", "ü"),
    fc.constantFrom("\u0007", "\u001b\\", "\u009c", "\u0018"),
  )
  .map((parts) => parts.join(""));
const other = fc.constantFrom(
  "\u001bc",
  "\u001b7",
  "\u001b(0",
  "\u001b#8",
  "\u0007",
  "\b",
  "\u000e",
  "\u007f",
  "\u0084",
  "\0",
);
/** A sequence that no other one follows can be anything, whole or not. */
const anything = fc.array(
  fc.oneof(text, style, control, string, other, fc.constantFrom("\u001b", "\u001b[", "\u001b]", "\u001b[3", "\u009b")),
);

describe("the filter for terminals", () => {
  it("passes text and styles, and leaves out every other sequence, whole", () => {
    const piece = fc.oneof(
      text.map((one) => ({ given: one, shown: one })),
      style.map((one) => ({ given: one, shown: one })),
      fc
        .oneof(control, string, other)
        .map((given) => ({ given, shown: given.startsWith("\u009b") ? styleOf(given) : "" })),
    );
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const given = pieces.map((one) => one.given).join("");
        const shown = filtered(Buffer.from(given));
        expect([shown, shown.slice(0, -RESET.length)]).toContain(pieces.map((one) => one.shown).join(""));
      }),
    );
  });

  it("never writes another control character, whatever comes, and wherever the chunks end", () => {
    const bytes = fc.oneof(
      anything.map((parts) => Buffer.from(parts.join(""))),
      fc.uint8Array({ maxLength: 100 }).map((some) => Buffer.from(some)),
    );
    fc.assert(
      fc.property(bytes, fc.array(fc.nat(200)), (given, cuts) => {
        const at = [0, ...cuts.map((cut) => cut % (given.length + 1)).sort((a, b) => a - b), given.length];
        const chunks = at.slice(1).map((end, i) => given.subarray(at[i], end));
        const whole = filtered(given);
        expect(whole).toMatch(HARMLESS);
        expect(filtered(...chunks)).toBe(whole);
      }),
      { numRuns: 500 },
    );
  });

  it("shows the rest of a line after a string that never ends, and keeps no endless parameters", () => {
    expect(filtered(Buffer.from("a\u001b]0;title\nb\n"))).toBe("a\nb\n");
    expect(filtered(Buffer.from(`a\u001b[${"1;".repeat(100_000)}mb`))).toBe("ab");
  });

  it("ends the style of what was written, and no other", () => {
    expect(filtered(Buffer.from("\u001b[8mhidden"))).toBe(`\u001b[8mhidden${RESET}`);
    expect(filtered(Buffer.from("\u001b[31mred\u001b[m"))).toBe("\u001b[31mred\u001b[m");
    expect(filtered(Buffer.from("plain"))).toBe("plain");
  });
});

/** What is shown of a style in its 8-bit form. */
function styleOf(sequence: string): string {
  const rest = sequence.slice(1);
  return /^[\d;:]{0,64}m$/.test(rest) ? `\u001b[${rest}` : "";
}
