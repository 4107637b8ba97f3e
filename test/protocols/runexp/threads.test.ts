import { describe, expect, it } from "vitest";
import type { Job } from "../../../src/protocols/runexp/runner/client-state-machine.js";
import { Threads } from "../../../src/protocols/runexp/runner/threads.js";

const job = (name: string, content = name): Job => ({ name, kind: ".sh", content: Buffer.from(content) });

function threads(count: number, options: { readonly mayAsk?: () => boolean } = {}) {
  const said: string[] = [];
  const made = new Threads<string>(count, {
    mayRequestJob: options.mayAsk ?? (() => true),
    requestJob: () => void said.push("PETO"),
    deliver: (outcome) => void said.push(`REZULTO ${outcome}`),
    start: (thread, { name }) => void said.push(`start ${name} at ${thread}`),
    leave: () => void said.push("FINO ANKAU"),
    startHoldTimer: (thread) => void said.push(`hold ${thread}`),
  });
  return { made, said, next: () => said.splice(0) };
}

describe("the threads of a runner", () => {
  it("ask one after the other, under one lock", () => {
    const { made, next } = threads(2);
    made.connected();
    expect(next()).toEqual(["PETO"]);
    made.sendNext();
    expect(next()).toEqual([]);
    made.job(job("a"));
    expect(next()).toEqual(["start a at 0", "PETO"]);
    made.job(job("b"));
    expect(next()).toEqual(["start b at 1"]);
    expect(made.states).toEqual(["RunJob", "RunJob"]);
  });

  it("deliver a result before they ask, and the thread asks when RICEVIS has come", () => {
    const { made, next } = threads(2);
    made.connected();
    made.job(job("a"));
    made.job(job("b"));
    next();
    made.finished(0, "a");
    expect(next()).toEqual(["REZULTO a"]);
    expect(made.states).toEqual(["SendOutcome", "RunJob"]);
    made.finished(1, "b");
    made.delivered();
    expect(next()).toEqual(["REZULTO b"]);
    made.delivered();
    expect(next()).toEqual(["PETO"]);
    made.job(job("c"));
    expect(next()).toEqual(["start c at 0", "PETO"]);
  });

  it("end when there is nothing more, and the last one says so", () => {
    const { made, next } = threads(2);
    made.connected();
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

  it("wait each for itself when it is told to, and all ask once one gets a job", () => {
    const { made, next } = threads(3);
    made.connected();
    made.job(job("a"));
    made.noJob("ATENDI");
    made.noJob("ATENDI");
    expect(next()).toEqual(["PETO", "start a at 0", "PETO", "hold 1", "PETO", "hold 2"]);
    expect(made.states).toEqual(["RunJob", "ClientOnHold", "ClientOnHold"]);
    made.holdExpired(1);
    expect(next()).toEqual(["PETO"]);
    made.noJob("ATENDI");
    made.finished(0, "a");
    expect(next()).toEqual(["hold 1", "REZULTO a"]);
    made.delivered();
    expect(next()).toEqual(["PETO"]);
    made.job(job("b"));
    expect(next()).toEqual(["start b at 0", "PETO"]);
    made.job(job("c"));
    expect(next()).toEqual(["start c at 1", "PETO"]);
    made.holdExpired(1);
    expect(made.states).toEqual(["RunJob", "RunJob", "RunJob"]);
  });

  it("take FINO after ATENDI, and do not sit the hold out when another is told FINO", () => {
    const { made, next } = threads(2);
    made.connected();
    made.noJob("ATENDI");
    expect(next()).toEqual(["PETO", "hold 0", "PETO"]);
    made.noJob("FINO");
    expect(next()).toEqual(["FINO ANKAU"]);
  });

  it("banned, deliver what runs and leave", () => {
    const { made, next } = threads(2);
    made.connected();
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
    made.connected();
    expect(next()).toEqual([]);
    enough = true;
    made.sendNext();
    expect(next()).toEqual(["PETO"]);
  });

  it("go on when the connection is lost, and deliver when it is back, before they ask", () => {
    const { made, next } = threads(2);
    made.connected();
    made.job(job("a"));
    expect(next()).toEqual(["PETO", "start a at 0", "PETO"]);
    made.disconnected();
    expect(made.states).toEqual(["RunJob", "WorkerLoop"]);
    made.finished(0, "a");
    expect(next()).toEqual([]);
    made.connected();
    // Else the manager, which has it back on its list, would hand it out again.
    expect(next()).toEqual(["REZULTO a"]);
    made.delivered();
    expect(next()).toEqual(["PETO"]);
  });

  it("do not start a second time what a manager hands out again while it runs here", () => {
    const { made, next } = threads(2);
    made.connected();
    made.job(job("a"));
    made.disconnected();
    made.connected();
    next();
    made.job(job("a"));
    expect(next()).toEqual(["PETO"]);
    made.job(job("a", "another script"));
    expect(next()).toEqual(["start a at 1"]);
  });
});
