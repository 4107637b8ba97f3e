import { describe, expect, it } from "vitest";
import { checkListeners, parseListener } from "../../src/broker/listeners/listener.js";

describe("--protocol", () => {
  it("has its own ports on this machine unless told otherwise", () => {
    expect(parseListener("runexp")).toEqual([{ name: "runexp", host: "127.0.0.1", ports: [5433] }]);
    expect(parseListener("scale0")).toEqual([{ name: "scale0", host: "127.0.0.1", ports: [8080, 8081, 8082] }]);
    expect(parseListener("all").map(({ name }) => name)).toEqual(["fuq", "fuq1", "runexp", "round-robin", "scale0"]);
  });

  it.each([
    ["fuq=127.0.0.1:7000", "127.0.0.1", [7000]],
    ["fuq=7000", "127.0.0.1", [7000]],
    ["fuq=0", "127.0.0.1", [0]],
    ["fuq=10.0.0.1", "10.0.0.1", [5430]],
    ["fuq=head.cluster", "head.cluster", [5430]],
    ["fuq=node1:99", "node1", [99]],
    ["fuq=[::1]:99", "::1", [99]],
    ["fuq=[::1]", "::1", [5430]],
    ["scale0=127.0.0.1:1,2,3", "127.0.0.1", [1, 2, 3]],
    ["scale0=1,2,3", "127.0.0.1", [1, 2, 3]],
  ])("%s", (text, host, ports) => {
    expect(parseListener(text)).toEqual([{ name: text.split("=")[0], host, ports }]);
  });

  it.each([
    "",
    "none",
    "fuq=",
    "fuq=a:b",
    "fuq=1:2:3",
    "fuq=70000",
    "fuq=1,2",
    "scale0=1,2",
    "fuq=host:",
    "fuq=[::1",
    "all=1",
  ])("refuses %s", (text) => {
    expect(() => parseListener(text)).toThrow(expect.objectContaining({ code: "LABORO_BAD_INPUT" }));
  });

  it("says that all takes no address", () => {
    expect(() => parseListener("all=127.0.0.1:0")).toThrow(/^all takes no address: name each protocol/);
  });

  it("is not opened to other machines unless that is said, nor twice", () => {
    const wide = parseListener("fuq=0.0.0.0");
    expect(() => checkListeners(wide, false)).toThrow(/no authentication/);
    expect(() => checkListeners(wide, true)).not.toThrow();
    expect(() => checkListeners(parseListener("all"), false)).not.toThrow();
    expect(() => checkListeners([...parseListener("fuq"), ...parseListener("all")], false)).toThrow(/given twice/);
  });
});
