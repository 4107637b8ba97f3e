import { expect, it } from "vitest";
import { JobId } from "../../src/model/ids.js";
import type { FromWorker } from "../../src/protocols/laboro/messages.js";
import { type AttemptOutput, OutputSender } from "../../src/worker/output-sender.js";
import { atEnd } from "../support/at-end.js";
import { until } from "../support/wait.js";

const TASK = { job: JobId(1), index: 0, attempt: 1 };
const CAP = 1_000_000;

function scene({ cap = CAP, connected = true } = {}) {
  const time = { now: 1_000 };
  const sent: FromWorker[] = [];
  const sender: OutputSender = new OutputSender({
    directory: "/nowhere",
    now: () => time.now,
    onLost: () => {},
    onReady: () => sender.pump(),
  });
  if (connected) sender.resume([], 1_000_000, (message) => sent.push(message));
  atEnd(() => sender.close());
  const attempt: AttemptOutput = sender.begin(TASK, cap, undefined);
  const write = (text: string, stream: "stdout" | "stderr" = "stdout"): void =>
    sender.write(attempt, stream, Buffer.from(text));
  const end = (): [number, string[] | undefined] => {
    const { outputBytes, output } = sender.end(attempt);
    return [outputBytes, output?.map(({ stream, bytes }) => `${stream}:${Buffer.from(bytes).toString()}`)];
  };
  const messages = (): string[] =>
    sent.map((one) => (one.type === "OUTPUT" ? `${one.offset}:${one.bytes.length}` : one.type));
  return { time, sender, write, end, messages };
}

it("goes with the result, both streams in order, where the task ends soon", () => {
  const { write, end, messages, time } = scene();
  write("one ");
  write("two ");
  write("three", "stderr");
  time.now += 99;
  write(" four");
  expect(end()).toEqual([18, ["stdout:one two ", "stderr:three", "stdout: four"]]);
  expect(messages()).toEqual([]);
});

it("is sent from 100 ms after the start on, although nothing more is written", async () => {
  const { write, end, messages, time } = scene();
  write("early");
  time.now += 100;
  await until("it is sent", () => messages().length > 0);
  write(" and late");
  expect(messages()).toEqual(["0:5", "5:9"]);
  expect(end()).toEqual([14, undefined]);
});

it("is sent as soon as it is more than 4 KiB", () => {
  const { write, end, messages } = scene();
  write("x".repeat(4_096));
  expect(messages()).toEqual([]);
  write("y");
  expect(messages().length).toBeGreaterThan(0);
  expect(end()).toEqual([4_097, undefined]);
});

it("goes with the result of a long task if the link was down since it began to write", () => {
  const { write, end, time } = scene({ connected: false });
  time.now += 5_000;
  write("at last");
  expect(end()).toEqual([7, ["stdout:at last"]]);
});

it("is sent where the streams take turns too often for a result", () => {
  const { write, end, messages } = scene();
  for (let i = 0; i < 100; i++) write("x", i % 2 === 0 ? "stdout" : "stderr");
  expect(messages().length).toBeGreaterThan(0);
  expect(end()).toEqual([100, undefined]);
});

it("is subject to the cap of the job", () => {
  const { write, end, sender } = scene({ cap: 8 });
  write("0123456789");
  expect(end()).toEqual([10, undefined]);
  expect(sender.outputOf(TASK)?.length).toBe(10);
  const none = scene({ cap: 0 });
  none.write("x");
  expect(none.end()).toEqual([1, undefined]);
});

it("is none where nothing was written", () => {
  expect(scene().end()).toEqual([0, undefined]);
});
