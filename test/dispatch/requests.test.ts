import { describe, expect, it } from "vitest";
import { nextTimerAt } from "../../src/dispatch/index.js";
import { Workbench } from "./workbench.js";

const ECHO = { services: ["echo"] };

describe("a request", () => {
  it("goes to the least recently used worker that offers the service", () => {
    const broker = new Workbench();
    broker.join("other", { slots: 9 });
    broker.join("a", { slots: 2, ...ECHO });
    broker.join("b", { slots: 2, ...ECHO });
    for (let i = 0; i < 4; i++) broker.request("echo");
    expect(broker.called).toEqual(["a 1", "b 2", "a 3", "b 4"]);
  });

  it("waits where all are busy, oldest first, and takes a slot before any task does", () => {
    const broker = new Workbench();
    broker.join("a", ECHO);
    broker.submit({ count: 10, priority: 1000 });
    broker.request("echo");
    broker.request("echo");
    broker.finish("a");
    expect(broker.called).toEqual(["a 1"]);
    expect(broker.reply("a", 1)).toBe(true);
    expect(broker.called).toEqual(["a 1", "a 2"]);
    broker.reply("a", 2);
    expect(broker.at("a")).toEqual(["1.1"]);
  });

  it("is refused at once where as many wait as are kept", () => {
    const broker = new Workbench({ maxWaitingRequests: 2 });
    broker.join("a", ECHO);
    for (let i = 0; i < 4; i++) broker.request("echo");
    expect(broker.called).toEqual(["a 1", "4 LABORO_QUEUE_FULL"]);
    expect(broker.state.requests.size).toBe(3);
    broker.reply("a", 1);
    broker.request("echo");
    expect(broker.called).toEqual(["a 1", "4 LABORO_QUEUE_FULL", "a 2"]);
  });

  it("that waits is answered with its deadline, and says whether anyone offered the service", () => {
    const broker = new Workbench();
    broker.join("a", ECHO);
    broker.request("echo");
    broker.request("echo", { deadline: broker.now + 10 });
    broker.request("nothing", { deadline: broker.now + 10 });
    broker.pass(10);
    expect(broker.called.slice(1)).toEqual(["2 LABORO_DEADLINE", "3 LABORO_DEADLINE"]);
    const reasons = broker.calls.flatMap((call) => (call.kind === "refuse" ? [call.why] : []));
    expect(reasons).toEqual([
      "service echo: no worker was free before the deadline",
      "service nothing: no worker offered it before the deadline",
    ]);
  });

  it("keeps its slot after its deadline until the worker is done, and that answer is nobody's", () => {
    const broker = new Workbench();
    broker.join("a", ECHO);
    broker.request("echo", { deadline: broker.now + 10 });
    broker.pass(10);
    expect(broker.calls.map((call) => call.kind)).toEqual(["call", "refuse", "cancelCall"]);
    broker.request("echo");
    expect(broker.called).toEqual(["a 1", "1 LABORO_DEADLINE"]);
    expect(broker.reply("a", 1)).toBe(false);
    expect(broker.called.at(-1)).toBe("a 2");
  });

  it("that its asker forgets leaves the line, or is taken from its worker", () => {
    const broker = new Workbench();
    broker.join("a", ECHO);
    broker.request("echo");
    broker.request("echo");
    broker.forget(2);
    broker.forget(1);
    broker.forget(1);
    expect(broker.calls.map((call) => call.kind)).toEqual(["call", "cancelCall"]);
    expect(broker.reply("a", 1)).toBe(false);
    expect(broker.state.requests.size).toBe(0);
    expect(broker.worker("a").free.slots).toBe(1);
  });

  it("is refused when its worker is lost, or goes to another once if it may", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, ...ECHO });
    broker.request("echo");
    broker.request("echo", { retry: true });
    broker.join("b", ECHO);
    broker.away("a");
    expect(broker.called).toEqual(["a 1", "a 2", "1 LABORO_WORKER_LOST", "b 2"]);
    broker.away("b");
    expect(broker.called.at(-1)).toBe("2 LABORO_WORKER_LOST");
  });

  it("that has to wait again stands where it stood, before younger ones", () => {
    const broker = new Workbench();
    broker.join("a", ECHO);
    broker.request("echo", { retry: true });
    broker.request("echo");
    broker.away("a");
    broker.join("b", ECHO);
    expect(broker.called).toEqual(["a 1", "b 1"]);
  });

  it("of a worker that joins again goes to another with room, also if the first no longer offers the service", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 2, ...ECHO });
    broker.request("echo", { retry: true });
    broker.join("b", { slots: 1, ...ECHO });
    broker.request("echo");
    broker.reply("b", 2);
    broker.join("a", { slots: 2 });
    expect(broker.called.at(-1)).toBe("b 1");
  });

  it("is answered once: a second reply, or one from another worker, is nobody's", () => {
    const broker = new Workbench();
    broker.join("a", ECHO);
    broker.join("b", ECHO);
    broker.request("echo");
    expect(broker.reply("b", 1)).toBe(false);
    expect(broker.reply("a", 1)).toBe(true);
    expect(broker.reply("a", 1)).toBe(false);
    expect(broker.reply("nobody", 7)).toBe(false);
  });
});

describe("slots kept for requests", () => {
  it("are not given to tasks, and a task that needs them has no worker", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 3, reserveRequests: 2, ...ECHO });
    broker.submit({ count: 5 });
    expect(broker.at("a")).toHaveLength(1);
    broker.request("echo");
    broker.request("echo");
    expect(broker.called).toEqual(["a 1", "a 2"]);
    const wide = broker.submit({ slots: 2 });
    expect(broker.why(`${wide}.0`)).toBe("it needs 2 slots, the most that a worker has is 1");
  });
});

describe("services that nobody offers", () => {
  it("do not lengthen the search for work, however many names are asked for", () => {
    const broker = new Workbench();
    broker.join("a", ECHO);
    for (let i = 0; i < 600; i++) broker.request(`name ${i}`, { deadline: broker.now + 10 });
    expect(broker.state.active.size).toBe(0);
    broker.pass(10);
    for (let i = 0; i < 600; i++) {
      broker.request(`other ${i}`);
      broker.forget(601 + i);
    }
    expect(broker.state.signatures.size).toBeLessThanOrEqual(512);
  });
});

describe("deadlines of many requests", () => {
  it("are looked at seldom, and each request is refused within milliseconds after its own", () => {
    const broker = new Workbench({ maxWaitingRequests: 4_000 });
    const begin = broker.now;
    for (let i = 0; i < 3_000; i++) broker.request("echo", { deadline: begin + 10 + i / 10 });
    let looks = 0;
    let refused = 0;
    for (let at = nextTimerAt(broker.state); at !== undefined; at = nextTimerAt(broker.state)) {
      broker.pass(at - broker.now);
      looks++;
      refused = broker.called.length;
      // All that are due are refused, and the next look is at most the allowed delay away.
      expect(refused).toBe(Math.min(3_000, Math.floor((broker.now - begin - 10) * 10 + 1e-6) + 1));
      expect((nextTimerAt(broker.state) ?? broker.now) - broker.now).toBeLessThanOrEqual(3);
    }
    expect(refused).toBe(3_000);
    expect(looks).toBeLessThan(1_500);
  });

  it("that were answered leave nothing to look at", () => {
    const broker = new Workbench();
    broker.join("a", ECHO);
    broker.request("echo", { deadline: broker.now + 10 });
    broker.reply("a", 1);
    broker.pass(10);
    expect(nextTimerAt(broker.state)).toBeUndefined();
    expect(broker.called).toEqual(["a 1"]);
  });
});
