import { describe, expect, it } from "vitest";
import type { ServerStateMachine } from "../../../src/protocols/runexp/broker/server-state-machine.js";
import { RECORDINGS, recording, type Send } from "./recordings.js";
import { bytewise, type Cut, cutAt, feed, server, whole } from "./replay.js";

const CUTS: readonly (readonly [string, Cut])[] = [
  ["whole", whole],
  ["byte by byte", bytewise],
  ["cut after the first byte", cutAt(() => 1)],
  ["cut before the last byte", cutAt((length) => length - 1)],
  ["cut in the middle", cutAt((length) => length >> 1)],
  ["cut after ten bytes", cutAt(() => 10)],
];

/** Decides as the recorded manager did: each of its sends answers what has just come. */
function replayed(sends: readonly Send[], cut: Cut): { said: Buffer[]; news: string[]; side: ServerStateMachine } {
  const answers = sends.filter(({ from }) => from === "manager").map(({ bytes }) => bytes);
  const group = answers.map(String).find((text) => text.startsWith("ALIGI "));
  const next = (): string => answers[written()]?.toString("latin1") ?? "";
  const { side, notes } = server(group?.slice(6) ?? "__defaulte__", {
    jobRequested: () => {
      const [, name, kind] = /^LABORO (.+) (\.\S+) (\d+)$/s.exec(next()) ?? [];
      if (name !== undefined && kind !== undefined) {
        const size = Number(/\d+$/.exec(next())?.[0]);
        side.sendJob(name, kind, size === 0 ? Buffer.alloc(0) : (answers[written() + 1] ?? Buffer.alloc(0)));
      } else if (next() === "ATENDI") side.noJob("ATENDI");
      else if (next() === "ELIRI") side.noJob("ELIRI");
      else if (next() === "FINO") side.noJob("FINO");
    },
    resultAnnounced: () => side.accept(),
    outputEnded: () => side.recorded(),
  });
  const written = (): number => notes.written.length;
  for (const { from, bytes } of sends) if (from === "runner") feed(side, notes, bytes, cut);
  return { said: notes.written, news: notes.news, side };
}

