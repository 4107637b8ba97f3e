/** The golden bytes of the original programs, and what of a payload is read however it is written. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  decodeMessage,
  encodeMessage,
  HEADER_SIZE,
  joinCounts,
  splitCounts,
} from "../../../src/protocols/fuq/codec.js";
import type { JobDescription, Message, Task, Unreadable } from "../../../src/protocols/fuq/messages.js";

interface Vector {
  readonly name: string;
  readonly type: string;
  readonly seq: number;
  readonly hex: string;
  readonly decoded: unknown;
}

const VECTORS = JSON.parse(
  readFileSync(new URL("../../fixtures/fuq/v2-vectors.json", import.meta.url), "utf8"),
) as readonly Vector[];

/** As the vectors write it: Go's names, or the names of the header's parts. */
function meaningOf(message: Message | Unreadable): unknown {
  const description = (job: JobDescription) => ({
    JobId: job.jobId,
    Name: job.name,
    NumTasks: job.numTasks,
    WorkingDir: job.workingDir,
    LoggingDir: job.loggingDir,
    Command: job.command,
    Status: job.status,
  });
  const taskOf = ({ task, job }: Task) => ({ Task: task, JobDescription: description(job) });
  switch (message.type) {
    case "OK":
      return { nproc: message.nproc, nrun: message.nrun };
    case "HELLO":
      if (message.hello === undefined) return null;
      return { NumProcs: message.hello.numProcs, Running: message.hello.running?.map(taskOf) ?? null };
    case "JOB":
      return message.tasks.map(taskOf);
    case "UPDATE": {
      const { jobId, task, success, status, newJob } = message.update;
      const asked = newJob && { NumProc: newJob.numProc };
      return { JobId: jobId, Task: task, Success: success, Status: status, NewJob: asked };
    }
    case "CANCEL":
      return message.pairs.map(({ jobId, task }) => ({ JobId: jobId, Task: task }));
    case "STOP":
      return { n: message.count };
    case "RESET":
      return { last_reply_seq: message.lastReply };
    case "ERROR": {
      const counts = message.code === 2 ? splitCounts(message.arg0) : {};
      return { arg0: message.arg0, errcode: message.code, ...counts };
    }
    default:
      return message;
  }
}

describe("the golden vectors", () => {
  it("are all there", () => expect(VECTORS).toHaveLength(26));

  it.each(VECTORS.map((vector) => [vector.name, vector] as const))("%s", (_name, { type, seq, hex, decoded }) => {
    const message = decodeMessage(Buffer.from(hex, "hex"));
    expect(message.type).toBe(type.toUpperCase());
    expect(message.seq).toBe(seq);
    expect(meaningOf(message)).toEqual(decoded);
    expect(encodeMessage(message as Message).toString("hex")).toBe(hex);
  });
});

/** A message around a payload that was written by hand. */
function framed(type: number, payload: readonly number[] | Uint8Array, trailing: readonly number[] = []): Buffer {
  const head = Buffer.alloc(HEADER_SIZE);
  head.writeUInt16LE(0xc047, 0);
  head.writeUInt8(type, 2);
  head.writeUInt32LE(payload.length, 12);
  return Buffer.concat([head, Uint8Array.from(payload), Uint8Array.from(trailing)]);
}

const text = (value: string): number[] => [0xa0 | value.length, ...Buffer.from(value)];

