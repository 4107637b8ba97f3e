import { describe, expect, it } from "vitest";
import { decoder } from "../../../src/protocols/runexp/decode.js";
import { recording } from "./recordings.js";

const summary = ({ name, fields, note }: { name: string; fields: Readonly<Record<string, unknown>>; note?: string }) =>
  [name, fields.name ?? fields.bytes ?? fields.host ?? fields.version ?? fields.group, note]
    .filter((one) => one !== undefined)
    .join(" ");

describe("decode runexp", () => {
  it("names every message of a recording, scripts and outputs counted", () => {
    const made = decoder();
    const found = recording("handshake").flatMap(({ from, bytes }) =>
      made.push(from === "runner" ? "r>m" : "m>r", [bytes]),
    );
    expect([...found, ...made.end()].map(summary)).toEqual([
      "SALUTON vm",
      "VERSIO 1.3",
      "KOMPRENAS",
      "ALIGI __defaulte__",
      "JES",
      "PETO",
      "LABORO ten",
      "PRETA",
      "(data) 10",
      "REZULTO ten",
      "PRETA",
      "(data) 224",
      "RICEVIS",
      "PETO",
      "FINO",
      "FINO ANKAU",
    ]);
  });

  it("reads both sides from one stream", () => {
    const made = decoder();
    const found = recording("names").flatMap(({ bytes }) => made.push("", [bytes]));
    expect(found.some(({ name }) => name === "?")).toBe(false);
    expect(found.filter(({ name }) => name === "(data)")).toHaveLength(
      2 * found.filter(({ name }) => name === "LABORO").length,
    );
  });

  it("says what is no message, and what is missing", () => {
    const made = decoder();
    expect(made.push("r>m", [Buffer.from("hello")]).map(summary)).toEqual(["? 5 no message of runexp 1.3"]);
    expect(made.push("m>r", [Buffer.from("LABORO a .sh 10")]).map(summary)).toEqual(["LABORO a"]);
    made.push("r>m", [Buffer.from("PRETA")]);
    expect(made.push("m>r", [Buffer.from("abc")])).toEqual([]);
    expect(made.push("r>m", [Buffer.from("REZ")])).toEqual([]);
    expect(made.end().map(summary).sort()).toEqual(["(data) 3 7 bytes of it are missing", "? 3 not a whole message"]);
  });
});