describe("the manager's states", () => {
  for (const [how, cut] of CUTS) {
    it.each(RECORDINGS)(`answers the recorded runner of %s as its manager did, ${how}`, (name) => {
      // What the runner of glue_jes says last, it says to a manager that has hung up on it.
      const sends = name === "glue_jes" ? recording(name).slice(0, -1) : recording(name);
      const { said, news, side } = replayed(sends, cut);
      const original = sends.filter(({ from }) => from === "manager").map(({ bytes }) => bytes.toString("latin1"));
      const expected = name === "wrongversion" ? ["VERSIO 1.3"] : original;
      expect(said.map((bytes) => bytes.toString("latin1"))).toEqual(expected);
      expect(news.filter((one) => one.startsWith("wrong"))).toEqual([]);
      // The original never saw this PETO, as it came together with JES.
      if (name === "glue_jes") expect(side.state).toEqual({ name: "SendJob", step: "choosing" });
    });
  }

  it("takes JES and PETO in one piece", () => {
    const { side, notes } = server("g");
    for (const piece of ["SALUTON; MI a", "KOMPRENAS", "JESPETO"]) side.push(Buffer.from(piece));
    expect(notes.news).toEqual(["joined a", "asked"]);
    side.sendJob("x", ".sh", Buffer.alloc(0));
    side.push(Buffer.from("PRETAPETO"));
    expect(notes.news).toEqual(["joined a", "asked", "handed", "asked"]);
    expect(side.state).toEqual({ name: "SendJob", step: "choosing" });
  });

  it("takes PRETA for an empty script together with a result", () => {
    const { side, notes } = joined();
    side.push(Buffer.from("PETO"));
    side.sendJob("x", ".sh", Buffer.alloc(0));
    side.push(Buffer.from("PRETAREZULTO y failure 0"));
    expect(notes.news.slice(-2)).toEqual(["handed", "result y failure 0"]);
    side.accept();
    expect(notes.news.at(-1)).toBe("ended");
    side.recorded();
    expect(String(notes.written.at(-1))).toBe("RICEVIS");
    expect(side.state.name).toBe("Wait");
  });

  it("says FINO again to one that asks again, and takes its results in between", () => {
    const { side, notes } = joined();
    side.push(Buffer.from("PETO"));
    side.noJob("FINO");
    expect(side.state.name).toBe("WaitClose");
    side.push(Buffer.from("PETO"));
    expect(notes.written.slice(-2).map(String)).toEqual(["FINO", "FINO"]);
    side.push(Buffer.from("REZULTO x success 2"));
    side.accept();
    side.push(Buffer.from("ok"));
    side.recorded();
    expect(side.state.name).toBe("WaitClose");
    side.push(Buffer.from("FINO ANKAU"));
    expect(notes.news.at(-1)).toBe("left");
  });

  it.each([
    ["after JES", []],
    ["while its PETO is open", ["PETO"]],
    ["after ELIRI", ["PETO", "ELIRI"]],
    ["after ATENDI", ["PETO", "ATENDI"]],
    ["after LABORO", ["PETO", "LABORO"]],
  ])("takes FINO ANKAU %s", (_when, steps) => {
    const { side, notes } = joined();
    for (const step of steps) {
      if (step === "ELIRI") side.noJob("ELIRI");
      else if (step === "ATENDI") side.noJob("ATENDI");
      else if (step === "LABORO") side.sendJob("x", ".sh", Buffer.from("x"));
      else side.push(Buffer.from(step));
    }
    side.push(Buffer.from("FINO ANKAU"));
    expect(notes.news.at(-1)).toBe("left");
    expect(side.state.name).toBe("closed");
  });

  it.each([
    ["a bad hail", [], "SALUTON; mi a"],
    ["FINO ANKAU before JES", ["SALUTON; MI a"], "FINO ANKAU"],
    ["a result before JES", ["SALUTON; MI a", "KOMPRENAS"], "REZULTO a success 1"],
    ["a PETO where PRETA is due", ["SALUTON; MI a", "KOMPRENAS", "JES", "PETO", "LABORO"], "PETO"],
    ["a result where the answer to PETO is due", ["SALUTON; MI a", "KOMPRENAS", "JES", "PETO"], "REZULTO a success 1"],
    ["nonsense", ["SALUTON; MI a", "KOMPRENAS", "JES"], "hello"],
  ])("sends away who says %s, with a reason", (_what, before, last) => {
    const { side, notes } = server("g");
    for (const step of before) {
      if (step === "LABORO") side.sendJob("x", ".sh", Buffer.from("x"));
      else side.push(Buffer.from(step));
    }
    side.push(Buffer.from(last));
    expect(notes.news.at(-1)).toMatch(/^wrong: expected .*, it sent /);
    expect(side.state.name).toBe("closed");
    const { length } = notes.written;
    side.push(Buffer.from("PETO"));
    expect(notes.written.length).toBe(length);
  });

  it("does not gather without end what comes while a result is looked at", () => {
    const { side, notes } = joined();
    side.push(Buffer.from("REZULTO x success 5"));
    for (let i = 0; i < 10; i++) side.push(Buffer.alloc(1_024));
    expect(notes.news.at(-1)).toMatch(/^wrong: /);
  });

  it("says nothing more to one that was sent away, whatever is decided about it", () => {
    const { side, notes } = server("g");
    for (const piece of ["SALUTON; MI a", "KOMPRENAS", "JESPETO", "nonsense"]) side.push(Buffer.from(piece));
    expect(notes.news.at(-1)).toMatch(/^wrong: /);
    const before = notes.written.length;
    side.sendJob("x", ".sh", Buffer.from("x"));
    side.noJob("ATENDI");
    side.noJob("ELIRI");
    side.noJob("FINO");
    side.recorded();
    expect(notes.written).toHaveLength(before);
    expect(side.state.name).toBe("closed");
  });

  it("answers one after the other what comes at once, however much it is", () => {
    const { side, notes } = server("g", { jobRequested: () => side.noJob("ATENDI") });
    for (const piece of ["SALUTON; MI a", "KOMPRENAS", `JES${"PETO".repeat(100_000)}`]) side.push(Buffer.from(piece));
    expect(notes.written.filter((bytes) => bytes.toString() === "ATENDI")).toHaveLength(100_000);
  });
});

function joined(): ReturnType<typeof server> {
  const made = server("g");
  for (const piece of ["SALUTON; MI a", "KOMPRENAS", "JES"]) made.side.push(Buffer.from(piece));
  return made;
}
