/** Two of ours know each other, and say less. */
import { describe, expect, it } from "vitest";
import { decoder } from "../../../src/protocols/runexp/decode.js";
import { bytewise, type Cut, client, cutAt, feed, server, whole } from "./replay.js";

const CUTS: readonly (readonly [string, Cut])[] = [
  ["whole", whole],
  ["byte by byte", bytewise],
  ...[1, 10, 14, 16, 18, 20, 24].map((at): [string, Cut] => [`cut after ${at} bytes`, cutAt(() => at)]),
];

const text = (written: readonly Buffer[]): string[] => written.map((bytes) => bytes.toString("latin1"));

function joinedClient(): ReturnType<typeof client> {
  const made = client("g", {}, true);
  made.side.sendHello("h");
  for (const piece of ["VERSIO 1.3", "ALIGI g"]) made.side.push(Buffer.from(piece));
  made.notes.written.length = 0;
  made.notes.news.length = 0;
  return made;
}

function joinedServer(): ReturnType<typeof server> {
  const made = server("g");
  for (const piece of ["SALUTON; MI a", "KOMPRENAS", "JES"]) made.side.push(Buffer.from(piece));
  made.notes.written.length = 0;
  made.notes.news.length = 0;
  return made;
}

/** Has delivered one result, and the manager's next LABORO tells that it is one of ours. */
function kinClient(): ReturnType<typeof client> {
  const made = joinedClient();
  made.side.deliver("a", "success", 3);
  made.side.push(Buffer.from("PRETA"));
  made.side.sendOutput(Buffer.from("abc"), true);
  made.side.push(Buffer.from("RICEVIS"));
  made.side.requestJob();
  made.side.push(Buffer.from("LABORO b .sh 4\necho"));
  return made;
}

const kinServer = (): ReturnType<typeof server> => servedServer("REZULTO a success 03");

/** Has taken this result of three bytes, and handed out a job. */
function servedServer(result: string): ReturnType<typeof server> {
  const made = joinedServer();
  made.side.push(Buffer.from(result));
  made.side.accept();
  made.side.push(Buffer.from("abc"));
  made.side.recorded();
  made.side.push(Buffer.from("PETO"));
  made.side.sendJob("b", ".sh", Buffer.from("echo"));
  return made;
}

describe("a runner", () => {
  it("says by the size of its result that it is one of ours, and takes a script that follows", () => {
    const { side, notes } = kinClient();
    expect(text(notes.written)).toEqual(["REZULTO a success 03", "abc", "PETO"]);
    expect(notes.news).toEqual(["output wanted", "delivered", "job b .sh 4"]);
    expect(side.isLaboro).toBe(true);
  });

  it.each(CUTS)("then lets its output follow at once, and takes scripts however they come: %s", (_how, cut) => {
    const { side, notes } = kinClient();
    notes.written.length = 0;
    notes.news.length = 0;
    side.deliver("b", "failure", 3);
    expect(notes.news).toEqual(["output wanted"]);
    side.sendOutput(Buffer.from("abc"), true);
    expect(text(notes.written)).toEqual(["REZULTO b failure 3\n", "abc"]);
    feed(side, notes, Buffer.from("RICEVIS"), cut);
    side.requestJob();
    feed(side, notes, Buffer.from("LABORO c d .sh 12\n1\n22\nLABORO "), cut);
    expect(notes.news).toEqual(["output wanted", "delivered", "job c d .sh 12"]);
    side.requestJob();
    feed(side, notes, Buffer.from("LABORO empty .sh 0\n"), cut);
    expect(notes.news.at(-1)).toBe("job empty .sh 0");
    expect(text(notes.written).slice(2)).toEqual(["PETO", "PETO"]);
  });

  it("asks an original manager once, and then says what any runner says", () => {
    const { side, notes } = joinedClient();
    for (const name of ["a", "b"]) {
      side.requestJob();
      side.push(Buffer.from(`LABORO ${name} .sh 1`));
      side.push(Buffer.from("x"));
    }
    for (const name of ["a", "b"]) {
      side.deliver(name, "success", 0);
      side.push(Buffer.from("PRETA"));
      side.sendOutput(Buffer.alloc(0), true);
      side.push(Buffer.from("RICEVIS"));
      side.requestJob();
      side.push(Buffer.from("LABORO c .sh 1"));
      side.push(Buffer.from("x"));
    }
    expect(text(notes.written).filter((one) => one.startsWith("REZULTO"))).toEqual([
      "REZULTO a success 00",
      "REZULTO b success 0",
    ]);
    expect(side.isLaboro).toBe(false);
  });

  it("gives back what it has not begun", () => {
    const { side, notes } = kinClient();
    side.returnJob("b c");
    side.requestJob();
    expect(text(notes.written).slice(-2)).toEqual(["REDONI b c\n", "PETO"]);
  });

  it("leaves a manager whose script follows although it was not told that it may", () => {
    const { side, notes } = joinedClient();
    side.requestJob();
    side.push(Buffer.from("LABORO b .sh 4\necho"));
    expect(notes.news).toEqual(["wrong: a script that nobody has asked for follows its LABORO"]);
  });

  it("leaves a manager of ours that goes on without a newline", () => {
    const { side, notes } = kinClient();
    side.requestJob();
    side.push(Buffer.from(`LABORO ${"x".repeat(9_000)}`));
    expect(notes.news.at(-1)).toMatch(/^wrong: /);
  });
});

