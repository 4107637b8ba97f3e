import { describe, expect, it } from "vitest";
import {
  ResStatusReader,
  readResHeader,
  resStatusOf,
  summaryOf,
  writeResHeader,
} from "../../../src/protocols/runexp/res-text.js";
import { recording } from "./recordings.js";

describe("the text of a result", () => {
  it("is byte for byte what the original runner wrote", () => {
    const original = recording("outcomes")
      .map(({ bytes }) => bytes.toString("latin1"))
      .find((text) => text.includes("Running exit3_done"));
    const header = writeResHeader({
      name: "exit3_done",
      host: "vm",
      command: "bash '/tmp/runexp/runexp_tGJDtzeidF.sh'",
      started: "Sun Nov 15 19:30:17 UTC 2026",
      ended: "Sun Nov 15 19:30:17 UTC 2026",
      waitStatus: 768,
      status: "success",
    });
    expect(`${header}RES:done\n`).toBe(original);
  });

  it("gives its header back, in every recording", () => {
    for (const name of ["names", "outcomes", "ban", "emptyjobs"]) {
      for (const { bytes } of recording(name)) {
        const text = bytes.toString("latin1");
        if (!text.startsWith("runexp summary")) continue;
        const header = readResHeader(text);
        expect(header, text).toBeDefined();
        expect(text.slice(0, header?.length)).toMatch(/Program output follows\n\n$/);
      }
    }
  });

  it("gives the header of a .m job back, which has an empty line behind its command", () => {
    const text =
      "runexp summary: success\n\nMon Nov 16 04:30:00 UTC 2026 -- [h] Running mat\n> bash /tmp/runexp/matlabproxy_DeSjJdC0G6.sh\n\n" +
      "Mon Nov 16 04:30:00 UTC 2026 -- Finished running\nProgram exited with status 0\nProgram output follows\n\n";
    expect(readResHeader(`${text}RES:done\n`)).toEqual({ length: text.length, waitStatus: 0 });
  });

  it("has no header where somebody else wrote it, or not all of it is there", () => {
    expect(readResHeader("hello\n")).toBeUndefined();
    expect(readResHeader("runexp summary: success\n\nSun")).toBeUndefined();
    expect(summaryOf("runexp summary: failure")).toBe("failure");
    expect(summaryOf("RES:done")).toBeUndefined();
  });
});

describe("the rule for a success", () => {
  it.each([
    ["RES:done\n", "success"],
    ["xxRES:whatever\n", "success"],
    ["RES: failed (x)\n", "failure"],
    ["RES:\t FAILED\n", "failure"],
    ["RES:failed\nRES:done\n", "success"],
    ["RES:done\nRES:failed\nlater\n", "failure"],
    ["no tag\n", "failure"],
    ["", "failure"],
    ["RES:done", "success"],
    ["RES:done\nthen much\nmore", "success"],
  ])("says of %j: %s", (output, status) => {
    expect(resStatusOf(Buffer.from(output))).toBe(status);
    const bytewise = new ResStatusReader();
    for (const byte of Buffer.from(output)) bytewise.push(Buffer.from([byte]));
    expect(bytewise.status).toBe(status);
  });

  it("finds the tag in a line that is too long to be kept", () => {
    const verdict = new ResStatusReader();
    verdict.push(Buffer.from("RES:done "));
    for (let i = 0; i < 40; i++) verdict.push(Buffer.alloc(10_000, "x"));
    expect(verdict.status).toBe("success");
    verdict.push(Buffer.from("RES:  failed"));
    expect(verdict.status).toBe("failure");
    verdict.push(Buffer.from("\nno tag\n"));
    expect(verdict.status).toBe("failure");
  });
});