describe("a payload", () => {
  it("has its Task inlined or nested", () => {
    const inlined = [0x91, 0x83, ...text("Task"), 7, ...text("JobId"), 3, ...text("Command"), ...text("/c")];
    const nested = [0x91, 0x82, ...text("Task"), 7, ...text("JobDescription"), 0x82];
    nested.push(...text("JobId"), 3, ...text("Command"), ...text("/c"));
    const read = decodeMessage(framed(3, inlined));
    expect(read).toMatchObject({ tasks: [{ task: 7, job: { jobId: 3, command: "/c", numTasks: 0, workingDir: "" } }] });
    expect(read).toEqual(decodeMessage(framed(3, nested)));
  });

  it("has integers of every width, signed and unsigned", () => {
    const widths: [number, number[]][] = [
      [5, [5]],
      [-3, [0xfd]],
      [200, [0xcc, 200]],
      [513, [0xcd, 2, 1]],
      [0x01020304, [0xce, 1, 2, 3, 4]],
      [2 ** 40, [0xcf, 0, 0, 1, 0, 0, 0, 0, 0]],
      [-100, [0xd0, 0x9c]],
      [-513, [0xd1, 0xfd, 0xff]],
      [-2, [0xd2, 0xff, 0xff, 0xff, 0xfe]],
      [-1, [0xd3, 255, 255, 255, 255, 255, 255, 255, 255]],
      [1, [0xd3, 0, 0, 0, 0, 0, 0, 0, 1]],
    ];
    for (const [value, bytes] of widths) {
      const message = decodeMessage(framed(5, [0x82, ...text("JobId"), 1, ...text("Task"), ...bytes]));
      expect(message).toMatchObject({ type: "CANCEL", pairs: [{ jobId: 1, task: value }] });
    }
  });

  it("is written with the smallest integers, whatever their sign", () => {
    for (const task of [0, 127, 128, 255, 256, 65535, 65536, 2 ** 32, -1, -32, -33, -128, -129, -32769, -(2 ** 40)]) {
      const message: Message = { type: "CANCEL", pairs: [{ jobId: 2 ** 50, task }], seq: 3 };
      expect(decodeMessage(encodeMessage(message))).toEqual(message);
    }
  });

  it("may have keys that nobody knows, at every level, of every kind", () => {
    const strange = [
      [0xc4, 2, 9, 9],
      [0xd9, 1, 65],
      [0xca, 0, 0, 0, 0],
      [0xcb, 0, 0, 0, 0, 0, 0, 0, 0],
      [0xd6, 1, 0, 0, 0, 0],
      [0xc7, 3, 1, 0, 0, 0],
      [0x92, 0x81, 0xa1, 65, 0xc0, 0xc3],
      [0xde, 0, 1, 0x93, 1, 2, 3, 0x80],
    ];
    for (const value of strange) {
      const description = [0x82, ...text("Zzz"), ...value, ...text("JobId"), 9];
      const task = [0x83, ...value, ...value, ...text("JobDescription"), ...description, ...text("Task"), 4];
      const hello = [0x83, ...text("NumProcs"), 2, ...text("Other"), ...value, ...text("Running"), 0x91, ...task];
      expect(decodeMessage(framed(2, hello))).toMatchObject({
        hello: { numProcs: 2, running: [{ task: 4, job: { jobId: 9 } }] },
      });
    }
  });

  it("may lack any key, and be nil where Go writes nil", () => {
    expect(decodeMessage(framed(2, [0x80]))).toMatchObject({ hello: { numProcs: 0, running: null } });
    expect(decodeMessage(framed(2, [0xc0]))).toMatchObject({ hello: { numProcs: 0, running: null } });
    expect(decodeMessage(framed(3, [0xc0]))).toMatchObject({ type: "JOB", tasks: [] });
    expect(decodeMessage(framed(3, []))).toMatchObject({ type: "JOB", tasks: [] });
    expect(decodeMessage(framed(3, [0x91, 0xc0]))).toMatchObject({ tasks: [{ task: 0, job: { name: "" } }] });
    expect(decodeMessage(framed(5, []))).toMatchObject({ type: "CANCEL", pairs: [] });
    expect(decodeMessage(framed(5, [0xc0]))).toMatchObject({ type: "CANCEL", pairs: [] });
    expect(decodeMessage(framed(4, [0x81, ...text("Status"), 0xc0]))).toMatchObject({ update: { status: "" } });
  });

  it("of a CANCEL is a list, or one pair as the text has it", () => {
    const pair = [0x82, ...text("JobId"), 3, ...text("Task"), 2];
    expect(decodeMessage(framed(5, pair))).toMatchObject({ pairs: [{ jobId: 3, task: 2 }] });
    expect(decodeMessage(framed(5, [0x91, ...pair]))).toMatchObject({ pairs: [{ jobId: 3, task: 2 }] });
  });

  it("of a CANCEL is written as a list, or as one pair", () => {
    const pair = { jobId: 3, task: 2 };
    const written = (single: boolean) => encodeMessage({ type: "CANCEL", pairs: [pair], single, seq: 3 }).subarray(16);
    const bytes = [0x82, ...text("JobId"), 3, ...text("Task"), 2];
    expect([...written(true)]).toEqual(bytes);
    expect([...written(false)]).toEqual([0x91, ...bytes]);
  });

  it("of a HELLO may be a bare list of tasks", () => {
    const hello = { numProcs: undefined, running: [] };
    expect(decodeMessage(framed(2, [0x90]))).toMatchObject({ type: "HELLO", hello });
    expect([...encodeMessage({ type: "HELLO", hello, seq: 0 }).subarray(16)]).toEqual([0x90]);
  });

  it("may be followed by bytes that mean nothing", () => {
    const update = [0x82, ...text("JobId"), 1, ...text("Task"), 2];
    const plain = decodeMessage(framed(4, update));
    expect(decodeMessage(framed(4, [...update, 1, 2, 3]))).toEqual(plain);
    expect(decodeMessage(framed(4, update, [1, 2, 3]))).toEqual(plain);
  });

  it("keeps text that is not UTF-8 as the bytes it is, both ways", () => {
    const job: JobDescription = {
      jobId: 1,
      name: "n",
      numTasks: 1,
      workingDir: Uint8Array.from([0x2f, 0xff, 0xfe]),
      loggingDir: "",
      command: "c",
      status: 1,
    };
    const message: Message = { type: "JOB", tasks: [{ task: 1, job }], seq: 3 };
    expect(decodeMessage(encodeMessage(message))).toEqual(message);
  });
});

