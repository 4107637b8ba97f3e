/** Output that was sent on a connection and not acknowledged is sent again on the next one. */
import { expect, it } from "vitest";
import { JobId } from "../../src/model/ids.js";
import type { FromWorker } from "../../src/protocols/laboro/messages.js";
import { OutputSender } from "../../src/worker/output-sender.js";
import { atEnd } from "../support/at-end.js";

const BYTES = 10_000;
const taskOf = (index: number) => ({ job: JobId(1), index, attempt: 1 });
const stored = (index: number, outputStored: number) => ({ ...taskOf(index), outputStored });

function scene(cap: number, indices: readonly number[]) {
  const sender: OutputSender = new OutputSender({
    directory: "/nowhere",
    now: () => 0,
    onLost: () => {},
    onReady: () => sender.pump(),
  });
  atEnd(() => sender.close());
  /** What goes out on a new connection, as `type index:from-to`. */
  const connect = (...keep: ReturnType<typeof stored>[]): string[] => {
    const sent: string[] = [];
    sender.resume(keep, 1_000_000, (message: FromWorker) => {
      if (message.type === "OUTPUT" || message.type === "RELAY")
        sent.push(`${message.type} ${message.index}:${message.offset}-${message.offset + message.bytes.length}`);
    });
    return sent;
  };
  for (const index of indices) {
    const source = { pause: () => {}, resume: () => {} };
    sender.write(sender.begin(taskOf(index), cap, source), "stdout", Buffer.alloc(BYTES));
  }
  return { sender, connect };
}

it("credit of a new connection counts for what was sent on it, not for what was lost with the former one", () => {
  const { sender, connect } = scene(1_000_000, [0, 1]);
  const [first, second] = ["OUTPUT 0:0-10000", "OUTPUT 1:0-10000"];
  expect(connect(stored(0, 0), stored(1, 0))).toEqual([first, second]);
  expect(connect(stored(1, 0), stored(0, 0))).toEqual([second, first]);
  sender.credit(BYTES);
  expect(connect(stored(0, 0), stored(1, BYTES))).toEqual([first]);
});

it("relayed output that no client has taken is sent again", () => {
  const { sender, connect } = scene(BYTES, [0]);
  const [output, relayed] = ["OUTPUT 0:0-5000", "RELAY 0:5000-10000"];
  expect(connect(stored(0, 0)).sort()).toEqual([output, relayed]);
  expect(connect(stored(0, 5_000))).toEqual([relayed]);
  sender.relayed({ ...taskOf(0), end: BYTES });
  expect(connect(stored(0, 5_000))).toEqual([]);
});
