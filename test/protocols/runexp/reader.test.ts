import { describe, expect, it } from "vitest";
import {
  encode,
  MAX_MESSAGE,
  MessageReader,
  type MessageType,
  type RunexpMessage,
} from "../../../src/protocols/runexp/messages.js";

const WAIT: readonly MessageType[] = ["PETO", "REZULTO", "FINO ANKAU"];

function reader(...pieces: readonly string[]): MessageReader {
  const made = new MessageReader();
  for (const piece of pieces) made.push(Buffer.from(piece, "latin1"));
  return made;
}

const message = (taken: ReturnType<MessageReader["take"]>): RunexpMessage | string =>
  taken.kind === "message" ? taken.message : taken.kind;

describe("the reader of messages without marks", () => {
  it("takes a word as soon as it is whole, and leaves what is glued to it", () => {
    const both = reader("JESPETO");
    expect(message(both.take(["JES"]))).toEqual({ type: "JES" });
    expect(message(both.take(WAIT))).toEqual({ type: "PETO" });
    expect(both.length).toBe(0);
  });

  it("takes a message with a tail at once where it came in one piece", () => {
    expect(message(reader("REZULTO a success 3 success 235").take(WAIT))).toEqual({
      type: "REZULTO",
      name: "a success 3",
      status: "success",
      size: 235,
    });
    expect(message(reader("LABORO sub dir/my job .sh 32").take(["LABORO"]))).toEqual({
      type: "LABORO",
      name: "sub dir/my job",
      kind: ".sh",
      size: 32,
    });
  });

  it("waits for quiet where a message with a tail came in several pieces", () => {
    const split = reader("REZULTO a succ", "ess 2");
    expect(split.take(WAIT).kind).toBe("needs-quiet");
    split.push(Buffer.from("35"));
    expect(split.take(WAIT).kind).toBe("needs-quiet");
    split.quietElapsed();
    expect(message(split.take(WAIT))).toMatchObject({ size: 235 });
  });

  it("takes a glued message with a tail at once where that began in the latest piece", () => {
    const glued = reader("PRE", "TAREZULTO a success 5");
    expect(message(glued.take(["PRETA"]))).toEqual({ type: "PRETA" });
    expect(message(glued.take(WAIT))).toMatchObject({ type: "REZULTO", size: 5 });
    const earlier = reader("PRETAREZ", "ULTO a success 5");
    earlier.take(["PRETA"]);
    expect(earlier.take(WAIT).kind).toBe("needs-quiet");
  });

  it("waits as long as it takes for what has only begun", () => {
    const begun = reader("SALU");
    begun.quietElapsed();
    expect(begun.take(["SALUTON"]).kind).toBe("partial");
    begun.push(Buffer.from("TON; MI zz"));
    expect(begun.take(["SALUTON"]).kind).toBe("needs-quiet");
    begun.quietElapsed();
    expect(message(begun.take(["SALUTON"]))).toEqual({ type: "SALUTON", host: "zz" });
  });

  it.each([
    ["a word that is not expected", "PRETA", WAIT],
    ["a host with a blank", "SALUTON; MI a b", ["SALUTON"]],
    ["a hail with a newline", "SALUTON; MI a\r\n", ["SALUTON"]],
    ["another protocol", "GET / HTTP/1.1\r\n", ["SALUTON"]],
    ["a name with a newline", "REZULTO a\nb success 1", WAIT],
    ["a group with a blank", "ALIGI a b", ["ALIGI"]],
    ["a version that is no number", "VERSIO 1.x", ["VERSIO"]],
    ["a name without an end", `REZULTO ${"a".repeat(MAX_MESSAGE)}`, WAIT],
  ] as const)("refuses %s", (_what, text, expected) => {
    const taken = reader(text).take<MessageType>(expected);
    expect(taken.kind).toBe("wrong");
    if (taken.kind === "wrong") expect(taken.text.length).toBeLessThan(100);
  });

  it("cannot tell a piece that is whole by itself from one that is not, and takes it", () => {
    const undecidable = reader("LABORO a .sh 1");
    expect(message(undecidable.take(["LABORO"]))).toMatchObject({ size: 1 });
  });

  it("gives data by its count, and what follows it stays", () => {
    const data = reader("12345PETO");
    expect(data.takeData(5).toString()).toBe("12345");
    expect(message(data.take(WAIT))).toEqual({ type: "PETO" });
  });

  it("carries a name of any bytes there and back", () => {
    const name = Buffer.from([0x75, 0xc3, 0xa7, 0xff, 0x80]).toString("latin1");
    const sent = encode({ type: "REZULTO", name, status: "failure", size: 7 });
    const back = reader(sent.toString("latin1")).take(WAIT);
    expect(message(back)).toEqual({ type: "REZULTO", name, status: "failure", size: 7 });
  });
});