describe("what cannot be read", () => {
  const unreadable: [string, Buffer, RegExp][] = [
    ["an unknown type", framed(77, []), /77 is not a message type/],
    ["an UPDATE of nothing", framed(4, []), /ends at byte 0/],
    ["an UPDATE of nil", framed(4, [0xc0]), /nil/],
    ["a payload cut short", framed(4, [0x85, ...text("JobId")]), /values are claimed/],
    ["a list for a map", framed(4, [0x90]), /expected a map/],
    ["a float for a number", framed(2, [0x81, ...text("NumProcs"), 0xca, 0, 0, 0, 0]), /expected a whole number/],
    ["a number beyond 2^53", framed(2, [0x81, ...text("NumProcs"), 0xcf, 255, 0, 0, 0, 0, 0, 0, 0]), /beyond 2\^53/],
    ["slots below 0", framed(2, [0x81, ...text("NumProcs"), 0xff]), /expected 0 to 65535/],
    ["a list longer than its bytes", framed(3, [0xdd, 0xff, 0xff, 0xff, 0xff]), /at most 65535/],
    ["the byte that is no msgpack", framed(2, [0x81, ...text("Zzz"), 0xc1]), /no msgpack/],
  ];

  it.each(unreadable)("%s is named by its number and reason", (_what, bytes, why) => {
    bytes.writeUInt32LE(42, 4);
    const message = decodeMessage(bytes);
    expect(message).toMatchObject({ type: "?", seq: 42, number: bytes[2] });
    expect((message as Unreadable).why).toMatch(why);
  });

  it("claims more than came", () => {
    const bytes = framed(4, [0x80]);
    bytes.writeUInt32LE(500, 12);
    expect(decodeMessage(bytes)).toMatchObject({ type: "?", why: expect.stringMatching(/claims 500 bytes, 1 came/) });
  });

  it("has no header", () => {
    expect(() => decodeMessage(Buffer.from("47c0", "hex"))).toThrow(/a header has 16/);
    expect(() => decodeMessage(Buffer.from("GET / HTTP/1.1\r\n\r\n"))).toThrow(/0x4547, expected 0xc047/);
  });
});

it("counts go into one number and come out of it", () => {
  expect(joinCounts(65535, 65535)).toBe(0xffff_ffff);
  expect(splitCounts(0x1234_5678)).toEqual({ nproc: 0x1234, nrun: 0x5678 });
});
