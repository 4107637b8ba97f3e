import { execFileSync, spawn } from "node:child_process";
import { expect, it } from "vitest";
import { BufferedStdout } from "../../src/cli/lib/buffered-stdout.js";
import { until } from "../support/wait.js";

const MODULE = new URL("../../dist/cli/lib/buffered-stdout.js", import.meta.url).href;

const inProcess = (code: string): readonly string[] => [
  "--input-type=module",
  "-e",
  `import { BufferedStdout } from ${JSON.stringify(MODULE)}; const out = new BufferedStdout(); ${code}`,
];

it("writes the first text at once, and together what follows within a moment", async () => {
  const writes: string[] = [];
  const out = new BufferedStdout((text) => void writes.push(text));
  out.writeLine("a");
  expect(writes).toEqual(["a\n"]);
  for (const text of ["b", "c", "d"]) out.writeLine(text);
  expect(writes).toEqual(["a\n"]);
  await until("the rest is written", () => writes.length === 2);
  expect(writes).toEqual(["a\n", "b\nc\nd\n"]);
});

it("loses nothing at the end of the process, however that comes", () => {
  for (const end of [
    "",
    "process.exit(0);",
    "process.on('SIGTERM', () => process.exit(0)); process.kill(process.pid);",
  ]) {
    const said = execFileSync(
      process.execPath,
      inProcess(`for (let i = 0; i < 5_000; i++) out.writeLine(String(i)); ${end}`),
      {
        encoding: "utf8",
      },
    );
    expect(said.split("\n").slice(0, -1)).toEqual(Array.from({ length: 5_000 }, (_, i) => String(i)));
  }
});

it("does not keep a process from its end, and waits for a reader that is slow", async () => {
  const child = spawn(process.execPath, inProcess("for (let i = 0; i < 40_000; i++) out.writeLine('x'.repeat(20));"), {
    stdio: ["ignore", "pipe", "inherit"],
  });
  // The process is at its end, and cannot write all of it before somebody reads.
  child.stdout.read(0);
  await until("much has come", () => child.stdout.readableLength >= child.stdout.readableHighWaterMark);
  let bytes = 0;
  for await (const piece of child.stdout) bytes += piece.length;
  expect(bytes).toBe(40_000 * 21);
});
