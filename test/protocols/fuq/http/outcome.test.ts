import { describe, expect, it } from "vitest";
import { outcomeFromStatus, statusText } from "../../../../src/protocols/fuq/messages.js";

describe("the status of a task", () => {
  it.each([
    [{ code: 0 }, "done"],
    [{ code: 3 }, "error encountered: exit status 3"],
    [{ signal: "SIGKILL" }, "error encountered: signal: killed"],
    [{ signal: "SIGTERM" }, "error encountered: signal: terminated"],
    [{ signal: "SIGSEGV" }, "error encountered: signal: segmentation fault"],
    [{ error: "cannot start" }, "error encountered: cannot start"],
  ])("%j is written %s, and read again", (end, text) => {
    expect(statusText(end)).toBe(text);
    expect(outcomeFromStatus(text === "done", text)).toEqual(end);
  });

  it("is kept as the reason where it says neither code nor signal", () => {
    expect(outcomeFromStatus(false, "error encountered: signal: segmentation fault (core dumped)")).toEqual({
      signal: "SIGSEGV",
    });
    expect(outcomeFromStatus(false, "out of cheese")).toEqual({ error: "out of cheese" });
    expect(outcomeFromStatus(false, "error encountered: exit status 0")).toEqual({ error: "exit status 0" });
    expect(outcomeFromStatus(false, "error encountered: signal: unheard of")).toEqual({ error: "signal: unheard of" });
    expect(outcomeFromStatus(false, "")).toEqual({ error: "it failed, and its worker gave no reason" });
    expect(outcomeFromStatus(false, "x".repeat(5_000)).error).toHaveLength(1024);
    expect(outcomeFromStatus(true, "whatever")).toEqual({ code: 0 });
  });
});
