import { describe, expect, it } from "vitest";
import { OutputRelays } from "../../src/broker/output-relays.js";
import { JobId } from "../../src/model/ids.js";
import type { OutputChunk } from "../../src/model/store.js";
import { until } from "../support/wait.js";

const JOB = JobId(1);
const chunk = (offset: number, text: string, index = 0): OutputChunk => ({
  ...{ job: JOB, index, attempt: 1, stream: "stdout", offset },
  bytes: Buffer.from(text),
});

/** A follower that keeps what it gets. */
function follower(relays: OutputRelays) {
  const got: string[] = [];
  return { got, ...relays.follow(JOB, ({ bytes }) => got.push(Buffer.from(bytes).toString())) };
}

describe("OutputRelays", () => {
  it("passes output on, and reports it only when it was taken", () => {
    const relays = new OutputRelays();
    const one = follower(relays);
    const reported: number[] = [];
    relays.relay(chunk(10, "ab"), (end) => reported.push(end));
    relays.relay(chunk(12, "cd"), (end) => reported.push(end));
    expect([one.got, reported]).toEqual([["ab", "cd"], []]);
    one.taken({ index: 0, attempt: 1 }, 12);
    one.taken({ index: 0, attempt: 1 }, 14);
    expect(reported).toEqual([12, 14]);
  });

  it("waits for the slowest of several followers, and no longer once that one is gone", () => {
    const relays = new OutputRelays();
    const [fast, slow] = [follower(relays), follower(relays)];
    const reported: number[] = [];
    relays.relay(chunk(0, "ab"), (end) => reported.push(end));
    fast.taken({ index: 0, attempt: 1 }, 2);
    expect(reported).toEqual([]);
    slow.end();
    expect(reported).toEqual([2]);
  });

  it("keeps what was not taken for a follower that comes, or comes back", () => {
    const relays = new OutputRelays();
    relays.relay(chunk(0, "ab"), () => {});
    const first = follower(relays);
    first.end();
    const second = follower(relays);
    expect([first.got, second.got]).toEqual([["ab"], ["ab"]]);
    relays.stop();
  });

  it("ignores what a worker sends again after a reconnect, and reports on its new connection", () => {
    const relays = new OutputRelays();
    const one = follower(relays);
    const reported: string[] = [];
    relays.relay(chunk(0, "ab"), () => reported.push("old"));
    relays.relay(chunk(0, "ab"), () => reported.push("new"));
    one.taken({ index: 0, attempt: 1 }, 2);
    expect([one.got, reported]).toEqual([["ab"], ["new"]]);
  });

  it("drops output that nobody comes for, so that its task goes on", async () => {
    const relays = new OutputRelays(10);
    const reported: number[] = [];
    relays.relay(chunk(0, "ab"), (end) => reported.push(end));
    expect(reported).toEqual([]);
    await until("it is dropped", () => reported.length === 1);
    relays.relay(chunk(2, "cd"), (end) => reported.push(end));
    expect(reported).toEqual([2, 4]);
    const late = follower(relays);
    relays.relay(chunk(4, "ef"), (end) => reported.push(end));
    expect([late.got, reported]).toEqual([["ef"], [2, 4]]);
  });
});
