import { describe, expect, it } from "vitest";
import type { Job } from "../../../src/protocols/runexp/runner/client-state-machine.js";
import { Threads } from "../../../src/protocols/runexp/runner/threads.js";

const job = (name: string, content = name): Job => ({ name, kind: ".sh", content: Buffer.from(content) });

function threads(
  count: number,
  options: { readonly mayAsk?: () => boolean; readonly mayAskAhead?: () => boolean } = {},
) {
  const said: string[] = [];
  const made = new Threads<string>(count, {
    mayRequestJob: options.mayAsk ?? (() => true),
    requestJob: () => void said.push("PETO"),
    deliver: (outcome) => void said.push(`REZULTO ${outcome}`),
    start: (thread, { name }) => void said.push(`start ${name} at ${thread}`),
    mayPrefetch: options.mayAskAhead ?? (() => false),
    startPrefetchTimer: () => void said.push("waits"),
    returnJob: (name) => void said.push(`REDONI ${name}`),
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

  it("ask before they deliver, so that no thread stands idle for the manager's disk", () => {
    const { made, next } = threads(2);
    made.connected();
    made.job(job("a"));
    made.job(job("b"));
    made.finished(0, "a");
    expect(next()).toEqual(["PETO", "start a at 0", "PETO", "start b at 1", "PETO"]);
    made.job(job("c"));
    expect(next()).toEqual(["start c at 0", "REZULTO a"]);
    expect(made.states).toEqual(["RunJob", "RunJob"]);
    made.finished(1, "b");
    made.delivered();
    expect(next()).toEqual(["PETO"]);
    made.job(job("d"));
    expect(next()).toEqual(["start d at 1", "REZULTO b"]);
  });

  it("do not run ahead of a manager that is slow: no more results wait than there are threads", () => {
    const { made, next } = threads(1);
    made.connected();
    made.job(job("a"));
    made.finished(0, "a");
    made.job(job("b"));
    expect(next()).toEqual(["PETO", "start a at 0", "PETO", "start b at 0", "REZULTO a"]);
    made.finished(0, "b");
    expect(made.states).toEqual(["SendOutcome"]);
    expect(next()).toEqual([]);
    made.delivered();
    expect(next()).toEqual(["PETO"]);
    expect(made.states).toEqual(["RunJob"]);
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
    expect(next()).toEqual(["hold 1", "PETO"]);
    made.job(job("b"));
    expect(next()).toEqual(["start b at 0", "PETO"]);
    made.job(job("c"));
    expect(next()).toEqual(["start c at 1", "PETO"]);
    made.holdExpired(1);
    expect(made.states).toEqual(["RunJob", "RunJob", "RunJob"]);
  });

  it("ask again at once when what was not delivered at an ATENDI is", () => {
    const { made, next } = threads(1);
    made.connected();
    made.job(job("a"));
    made.finished(0, "a");
    made.noJob("ATENDI");
    expect(next()).toEqual(["PETO", "start a at 0", "PETO", "hold 0", "REZULTO a"]);
    made.delivered();
    expect(next()).toEqual(["PETO"]);
    made.noJob("ATENDI");
    expect(next()).toEqual(["hold 0"]);
    made.sendNext();
    expect(next()).toEqual([]);
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

  describe("while jobs are short", () => {
    function busy() {
      const made = threads(2, { mayAskAhead: () => true });
      made.made.connected();
      made.made.job(job("a"));
      made.made.job(job("b"));
      made.next();
      return made;
    }

    it("ask for one more when all are busy, and the next to end takes it at once", () => {
      const { made, next } = busy();
      made.job(job("c"));
      expect(next()).toEqual(["waits"]);
      made.sendNext();
      expect(next()).toEqual([]);
      made.finished(1, "b");
      expect(next()).toEqual(["start c at 1", "REZULTO b"]);
      made.delivered();
      expect(next()).toEqual(["PETO"]);
      expect(made.running).toBe(2);
    });

    it("start what comes ahead where a thread has ended meanwhile", () => {
      const { made, next } = busy();
      made.finished(0, "a");
      expect(next()).toEqual([]);
      made.job(job("c"));
      expect(next()).toEqual(["start c at 0", "REZULTO a"]);
    });

    it("give back what waits too long, as soon as nothing else is being said", () => {
      const { made, next } = busy();
      made.job(job("c"));
      made.returnPrefetched();
      expect(next()).toEqual(["waits", "REDONI c"]);
      made.sendNext();
      expect(next()).toEqual([]);
      made.finished(0, "a");
      made.job(job("c"));
      made.returnPrefetched();
      expect(next()).toEqual(["PETO", "start c at 0", "REZULTO a"]);
      made.delivered();
      made.job(job("d"));
      made.finished(1, "b");
      made.job(job("e"));
      expect(next()).toEqual(["PETO", "waits", "start d at 1", "REZULTO b"]);
      made.delivered();
      made.job(job("e"));
      made.finished(0, "c");
      made.finished(1, "d");
      made.returnPrefetched();
      expect(next()).toEqual(["PETO", "waits", "start e at 0", "REZULTO c"]);
    });

    it("do not ask again for more than there is before a thread has had one", () => {
      const { made, next } = busy();
      made.noJob("ATENDI");
      expect(made.states).toEqual(["RunJob", "RunJob"]);
      made.sendNext();
      expect(next()).toEqual([]);
      made.finished(0, "a");
      made.job(job("c"));
      expect(next()).toEqual(["PETO", "start c at 0", "REZULTO a"]);
      made.delivered();
      expect(next()).toEqual(["PETO"]);
    });

    it("end what runs after FINO, which may be the answer", () => {
      const { made, next } = busy();
      made.noJob("FINO");
      made.finished(0, "a");
      made.delivered();
      made.finished(1, "b");
      made.delivered();
      expect(next()).toEqual(["REZULTO a", "REZULTO b", "FINO ANKAU"]);
    });

    it("give back what has not begun when they are stopped", () => {
      const { made, next } = busy();
      made.job(job("c"));
      made.stop();
      expect(next()).toEqual(["waits", "REDONI c"]);
      made.finished(0, "a");
      expect(next()).toEqual(["REZULTO a"]);
      expect(made.running).toBe(1);
    });

    it("give back what comes when they were stopped meanwhile", () => {
      const { made, next } = busy();
      made.stop();
      made.job(job("c"));
      expect(next()).toEqual(["REDONI c"]);
    });

    it("forget it with the connection, as the manager does", () => {
      const { made, next } = busy();
      made.job(job("c"));
      made.disconnected();
      made.finished(0, "a");
      expect(next()).toEqual(["waits"]);
      made.connected();
      expect(next()).toEqual(["REZULTO a"]);
    });

    it("run no more results ahead of the manager than there are threads", () => {
      const { made, next } = busy();
      made.job(job("c"));
      made.finished(0, "a");
      made.finished(0, "c");
      expect(next()).toEqual(["waits", "start c at 0", "REZULTO a"]);
      expect(made.states).toEqual(["WorkerLoop", "RunJob"]);
    });
  });
});
