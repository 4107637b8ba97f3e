import fc from "fast-check";
import { expect, it } from "vitest";
import { describeEachShell, only, run, slotsForEachTest } from "./support.js";

const open = slotsForEachTest();
const withoutNul = fc.uint8Array({ maxLength: 40 }).map((bytes) => bytes.filter((byte) => byte !== 0));
const nasty = fc.constantFrom(
  "",
  "'",
  "''",
  "\\",
  "\\'",
  "\n",
  "$(id)",
  "`id`",
  "$x",
  '"',
  "-n",
  "--",
  "!",
  "*",
  "~",
  "#",
  " ",
  "\r\n",
  "é",
  "\u{1F600}",
);
const argument = fc.oneof(
  withoutNul,
  nasty,
  fc.string({ unit: "binary" }).map((text) => text.replaceAll("\0", "")),
);

describeEachShell((shell) => {
  it("passes any arguments and values to the command byte for byte", async () => {
    const slot = only(open(shell));
    await fc.assert(
      fc.asyncProperty(fc.array(argument, { maxLength: 8 }), argument, async (args, value) => {
        const { stdout, end } = await run(slot, {
          argv: ["sh", "-c", 'printf "%s\\0" "$V" "$@"', "sh", ...args],
          env: { V: value },
        });
        expect(end.code).toBe(0);
        const expected = Buffer.concat([value, ...args].flatMap((bytes) => [Buffer.from(bytes), Buffer.from([0])]));
        expect(stdout.equals(expected)).toBe(true);
      }),
      { numRuns: 150 },
    );
  });
});
