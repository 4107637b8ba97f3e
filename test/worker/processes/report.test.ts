import { describe, expect, it } from "vitest";
import { ReportReader, signalName, type TaskReport } from "../../../src/worker/processes/script.js";

const read = (text: string, piece = text.length): (TaskReport | undefined)[] => {
  const reader = new ReportReader("mark");
  const reports: (TaskReport | undefined)[] = [];
  for (let at = 0; at < text.length; at += piece) {
    const report = reader.push(Buffer.from(text.slice(at, at + piece)));
    if (report !== undefined) reports.push(report);
  }
  return reports;
};

describe("ReportReader", () => {
  it("reads reports in whatever pieces they come", () => {
    const text = "mark E0\nKilled\nmark E137\nmark X127\nmark E127\nmark D1\nmark E1\nmark E137\n";
    const expected = [
      { code: 0 },
      { signal: "SIGKILL" },
      { failed: "start", code: 127 },
      { failed: "directory", code: 1 },
      { code: 137 },
    ];
    for (const piece of [1, 2, 3, 7]) expect(read(text, piece)).toEqual(expected);
  });

  it("does not take the text of a command, quoted in a message, for a report", () => {
    expect(read("sh: line 3: 77 Killed ( trap 'echo mark X$?>r' EXIT; echo mark D1; true )\nmark E137\n")).toEqual([
      { signal: "SIGKILL" },
    ]);
  });

  it("keeps little of a long message", () => {
    const reader = new ReportReader("mark");
    for (let i = 0; i < 100; i += 1) expect(reader.push(Buffer.alloc(50_000, "x"))).toBeUndefined();
    expect(reader.push(Buffer.from("\nmark E139\n"))).toEqual({ signal: "SIGSEGV" });
  });

  it("names signals, by number where they have no name", () => {
    expect([signalName(9), signalName(15), signalName(40)]).toEqual(["SIGKILL", "SIGTERM", "SIG40"]);
  });
});
