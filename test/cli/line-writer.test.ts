import { describe, expect, it } from "vitest";
import { LineWriter } from "../../src/cli/lib/task-output/output-writer.js";

function collecting() {
  const written: string[] = [];
  return { written, sink: { write: (bytes: Uint8Array) => written.push(Buffer.from(bytes).toString()) } };
}

describe("a line writer", () => {
  it("keeps lines whole, however they come", () => {
    const { written, sink } = collecting();
    const writer = new LineWriter(sink);
    for (const part of ["on", "e\ntw", "o", "\n", "three\nfour"]) writer.write(Buffer.from(part));
    expect(written).toEqual(["one\n", "two\n", "three\n"]);
    writer.end();
    expect(written.at(-1)).toBe("four\n");
  });

  it("puts its tag before every line, also before one that is in many parts", () => {
    const { written, sink } = collecting();
    const writer = new LineWriter(sink, "3.1\t");
    for (const part of ["a\nb\n", "half ", "and half\n", "rest"]) writer.write(Buffer.from(part));
    writer.end();
    expect(written.join("")).toBe("3.1\ta\n3.1\tb\n3.1\thalf and half\n3.1\trest\n");
  });

  it("does not wait for ever for the end of a line", () => {
    const { written, sink } = collecting();
    const writer = new LineWriter(sink);
    for (let i = 0; i < 10; i++) writer.write(Buffer.alloc(200_000, "x"));
    expect(written.join("").length).toBeGreaterThan(1_000_000);
  });
});
