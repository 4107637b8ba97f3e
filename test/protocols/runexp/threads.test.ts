import { describe, expect, it } from "vitest";
import type { Job } from "../../../src/protocols/runexp/client-states.js";
import { Threads } from "../../../src/protocols/runexp/runner/threads.js";

const job = (name: string, content = name): Job => ({ name, kind: ".sh", content: Buffer.from(content) });

function threads(count: number, options: { readonly mayAsk?: () => boolean } = {}) {
  const said: string[] = [];
  const made = new Threads<string>(count, {
    mayAsk: options.mayAsk ?? (() => true),
    ask: () => void said.push("PETO"),
    deliver: (outcome) => void said.push(`REZULTO ${outcome}`),
    start: (thread, { name }) => void said.push(`start ${name} at ${thread}`),
    leave: () => void said.push("FINO ANKAU"),
    holds: () => void said.push("hold"),
  });
  return { made, said, next: () => said.splice(0) };
}

describe("the threads of a runner", () => {
  it("ask one after the other, under one lock", () => {
    const { made, next } = threads(2);
    made.lineUp();
    expect(next()).toEqual(["PETO"]);
    made.lookAgain();
    expect(next()).toEqual([]);
    made.job(job("a"));
    expect(next()).toEqual(["start a at 0", "PETO"]);
    made.job(job("b"));
    expect(next()).toEqual(["start b at 1"]);
    expect(made.states).toEqual(["RunJob", "RunJob"]);
  });

  it("deliver before they ask", () => {
    const { made, next } = threads(2);
    made.lineUp();
    made.job(job("a"));
    made.finished(0, "a");
    expect(next()).toEqual(["PETO", "start a at 0", "PETO"]);
    made.job(job("b"));
    expect(next()).toEqual(["start b at 1", "REZULTO a"]);
    expect(made.states).toEqual(["SendOutcome", "RunJob"]);
    made.delivered();
    expect(next()).toEqual(["PETO"]);
  });

  it("end when there is nothing more, and the last one says so", () => {
    const { made, next } = threads(2);
    made.lineUp();
    made.job(job("a"));
    made.noJob("FINO");
    expect(made.states).toEqual(["RunJob", "WaitClose"]);
    next();
    made.finished(0, "a");
    expect(next()).toEqual(["REZULTO a"]);
    made.delivered();
    expect(next()).toEqual(["FINO ANKAU"]);
    expect(made.states).toEqual(["WaitClose", "WaitClose"]);
  });

  it("on hold only one of them asks again, and all of them once it gets a job", () => {
    const { made, next } = threads(3);
    made.lineUp();
    made.job(job("a"));
    made.noJob("ATENDI");
    expect(next()).toEqual(["PETO", "start a at 0", "PETO", "hold"]);
    expect(made.states).toEqual(["RunJob", "ClientOnHold", "WorkerLoop"]);
    made.finished(0, "a");
    made.delivered();
    expect(next()).toEqual(["REZULTO a"]);
    made.holdOver();
    expect(next()).toEqual(["PETO"]);
    made.noJob("ATENDI");
    expect(next()).toEqual(["hold"]);
    made.holdOver();
    made.job(job("b"));
    expect(next()).toEqual(["PETO", "start b at 1", "PETO"]);
  });

  it("take FINO after ATENDI, and do not sit the hold out when another is told FINO", () => {
    const { made, next } = threads(2);
    made.lineUp();
    made.noJob("ATENDI");
    made.holdOver();
    made.noJob("FINO");
    expect(next()).toEqual(["PETO", "hold", "PETO", "FINO ANKAU"]);
  });

  it("banned, deliver what runs and leave", () => {
    const { made, next } = threads(2);
    made.lineUp();
    made.job(job("a"));
    made.noJob("ELIRI");
    next();
    made.finished(0, "a");
    made.delivered();
    expect(next()).toEqual(["REZULTO a", "FINO ANKAU"]);
  });

  it("ask for nothing while memory is short", () => {
    let enough = false;
    const { made, next } = threads(1, { mayAsk: () => enough });
    made.lineUp();
    expect(next()).toEqual([]);
    enough = true;
    made.lookAgain();
    expect(next()).toEqual(["PETO"]);
  });

  it("go on when the connection is lost, and deliver when it is back, what was left from before first", () => {
    const { made, next } = threads(2);
    made.owe(["old"]);
    made.lineUp();
    expect(next()).toEqual(["REZULTO old"]);
    made.lineDown();
    expect(made.undelivered).toEqual(["old"]);
    made.lineUp();
    made.delivered();
    made.job(job("a"));
    expect(next()).toEqual(["REZULTO old", "PETO", "start a at 0", "PETO"]);
    made.lineDown();
    expect(made.states).toEqual(["RunJob", "WorkerLoop"]);
    made.finished(0, "a");
    expect(next()).toEqual([]);
    made.lineUp();
    expect(next()).toEqual(["REZULTO a"]);
  });

  it("do not start a second time what a manager hands out again while it runs here", () => {
    const { made, next } = threads(2);
    made.lineUp();
    made.job(job("a"));
    made.lineDown();
    made.lineUp();
    next();
    made.job(job("a"));
    expect(next()).toEqual(["PETO"]);
    made.job(job("a", "another script"));
    expect(next()).toEqual(["start a at 1"]);
  });
});
