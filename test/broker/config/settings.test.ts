import { describe, expect, it } from "vitest";
import { readSettings } from "../../../src/model/worker-settings.js";

describe("the settings in a config", () => {
  it("take one value for a list of one, as a format without lists has it", () => {
    expect(readSettings({ services: "resize", tags: "gpu", brokers: { identity: "b" } })).toEqual({
      services: ["resize"],
      tags: ["gpu"],
      brokers: [{ identity: "b" }],
    });
    expect(readSettings({ services: ["a", "b"] })).toEqual({ services: ["a", "b"] });
  });

  it("are refused where they are not what they must be, with what was expected", () => {
    expect(() => readSettings({ services: 5 })).toThrow(/services/);
    expect(() => readSettings({ slots: "many" })).toThrow(/slots/);
  });
});
