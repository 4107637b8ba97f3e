import { describe, expect, it } from "vitest";
import { decoder } from "../../../src/protocols/scale0/frames.js";

const decode = (...frames: (string | Uint8Array)[]) =>
  decoder().push(
    "",
    frames.map((frame) => Buffer.from(frame)),
  );

describe("laboro decode scale0", () => {
  it("names a message, with and without what ZeroMQ puts in front", () => {
    const fields = { service: "x", message_id: 1, body: ["hello", "0xff00"] };
    const request = ["WORKREQUEST", '{"service":"x","message_id":1}', "hello", Buffer.from([255, 0])];
    expect(decode(...request)).toEqual([{ name: "WORKREQUEST", fields }]);
    expect(decode("", ...request)).toEqual([{ name: "WORKREQUEST", fields }]);
    expect(decode("c1", ...request)).toEqual([{ name: "WORKREQUEST", fields: { peer: "c1", ...fields } }]);
    expect(decode(Buffer.from([0, 1, 2, 3, 4]), "", ...request)).toEqual([
      { name: "WORKREQUEST", fields: { peer: "0x0001020304", ...fields } },
    ]);
    expect(decode("WORKREPLY", '{"work_request_indentifier":"a"}')).toEqual([
      { name: "WORKREPLY", fields: { work_request_indentifier: "a" } },
    ]);
  });

  it("names what the prototype says", () => {
    expect(decode("READY", "a,b")).toEqual([{ name: "READY", fields: { value: "a,b" } }]);
    expect(decode("PING", "1700000000000")).toEqual([{ name: "PING", fields: { value: "1700000000000" } }]);
    expect(decode("OK", "")).toEqual([{ name: "OK", fields: {} }]);
    expect(decode("w1", "OK")).toEqual([{ name: "OK", fields: { peer: "w1" } }]);
    expect(decode("w1", "HEARTBEAT", "5")).toEqual([{ name: "HEARTBEAT", fields: { peer: "w1", value: "5" } }]);
  });

  it("says what is wrong with what is none", () => {
    expect(decode("DANCE", "{}")).toEqual([{ name: "DANCE", fields: {}, note: "unknown command" }]);
    expect(decode("CONNECT", "{")).toEqual([{ name: "?", fields: {}, note: expect.stringContaining("JSON") }]);
    expect(decode("")).toEqual([{ name: "?", fields: {}, note: "no command" }]);
    expect(decode()).toEqual([{ name: "?", fields: {}, note: "no command" }]);
  });
});
