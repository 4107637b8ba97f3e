import { expect, test } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import { decodeFrame } from "../../../src/protocols/laboro/codec.js";
import { FRAME_TARGET, Outbox } from "../../../src/protocols/laboro/socket-transport.js";

function outboxWithFrames(): { outbox: Outbox; frames: Uint8Array[]; turn: () => void } {
  const frames: Uint8Array[] = [];
  const scheduled: (() => void)[] = [];
  const outbox = new Outbox(
    (frame) => frames.push(frame),
    (flush) => scheduled.push(flush),
  );
  const turn = (): void => {
    for (const flush of scheduled.splice(0)) flush();
  };
  return { outbox, frames, turn };
}

const reply = (id: number, size: number) => ({ type: "REPLY", id, body: Buffer.alloc(size) }) as const;
const idsOf = (frames: readonly Uint8Array[]): number[][] =>
  frames.map((frame) => decodeFrame(frame, "worker").map((message) => (message.type === "REPLY" ? message.id : -1)));

test("all messages of one turn go in one frame, in order", () => {
  const { outbox, frames, turn } = outboxWithFrames();
  for (let id = 0; id < 100; id++) outbox.push(reply(id, 10));
  expect(frames).toHaveLength(0);
  turn();
  expect(idsOf(frames)).toEqual([Array.from({ length: 100 }, (_, id) => id)]);
  outbox.push(reply(100, 10));
  turn();
  expect(idsOf(frames)[1]).toEqual([100]);
});

test("a turn without messages sends nothing, also when it was flushed by hand", () => {
  const { outbox, frames, turn } = outboxWithFrames();
  outbox.push(reply(1, 1));
  outbox.flush();
  expect(frames).toHaveLength(1);
  turn();
  outbox.flush();
  expect(frames).toHaveLength(1);
});

test("a frame stays under its target, unless a single message is larger", () => {
  const { outbox, frames, turn } = outboxWithFrames();
  for (let id = 0; id < 40; id++) outbox.push(reply(id, 100_000));
  outbox.push(reply(40, 3 * FRAME_TARGET));
  outbox.push(reply(41, 1));
  turn();
  const sizes = frames.map((frame) => frame.length);
  const ids = idsOf(frames);
  expect(ids.flat()).toEqual(Array.from({ length: 42 }, (_, id) => id));
  expect(sizes.filter((size) => size > FRAME_TARGET + 5)).toHaveLength(1);
  expect(ids.at(-2)).toEqual([40]);
  expect(ids.at(-1)).toEqual([41]);
  expect(frames).toHaveLength(6);
});

test("a large message that comes alone is not left behind", () => {
  const { outbox, frames, turn } = outboxWithFrames();
  outbox.push(reply(1, 2 * FRAME_TARGET));
  turn();
  expect(idsOf(frames)).toEqual([[1]]);
  outbox.push(reply(2, 1));
  turn();
  expect(idsOf(frames)).toEqual([[1], [2]]);
});

test("more messages than a frame may hold go in several", () => {
  const { outbox, frames, turn } = outboxWithFrames();
  for (let id = 0; id < 70_000; id++) outbox.push({ type: "HEARTBEAT" });
  turn();
  expect(frames.map((frame) => decodeFrame(frame, "worker").length)).toEqual([65_535, 4465]);
});

test("the bytes that wait are known exactly", () => {
  const { outbox, frames, turn } = outboxWithFrames();
  outbox.push(reply(1, 1000));
  outbox.push(reply(2, 2000));
  const waiting = outbox.bytes;
  turn();
  expect(frames[0]).toHaveLength(waiting + 1);
  expect(outbox.bytes).toBe(0);
});

test("a message that cannot be sent is refused to its sender and does not disturb the others", () => {
  const { outbox, frames, turn } = outboxWithFrames();
  outbox.push(reply(1, 1));
  expect(() => outbox.push(reply(-1, 1))).toThrow(LaboroError);
  outbox.push(reply(2, 1));
  turn();
  expect(idsOf(frames)).toEqual([[1, 2]]);
});

test("it is flushed by itself at the end of the turn", async () => {
  const frames: Uint8Array[] = [];
  const outbox = new Outbox((frame) => frames.push(frame));
  outbox.push(reply(1, 1));
  await Promise.resolve();
  outbox.push(reply(2, 1));
  await new Promise((resolve) => setImmediate(resolve));
  expect(idsOf(frames)).toEqual([[1, 2]]);
});
