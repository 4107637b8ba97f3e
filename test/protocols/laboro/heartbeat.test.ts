import { beforeEach, describe, expect, test } from "vitest";
import { Heartbeat } from "../../../src/protocols/laboro/socket-transport.js";

let sent: number;
let received: number;
let beats: number;
let deaths: number;
let running: { readonly ms: number; readonly tick: () => void } | undefined;
let heartbeat: Heartbeat;

beforeEach(() => {
  sent = received = beats = deaths = 0;
  running = undefined;
  heartbeat = new Heartbeat({
    sendBeat: () => {
      beats++;
      sent++;
    },
    onTimeout: () => deaths++,
    sent: () => sent,
    received: () => received,
    timers: {
      every: (ms, tick) => {
        running = { ms, tick };
        return () => {
          running = undefined;
        };
      },
    },
  });
});

/** Half an interval passes. */
function tick(times = 1): void {
  for (let i = 0; i < times; i++) running?.tick();
}

describe("sending", () => {
  test("an idle link has one HEARTBEAT an interval", () => {
    heartbeat.start(1000);
    expect(running?.ms).toBe(500);
    for (let i = 0; i < 20; i++) {
      received++;
      tick();
    }
    expect(beats).toBe(10);
  });

  test("no HEARTBEAT goes while there is something else to send", () => {
    heartbeat.start(1000);
    for (let i = 0; i < 20; i++) {
      received++;
      sent++;
      tick();
    }
    expect(beats).toBe(0);
  });

  test("whatever was sent last, the peer hears something within an interval", () => {
    heartbeat.start(1000);
    received++;
    sent++;
    tick();
    expect(beats).toBe(0);
    tick();
    expect(beats).toBe(1);
  });
});

describe("receiving", () => {
  test("three intervals of silence are death, told once", () => {
    heartbeat.start(1000);
    tick(5);
    expect(deaths).toBe(0);
    tick(5);
    expect(deaths).toBe(1);
    expect(running).toBeUndefined();
  });

  test("anything received starts the count again", () => {
    heartbeat.start(1000);
    tick(5);
    received++;
    tick(6);
    expect(deaths).toBe(0);
    tick();
    expect(deaths).toBe(1);
  });
});

test("a stopped heartbeat does nothing, and a second start replaces the first", () => {
  heartbeat.start(1000);
  tick(5);
  heartbeat.start(2000);
  expect(running?.ms).toBe(1000);
  tick(5);
  expect(deaths).toBe(0);
  heartbeat.stop();
  expect(running).toBeUndefined();
  heartbeat.stop();
});

test("with real timers, two that hear each other live and one that hears nothing is called dead", async () => {
  const counters = [0, 0];
  const died: string[] = [];
  const make = (self: 0 | 1, other: 0 | 1): Heartbeat =>
    new Heartbeat({
      sendBeat: () => {
        counters[self] = (counters[self] ?? 0) + 1;
      },
      onTimeout: () => died.push(`${self}`),
      sent: () => counters[self] ?? 0,
      received: () => counters[other] ?? 0,
    });
  const first = make(0, 1);
  const second = make(1, 0);
  let alone = 0;
  await new Promise<void>((resolve) => {
    const lonely = new Heartbeat({
      sendBeat: () => alone++,
      onTimeout: resolve,
      sent: () => alone,
      received: () => 0,
    });
    first.start(20);
    second.start(20);
    lonely.start(40);
  });
  first.stop();
  second.stop();
  expect(alone).toBeGreaterThanOrEqual(2);
  expect(died).toEqual([]);
});