describe("a manager", () => {
  it("lets scripts follow for a runner of ours, and for no other", () => {
    const { notes } = kinServer();
    expect(text(notes.written)).toEqual(["PRETA", "RICEVIS", "LABORO b .sh 4\necho"]);
    expect(notes.news).toEqual(["result a success 3", "output 3", "ended", "asked", "handed"]);
    const other = servedServer("REZULTO a success 3");
    expect(text(other.notes.written)).toEqual(["PRETA", "RICEVIS", "LABORO b .sh 4"]);
  });

  it.each(CUTS)("takes its outputs however they come: %s", (_how, cut) => {
    const { side, notes } = server("g", {
      jobRequested: () => side.sendJob("b", ".sh", Buffer.from("echo")),
      resultAnnounced: () => side.accept(),
      outputEnded: () => side.recorded(),
    });
    for (const piece of ["SALUTON; MI a", "KOMPRENAS", "JES", "REZULTO a success 03", "abc", "PETO"])
      side.push(Buffer.from(piece));
    notes.written.length = 0;
    feed(side, notes, Buffer.from("REZULTO b b success 9\nREZULTO 1"), cut);
    feed(side, notes, Buffer.from("PETO"), cut);
    feed(side, notes, Buffer.from("REZULTO c failure 0\n"), cut);
    expect(text(notes.written)).toEqual(["RICEVIS", "LABORO b .sh 4\necho", "RICEVIS"]);
    expect(side.state.name).toBe("Wait");
  });

  it.each(CUTS)("takes back what one of ours has not begun: %s", (_how, cut) => {
    const { side, notes } = kinServer();
    notes.news.length = 0;
    feed(side, notes, Buffer.from("REDONI b c .sh 14\nREDONI d\nPETO"), cut);
    expect(notes.news).toEqual(["returned b c .sh 14", "returned d", "asked"]);
  });

  it("takes nothing back from any other", () => {
    const { side, notes } = joinedServer();
    side.push(Buffer.from("REDONI a\n"));
    expect(notes.news[0]).toMatch(/^wrong: /);
  });

  it("sends a runner away whose output follows although nobody has asked for it", () => {
    const { side, notes } = joinedServer();
    side.push(Buffer.from("REZULTO a success 3\nabc"));
    expect(notes.news).toEqual(["wrong: an output that nobody has asked for follows its REZULTO"]);
  });

  it("looks at a result before it takes a byte of what follows", () => {
    const { side, notes } = kinServer();
    notes.news.length = 0;
    side.push(Buffer.from(`REZULTO ../x success 20000\n${"x".repeat(20_000)}`));
    expect(notes.news).toEqual(["result ../x success 20000"]);
    side.drop();
    expect(notes.news).toHaveLength(1);
  });
});

it("decode does not take a REDONI without its end for a whole one", () => {
  const made = decoder();
  expect(made.push("r>m", [Buffer.from("REDONI b")])).toEqual([]);
  expect(made.push("r>m", [Buffer.from("c\n")])).toEqual([{ name: "REDONI", fields: { name: "bc" } }]);
});

it("decode tells what follows at once", () => {
  const made = decoder();
  const found = [
    ...made.push("m>r", [Buffer.from("LABORO b .sh 4\necho")]),
    ...made.push("r>m", [Buffer.from("REZULTO b success 3\nabc")]),
    ...made.push("m>r", [Buffer.from("RICEVIS")]),
  ];
  expect(found).toEqual([
    { name: "LABORO", fields: { name: "b", kind: ".sh", size: 4, follows: true } },
    { name: "(data)", fields: { bytes: 4, text: "echo" } },
    { name: "REZULTO", fields: { name: "b", status: "success", size: 3, follows: true } },
    { name: "(data)", fields: { bytes: 3, text: "abc" } },
    { name: "RICEVIS", fields: {} },
  ]);
});
