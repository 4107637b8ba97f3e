import { describe, expect, it } from "vitest";
import { RECORDINGS, recording } from "./recordings.js";
import { bytewise, type Cut, client, cutAt, feed, whole } from "./replay.js";

const CUTS: readonly (readonly [string, Cut])[] = [
  ["whole", whole],
  ["byte by byte", bytewise],
  ["cut before the last byte", cutAt((length) => length - 1)],
];

/** Says what the recorded runner said, when it is its turn. */
function replayed(name: string, cut: Cut): { said: string[]; news: string[] } {
  const sends = recording(name);
  const group = name === "wronggroup" ? "beta" : "__defaulte__";
  const { side, notes } = client(group);
  let output: Buffer | undefined;
  for (const [at, { from, bytes }] of sends.entries()) {
    const text = bytes.toString("latin1");
    if (from === "manager") {
      feed(side, notes, bytes, cut);
      continue;
    }
    const [, job, status, size] = /^REZULTO (.+) (success|failure) (\d+)$/.exec(text) ?? [];
    if (at === 0) side.sendHello(text.slice("SALUTON; MI ".length));
    else if (text === "PETO") side.requestJob();
    else if (job !== undefined) side.deliver(job, status === "success" ? "success" : "failure", Number(size));
    else if (text.startsWith("runexp summary")) {
      output = bytes;
      side.sendOutput(output, true);
    } else if (text === "FINO ANKAU") side.leave();
  }
  return { said: notes.written.map((one) => one.toString("latin1")), news: notes.news };
}

describe("the runner's states", () => {
  for (const [how, cut] of CUTS) {
    // The conversation of glue_jes ends with the runner's fault: it asks again where its answer is due.
    it.each(RECORDINGS.filter((name) => name !== "glue_jes"))(
      `says what the recorded runner of %s said, ${how}`,
      (name) => {
        const { said, news } = replayed(name, cut);
        const original = recording(name)
          .filter(({ from }) => from === "runner")
          .map(({ bytes }) => bytes.toString("latin1"));
        expect(said).toEqual(original);
        expect(news.filter((one) => one.startsWith("wrong"))).toEqual([]);
        if (name === "wrongversion")
          expect(news.at(-1)).toBe("refused: the manager speaks version 1.4, this runner 1.3");
        if (name === "wronggroup")
          expect(news.at(-1)).toBe("refused: the manager's group is alpha, this runner's beta");
      },
    );
  }

  it("keeps apart what an original manager would take for one message", () => {
    const { side, notes } = joined();
    expect(notes.news).toEqual(["alone", "joined"]);
    side.requestJob();
    side.push(Buffer.from("LABORO a .sh 0"));
    expect(notes.news.slice(2)).toEqual(["alone", "job a .sh 0"]);
  });

  it("takes PRETA and RICEVIS in one piece, for a result without a byte", () => {
    const { side, notes } = joined();
    side.deliver("a", "failure", 0);
    side.push(Buffer.from("PRETARICEVIS"));
    expect(notes.news.at(-1)).toBe("output wanted");
    side.sendOutput(Buffer.alloc(0), true);
    expect(notes.news.at(-1)).toBe("delivered");
    expect(side.state.name).toBe("WorkerLoop");
  });

  it.each([
    ["a manager that speaks unasked", [], "FINO"],
    ["nonsense for a job", ["ask"], "LABOR0 a .sh 1"],
    ["a job of too many bytes", ["ask"], "LABORO a .sh 999999999999"],
    ["RICEVIS where PRETA is due", ["deliver"], "RICEVIS"],
  ])("leaves %s", (_what, steps, last) => {
    const { side, notes } = joined();
    for (const step of steps) step === "ask" ? side.requestJob() : side.deliver("a", "success", 1);
    side.push(Buffer.from(last));
    expect(notes.news.at(-1)).toMatch(/^wrong: /);
    expect(side.state.name).toBe("closed");
    // Its threads may not have heard of it yet.
    const before = notes.written.length;
    side.requestJob();
    side.deliver("a", "success", 1);
    side.leave();
    expect(notes.written).toHaveLength(before);
    expect(side.state.name).toBe("closed");
  });
});

function joined(): ReturnType<typeof client> {
  const made = client("g");
  made.side.sendHello("h");
  for (const piece of ["VERSIO 1.3", "ALIGI g"]) made.side.push(Buffer.from(piece));
  return made;
}
