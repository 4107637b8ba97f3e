import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MAX_MESSAGE } from "../../../src/protocols/runexp/messages.js";
import { scaled } from "../../support/scale.js";
import { RECORDINGS, recording } from "./recordings.js";
import { client, feed, server, whole } from "./replay.js";

const RUNS = scaled(300);

/** Words of the protocol, whole and in parts, and other bytes. */
const words = fc.constantFrom(
  ..."SALUTON; MI a|KOMPRENAS|JES|PETO|PRETA|REZULTO x success 3|REZULTO ../x failure 0|FINO ANKAU|FINO|ATENDI|ELIRI".split(
    "|",
  ),
  ..."VERSIO 1.3|ALIGI g|LABORO x .sh 3|RICEVIS|REZULTO|SALUTON; MI |LABORO x .sh 99999999999999".split("|"),
  ..."REZULTO x success 03|REZULTO x success 3\nabc|LABORO x .sh 3\nabc|LABORO x .sh 3\n|abc".split("|"),
);
const piece = fc.oneof(
  words.map((text) => Buffer.from(text)),
  fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
  fc.tuple(words, fc.nat(20)).map(([text, at]) => Buffer.from(text.slice(0, at))),
);

describe("whatever is said", () => {
  it("a manager's side never throws, and says why it sends somebody away", () => {
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
        const { side, notes } = server("g", {
          jobRequested: () => {},
          resultAnnounced: () => side.accept(),
          outputEnded: () => side.recorded(),
        });
        for (const bytes of pieces) {
          feed(side, notes, bytes, whole);
          const { state } = side;
          if (state.name === "SendJob" && state.step === "choosing") side.sendJob("x", ".sh", Buffer.from("abc"));
        }
        const over = side.state.name === "closed";
        expect(over).toBe(notes.news.some((one) => one.startsWith("wrong: ") || one === "left"));
        if (over) return;
        // Sooner or later nonsense is enough.
        for (let i = 0; i < 12; i++) side.push(Buffer.alloc(1_024, "?"));
        for (let i = 0; i * 1_024 < MAX_MESSAGE * 2; i++) side.push(Buffer.alloc(1_024, "\n"));
        expect(side.state.name).toBe("closed");
      }),
      { numRuns: RUNS },
    );
  });

  it("a runner's side never throws", () => {
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
        const ports = { outputWanted: () => side.sendOutput(Buffer.from("abc"), true) };
        const { side, notes } = client("g", ports);
        side.sendHello("h");
        let asks = true;
        for (const bytes of pieces) {
          feed(side, notes, bytes, whole);
          if (side.state.name !== "WorkerLoop") continue;
          if (asks) side.requestJob();
          else side.deliver("x", "success", 3);
          asks = !asks;
        }
        expect(side.state.name === "closed").toBe(notes.news.some((one) => /^(wrong|refused): /.test(one)));
      }),
      { numRuns: RUNS },
    );
  });

  it("a conversation with one byte changed ends in order or with a reason", () => {
    const names = fc.constantFrom(...RECORDINGS);
    fc.assert(
      fc.property(names, fc.nat(), fc.nat(255), (name, where, byte) => {
        const sends = recording(name).filter(({ from }) => from === "runner");
        const total = sends.reduce((sum, { bytes }) => sum + bytes.length, 0);
        let at = where % total;
        const { side, notes } = server("__defaulte__", {
          jobRequested: () => side.sendJob("x", ".sh", Buffer.from("abc")),
          resultAnnounced: () => side.accept(),
          outputEnded: () => side.recorded(),
        });
        for (const { bytes } of sends) {
          const changed = Buffer.from(bytes);
          if (at >= 0 && at < changed.length) changed[at] = byte;
          at -= changed.length;
          feed(side, notes, changed, whole);
        }
        expect(notes.news.filter((one) => one.startsWith("wrong")).length).toBeLessThanOrEqual(1);
      }),
      { numRuns: RUNS },
    );
  });
});
