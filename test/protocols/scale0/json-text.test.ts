import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { JsonText, memberText, stringifyObject } from "../../../src/protocols/scale0/commands.js";

describe("a member of a JSON object", () => {
  it("is found as it is written, wherever its name stands otherwise", () => {
    const json = String.raw`{"a":{"v":1},"b":["v",2],"v" : 1.50 ,"c":"v\":3","d":"\\"}`;
    expect(memberText(json, "v")).toEqual(new JsonText("1.50"));
    expect(memberText(json, "c")).toEqual(new JsonText(String.raw`"v\":3"`));
    expect(memberText(json, "d")).toEqual(new JsonText(String.raw`"\\"`));
    expect(memberText('{"v": {"v":1, "b":[]} ,"c":2}', "v")?.text).toBe('{"v":1, "b":[]}');
    expect(memberText('{"c":{},"v":["a",{"v":2}]}', "v")?.text).toBe('["a",{"v":2}]');
    expect(memberText('{"v":1,"v":2}', "v")?.text).toBe("2");
    expect(memberText("{}", "v")).toBeUndefined();
  });

  it("is written as it was found, among others", () => {
    expect(stringifyObject({ a: 1, v: new JsonText("1e3"), none: undefined, b: "x" })).toBe('{"a":1,"v":1e3,"b":"x"}');
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (object) => {
        const json = JSON.stringify(object);
        for (const [name, value] of Object.entries(JSON.parse(json) as object)) {
          expect(memberText(json, name)?.text).toBe(JSON.stringify(value));
        }
      }),
    );
  });
});
