import { describe, expect, test } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import { JobId } from "../../../src/model/ids.js";
import { decodeFrame, encodeFrame, type Sender } from "../../../src/protocols/laboro/codec.js";
import type { LinkMessage } from "../../../src/protocols/laboro/messages.js";
import { cpuMs } from "../../support/cpu.js";
import { packr } from "../../support/packr.js";

const frameOf = (...rows: unknown[]): Buffer => Buffer.from(packr.pack(rows));
const hex = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");

function refusal(act: () => unknown): LaboroError {
  try {
    act();
  } catch (error) {
    if (error instanceof LaboroError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

const DONE_ROW = [1, 2, 1, 0, 10, 11, 0];
const deep = (levels: number): unknown => (levels === 0 ? 0 : [deep(levels - 1)]);

describe("bytes that are refused", () => {
  const cases: readonly [string, Buffer, Sender, RegExp][] = [
    ["nothing at all", hex(""), "worker", /ends at byte 0/],
    ["a frame that is no list", hex("c0"), "worker", /frame: expected a list of messages, got null/],
    ["a frame that is a number", hex("05"), "worker", /frame: .* got 5/],
    ["a message that is no list", hex("91 05"), "worker", /a message: .* got 5/],
    ["a message without a type", hex("91 90"), "worker", /type: .* got undefined/],
    ["an unknown type", frameOf([19]), "worker", /type: expected one that a worker sends, got 19/],
    ["a type that is no number", frameOf(["JOIN"]), "worker", /type: .* got "JOIN"/],
    ["a type that is a fraction", frameOf([0.5]), "worker", /type: .* got 0.5/],
    ["a message of the other direction", frameOf([23, 1]), "worker", /type: expected one that a worker sends, got 23/],
    ["a client's message from a worker", frameOf([42, 1]), "worker", /type: .* got 42/],
    ["a worker's message for a client", frameOf([23, 1]), "brokerToClient", /type: .* got 23/],
    ["a caller that does not begin with JOIN or HELLO", frameOf([0]), "caller", /expected JOIN or HELLO/],
    ["an empty first frame", hex("90"), "caller", /expected JOIN or HELLO/],
    ["a caller that mixes worker and client", frameOf([40, 1, "x"], [2, []]), "caller", /type: .* got 2$/],
    ["a negative index", frameOf([2, [[1, -1, 1]]]), "worker", /index: expected a whole number from 0 .* got -1/],
    ["a fractional index", frameOf([2, [[1, 1.5, 1]]]), "worker", /index: .* got 1.5/],
    ["an unsafe index", frameOf([2, [[1, 2 ** 53, 1]]]), "worker", /index: .* got 9007199254740992/],
    ["an attempt of 0", frameOf([2, [[1, 1, 0]]]), "worker", /attempt: expected a whole number from 1 .* got 0/],
    ["a range that ends before it begins", frameOf([5, [[1, 5, 4, 1]]]), "worker", /last: expected 5, .* got 4/],
    ["a row that is no list", frameOf([2, [7]]), "worker", /tasks\[0\]: expected a row, got 7/],
    ["a short row", frameOf([2, [[1, 1]]]), "worker", /attempt: .* got undefined/],
    ["a missing list", frameOf([2]), "worker", /tasks: expected a list, got undefined/],
    ["too many rows", frameOf([2, Array(100_001).fill([])]), "worker", /tasks: expected at most 100000 items/],
    ["too many messages", frameOf(...Array(65_536).fill([0])), "worker", /at most 65535 messages/],
    [
      "an infinite time",
      frameOf([3, 1, [DONE_ROW.with(4, Number.POSITIVE_INFINITY)]]),
      "worker",
      /started: .* got Infinity/,
    ],
    ["a time that is no number", frameOf([3, 1, [DONE_ROW.with(5, Number.NaN)]]), "worker", /ended: .* got NaN/],
    ["an exit code beyond 32 bits", frameOf([3, 1, [DONE_ROW.with(3, 2 ** 40)]]), "worker", /code: /],
    [
      "a flag that is a number",
      frameOf([3, 1, [[...DONE_ROW, 1]]]),
      "worker",
      /timedOut: expected true or false, got 1/,
    ],
    [
      "an error text beyond its limit",
      frameOf([3, 1, [[...DONE_ROW, false, "x".repeat(20_000)]]]),
      "worker",
      /error: /,
    ],
    [
      "small output beyond its limit",
      frameOf([
        3,
        1,
        [
          [
            ...DONE_ROW.with(6, 4_097),
            false,
            null,
            [
              [0, Buffer.alloc(4_096)],
              [1, Buffer.alloc(1)],
            ],
          ],
        ],
      ]),
      "worker",
      /output: expected 1 to 4096 bytes, got 4097/,
    ],
    [
      "small output without a byte",
      frameOf([3, 1, [[...DONE_ROW.with(6, 0), false, null, []]]]),
      "worker",
      /output: expected 1 to 4096 bytes, got 0/,
    ],
    [
      "small output that is not all that the task wrote",
      frameOf([3, 1, [[...DONE_ROW.with(6, 2), false, null, [[0, Buffer.alloc(1)]]]]]),
      "worker",
      /output: expected 2 bytes, as in outputBytes, got 1/,
    ],
    [
      "small output of an unknown stream",
      frameOf([3, 1, [[...DONE_ROW.with(6, 1), false, null, [[2, Buffer.alloc(1)]]]]]),
      "worker",
      /stream: expected .*stdout.* got 2/,
    ],
    ["an unknown stream", frameOf([4, 1, 1, 1, 2, 0, Buffer.alloc(1)]), "worker", /stream: expected .*stdout.* got 2/],
    ["output beyond its limit", frameOf([4, 1, 1, 1, 0, 0, Buffer.alloc(65_537)]), "worker", /65537 bytes/],
    ["an unknown error code", frameOf([7, 1, Buffer.alloc(0), "LABORO_WHAT"]), "worker", /error: .* got "LABORO_WHAT"/],
    [
      "an inherited word as error code",
      frameOf([7, 1, Buffer.alloc(0), "toString"]),
      "worker",
      /error: .* got "toString"/,
    ],
    ["a text for a body", frameOf([7, 1, "body"]), "worker", /body: expected bytes, got "body"/],
    ["a name beyond its limit", frameOf([8, ["x".repeat(1025)]]), "worker", /a name of 1 to 1024 bytes/],
    ["a name beyond its limit in bytes only", frameOf([8, ["ü".repeat(600)]]), "worker", /a name of 1 to 1024 bytes/],
    ["an empty name", frameOf([8, [""]]), "worker", /a name of 1 to 1024 bytes/],
    ["an unknown recipe", frameOf([21, 1, { kind: "magic" }, { slots: 1 }, { outputCap: 1 }]), "broker", /"magic"/],
    [
      "amounts without slots",
      frameOf([21, 1, { kind: "call", service: "x" }, {}, { outputCap: 1 }]),
      "broker",
      /with slots/,
    ],
    ["entries that do not match their range", frameOf([22, 1, 0, 2, 1, ["a"]]), "broker", /one for each of 3 tasks/],
    ["a heartbeat of 0", frameOf([50, 1, "b", 0]), "broker", /heartbeatMs: .* got 0/],
    ["bytes after the end", hex("90 00"), "worker", /1 bytes follow/],
    ["a frame that ends early", hex("91 92 02 cd 01"), "worker", /ends at byte 5/],
    ["an integer beyond 2^53", hex("91 92 17 cf 0020000000000000"), "broker", /9007199254740992 is beyond 2\^53/],
    ["a negative integer beyond 2^53", hex("91 92 17 d3 ffdfffffffffffff"), "broker", /is beyond 2\^53/],
    ["an extension type", hex("91 92 17 d6 ff 00000000"), "broker", /0xd6, a type that the link does not use/],
    ["a record definition of the library", hex("91 d4 72 40 91 a1 61 01"), "broker", /0xd4/],
    ["the token that msgpack never uses", hex("91 92 17 c1"), "broker", /0xc1/],
    ["a map key that is a number", hex("91 93 2b 01 81 01 02"), "client", /not a string/],
    ["a string that is not UTF-8", hex("91 92 08 91 a2 c3 28"), "worker", /not UTF-8/],
    ["half a surrogate pair", hex("91 92 08 91 a3 ed a0 80"), "worker", /not UTF-8/],
    ["lists too deep in each other", frameOf([43, 1, "x", deep(62)]), "client", /64 deep/],
  ];

  test.each(cases)("%s", (_name, bytes, from, text) => {
    const error = refusal(() => decodeFrame(bytes, from));
    expect(error.code).toBe("LABORO_BAD_MESSAGE");
    expect(error.message).toMatch(text);
    expect(error.message.length).toBeLessThan(200);
  });

  test("a frame beyond the limit", () => {
    const error = refusal(() => decodeFrame(Buffer.alloc(101), "worker", 100));
    expect(error.message).toBe("a frame of 101 bytes, expected at most 100");
  });

  test.each([
    ["array", "dd ffffffff"],
    ["map", "df ffffffff"],
    ["bytes", "c6 ffffffff"],
    ["string", "db ffffffff"],
    ["nested arrays", "dd 00000040 ".repeat(13)],
  ])("claimed lengths cost nothing: %s", (_name, claim) => {
    const bytes = hex(`91 93 2b 01 ${claim}`);
    const before = process.memoryUsage().heapUsed;
    const started = cpuMs();
    for (let i = 0; i < 1000; i++) {
      expect(refusal(() => decodeFrame(bytes, "client")).code).toBe("LABORO_BAD_MESSAGE");
    }
    expect(cpuMs() - started).toBeLessThan(2000);
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * 1024 * 1024);
  });

  test("more values than a frame may hold, though every byte is there", () => {
    const bytes = Buffer.concat([hex("91 93 2b 01 dd 00300000"), Buffer.alloc(0x30_0000, 0x90)]);
    expect(refusal(() => decodeFrame(bytes, "client")).message).toMatch(/more than 2097152 values/);
  });
});

describe("what newer versions may add is ignored", () => {
  test("fields after the known ones, in messages and rows", () => {
    const frame = frameOf([23, 7, "new", { a: 1 }], [22, 1, 0, 0, 1, null, null, "new"]);
    expect(decodeFrame(frame, "broker")).toStrictEqual([
      { type: "ACK", seq: 7 },
      { type: "TASKS", job: 1, first: 0, last: 0, attempt: 1 },
    ]);
    expect(decodeFrame(frameOf([2, [[1, 2, 3, "new"]]]), "worker")).toStrictEqual([
      { type: "STARTED", tasks: [{ job: 1, index: 2, attempt: 3 }] },
    ]);
  });

  test("keys of maps", () => {
    const frame = frameOf([
      21,
      1,
      { kind: "call", service: "x", colour: "red" },
      { slots: 1 },
      { outputCap: 1, colour: 1 },
    ]);
    expect(decodeFrame(frame, "broker")).toStrictEqual([
      { type: "RECIPE", job: 1, recipe: { kind: "call", service: "x" }, needs: { slots: 1 }, limits: { outputCap: 1 } },
    ]);
  });

  test("integers in any of msgpack's forms", () => {
    for (const form of [
      "07",
      "cc 07",
      "cd 0007",
      "ce 00000007",
      "cf 0000000000000007",
      "d3 0000000000000007",
      "ca 40e00000",
    ]) {
      expect(decodeFrame(hex(`91 92 17 ${form}`), "broker")).toStrictEqual([{ type: "ACK", seq: 7 }]);
    }
  });
});

describe("a message that the other end would refuse is refused to its sender", () => {
  const body = Buffer.alloc(0);
  const request = {
    type: "REQUEST",
    id: 1,
    service: "echo",
    body,
    deadline: 1,
    pool: "default",
    retry: false,
  } as const;
  const loop: unknown[] = [];
  loop.push(loop);
  const cases: readonly [string, LinkMessage, RegExp][] = [
    [
      "a service name that is too long",
      { ...request, service: "x".repeat(2000) },
      /service: expected a name of 1 to 1024 bytes/,
    ],
    ["half a surrogate pair", { ...request, service: "\ud800" }, /not UTF-8/],
    ["an endless timeout", { ...request, deadline: Number.POSITIVE_INFINITY }, /deadline: .* got Infinity/],
    ["a date", { type: "OPERATION", id: 1, operation: "x", input: new Date(0) }, /a type that the link does not use/],
    ["a value that holds itself", { type: "OPERATION", id: 1, operation: "x", input: loop }, /./],
    ["a value nested too deep", { type: "OPERATION", id: 1, operation: "x", input: deep(63) }, /63 deep/],
    ["an integer beyond 2^53", { type: "OPERATION", id: 1, operation: "x", input: 2n ** 60n }, /2\^53/],
  ];
  test.each(cases)("%s", (_name, message, text) => {
    const error = refusal(() => encodeFrame([message]));
    expect(error.code).toBe("LABORO_BAD_INPUT");
    expect(error.message).toMatch(text);
  });

  test("what laboro itself makes is checked by the receiver alone", () => {
    const bytes = Buffer.alloc(80_000);
    const output = { job: JobId(1), index: 1, attempt: 1, stream: "stdout", offset: 0, bytes } as const;
    const frame = encodeFrame([{ type: "OUTPUT", ...output }]);
    expect(() => decodeFrame(frame, "worker")).toThrow(/expected at most 65536 bytes, got 80000 bytes/);
  });

  test("a body beyond the limit of a frame has its own code", () => {
    const error = refusal(() => encodeFrame([{ ...request, body: Buffer.alloc(64 * 1024 * 1024) }]));
    expect(error.code).toBe("LABORO_BODY_TOO_LARGE");
  });

  test("times of a task that no store can hold are read as ones that it can", () => {
    const times = { started: 1e308, ended: 1e308, retryAfterMs: Number.MAX_VALUE };
    const task = { job: JobId(1), index: 0, attempt: 1, outputBytes: 0, ...times };
    const frame = encodeFrame([
      {
        type: "DONE",
        seq: 1,
        tasks: [
          { ...task, cpuMs: 1e300 },
          { ...task, cpuMs: 0.6 },
        ],
      },
    ]);
    const [message] = decodeFrame(frame, "worker");
    const most = { started: 2 ** 50, ended: 2 ** 50, retryAfterMs: 2 ** 50 };
    expect(message).toMatchObject({
      tasks: [
        { ...most, cpuMs: 2 ** 50 },
        { ...most, cpuMs: 1 },
      ],
    });
  });

  test("but a long error text of a task is cut, because a result must get through", () => {
    const task = { job: JobId(1), index: 0, attempt: 1, started: 1, ended: 2, outputBytes: 0 };
    const frame = encodeFrame([{ type: "DONE", seq: 1, tasks: [{ ...task, error: `\ud800${"é".repeat(50_000)}` }] }]);
    const [message] = decodeFrame(frame, "worker");
    const error = message?.type === "DONE" ? message.tasks[0]?.error : undefined;
    expect(error).toHaveLength(16 * 1024);
    expect(error?.startsWith("\ufffdé")).toBe(true);
  });
});
