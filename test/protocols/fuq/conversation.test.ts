/** Sections 4 and 5 of the text, rule by rule, without a socket. */
import { describe, expect, it } from "vitest";
import {
  type Body,
  COUNTS_WANTED,
  ERRORS,
  type Message,
  type Ok,
  type Request,
  STOP_AT_ONCE,
} from "../../../src/protocols/fuq/messages.js";
import {
  type Effect,
  ProtocolStateMachine,
  type ProtocolStateMachineOptions,
} from "../../../src/protocols/fuq/protocol-state-machine.js";

type Talk = ProtocolStateMachine<string>;

const OK: Ok = { type: "OK", nproc: 1, nrun: 1 };
const HELLO: Request = { type: "HELLO", hello: { numProcs: 2, running: [] } };
const NOWHERE = { workingDir: "/", loggingDir: "/", command: "/bin/true", status: 1 };
const JOB: Request = { type: "JOB", tasks: [{ task: 1, job: { jobId: 1, name: "a", numTasks: 1, ...NOWHERE } }] };
const UPDATE: Request = {
  type: "UPDATE",
  update: { jobId: 1, task: 1, success: true, status: "done", newJob: null },
};
const stop = (count: number): Request => ({ type: "STOP", count });
const numbered = (body: Body, seq: number): Message => ({ ...body, seq });

/** What goes out, in short: `JOB 3`, `ERROR(3) 5`. */
const sent = (effects: readonly Effect<string>[]): string[] =>
  effects.flatMap((effect) => (effect.kind === "send" ? [short(effect.message)] : []));
const short = (message: Message): string =>
  `${message.type}${message.type === "ERROR" ? `(${message.code})` : ""} ${message.seq}`;
const asked = (effects: readonly Effect<string>[]): string[] =>
  effects.flatMap((effect) => (effect.kind === "request" ? [`${effect.request.type} ${effect.request.seq}`] : []));
const answered = (effects: readonly Effect<string>[]): string[] =>
  effects.flatMap((effect) => (effect.kind === "reply" ? [`${effect.tag}: ${effect.reply.type}`] : []));
const kinds = (effects: readonly Effect<string>[]): string[] => effects.map(({ kind }) => kind);

/** A foreman that has greeted its worker; its next request is 3. */
function openForeman(more: Partial<ProtocolStateMachineOptions> = {}): Talk {
  const talk: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "worker", ...more });
  talk.start();
  talk.receive(numbered(HELLO, 0));
  talk.answer(0, OK);
  expect(talk.state).toBe("SV_LOOP0");
  return talk;
}

/** A worker that has said HELLO 0; its next request is 2. */
function openWorker(more: Partial<ProtocolStateMachineOptions> = {}): Talk {
  const talk: Talk = new ProtocolStateMachine({ side: "worker", greeting: "worker", ...more });
  talk.start();
  talk.request(HELLO, "hello");
  talk.receive(numbered(OK, 0));
  expect(talk.state).toBe("CL_LOOP0");
  return talk;
}

describe("the greeting", () => {
  it("on a raw stream: OK(0), HELLO, OK", () => {
    const foreman: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "foreman" });
    const worker: Talk = new ProtocolStateMachine({ side: "worker", greeting: "foreman" });
    expect(foreman.state).toBe("SV_INIT0");
    expect(sent(foreman.start())).toEqual(["OK 0"]);
    expect(foreman.state).toBe("SV_INIT1");
    expect(worker.start()).toEqual([]);
    expect(worker.state).toBe("CL_INIT0");
    expect(kinds(worker.receive({ type: "OK", nproc: 0, nrun: 0, seq: 0 }))).toEqual(["begin"]);
    expect(sent(worker.request(HELLO, "hello"))).toEqual(["HELLO 0"]);
    expect(worker.state).toBe("CL_INIT1");
    expect(asked(foreman.receive(numbered(HELLO, 0)))).toEqual(["HELLO 0"]);
    expect(foreman.state).toBe("SV_INIT2");
    expect(sent(foreman.answer(0, OK))).toEqual(["OK 0"]);
    expect(foreman.state).toBe("SV_LOOP0");
    expect(answered(worker.receive(numbered(OK, 0)))).toEqual(["hello: OK"]);
    expect(worker.state).toBe("CL_LOOP0");
    expect(sent(foreman.request(JOB, "job"))).toEqual(["JOB 3"]);
    expect(foreman.state).toBe("SV_LOOP1");
  });

  it("on a raw stream may be OK(nproc) instead of HELLO, as the table has it", () => {
    for (const ok of [
      { nproc: 4, nrun: 0 },
      { nproc: 0, nrun: 4 },
    ]) {
      const foreman: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "foreman" });
      foreman.start();
      expect(foreman.receive({ type: "OK", ...ok, seq: 0 })).toMatchObject([
        { kind: "request", request: { type: "HELLO", seq: 0, hello: { numProcs: 4, running: null } } },
      ]);
      expect(sent(foreman.answer(0, OK))).toEqual(["OK 0"]);
      expect(foreman.state).toBe("SV_LOOP0");
    }
  });

  it("on a WebSocket begins with HELLO, and a stray OK is no greeting", () => {
    const foreman: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "worker" });
    expect(foreman.start()).toEqual([]);
    expect(kinds(foreman.receive(numbered(OK, 3)))).toEqual(["violation"]);
    expect(foreman.state).toBe("SV_INIT1");
    const worker: Talk = new ProtocolStateMachine({ side: "worker", greeting: "worker" });
    expect(kinds(worker.start())).toEqual(["begin"]);
  });

  it("comes before any other request, also STOP(at once); an UPDATE before HELLO can be answered", () => {
    const stopping: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "worker" });
    stopping.start();
    expect(sent(stopping.request(stop(STOP_AT_ONCE), "stop"))).toEqual([]);
    stopping.receive(numbered(HELLO, 0));
    expect(sent(stopping.answer(0, OK))).toEqual(["OK 0", "STOP 3"]);
    const foreman: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "worker" });
    foreman.start();
    expect(foreman.request(JOB, "job")).toEqual([]);
    expect(asked(foreman.receive(numbered(UPDATE, 8)))).toEqual(["UPDATE 8"]);
    expect(sent(foreman.answer(8, OK))).toEqual(["OK 8"]);
    expect(foreman.state).toBe("SV_INIT1");
    expect(asked(foreman.receive(numbered(HELLO, 10)))).toEqual(["HELLO 10"]);
    expect(sent(foreman.answer(10, OK))).toEqual(["OK 10", "JOB 13"]);
    const worker: Talk = new ProtocolStateMachine({ side: "worker", greeting: "worker" });
    worker.start();
    expect(worker.request(UPDATE, "update")).toEqual([]);
    expect(sent(worker.request(HELLO, "hello"))).toEqual(["HELLO 0"]);
    expect(sent(worker.receive(numbered(OK, 0)))).toEqual(["UPDATE 2"]);
    expect(worker.state).toBe("CL_UPDATE1");
  });

  it("is over for the foreman when its worker has answered a JOB of no tasks", () => {
    const foreman: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "worker" });
    foreman.start();
    expect(sent(foreman.request(COUNTS_WANTED, "counts"))).toEqual(["JOB 1"]);
    expect(foreman.state).toBe("SV_INIT1");
    expect(answered(foreman.receive(numbered(OK, 1)))).toEqual(["counts: OK"]);
    expect(foreman.state).toBe("SV_LOOP0");
    expect(sent(foreman.request(JOB, "job"))).toEqual(["JOB 3"]);
  });

  it("lets a HELLO pass that crosses such a JOB, though its number is higher", () => {
    const foreman: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "worker" });
    foreman.start();
    foreman.request(COUNTS_WANTED, "counts");
    expect(asked(foreman.receive(numbered(HELLO, 36)))).toEqual(["HELLO 36"]);
    expect(sent(foreman.answer(36, OK))).toEqual(["OK 36"]);
    expect(foreman.state).toBe("SV_LOOP1");
    expect(answered(foreman.receive(numbered(OK, 1)))).toEqual(["counts: OK"]);
    expect(foreman.state).toBe("SV_LOOP0");
  });
});

describe("sequence numbers", () => {
  it("rise above all that was received, as the original's do", () => {
    const foreman = openForeman();
    expect(sent(foreman.request(JOB, "a"))).toEqual(["JOB 3"]);
    foreman.receive(numbered(OK, 3));
    foreman.receive(numbered(UPDATE, 4));
    expect(sent(foreman.answer(4, OK))).toEqual(["OK 4"]);
    foreman.receive(numbered(UPDATE, 6));
    foreman.answer(6, OK);
    expect(sent(foreman.request(JOB, "b"))).toEqual(["JOB 9"]);
  });

  it("of the wrong parity are ERROR(bad_seq)", () => {
    expect(sent(openForeman().receive(numbered(UPDATE, 5)))).toEqual([`ERROR(${ERRORS.bad_seq}) 5`]);
    expect(sent(openWorker().receive(numbered(JOB, 4)))).toEqual([`ERROR(${ERRORS.bad_seq}) 4`]);
  });

  it("that do not rise are ERROR(bad_seq)", () => {
    const foreman = openForeman();
    foreman.receive(numbered(UPDATE, 6));
    foreman.answer(6, OK);
    expect(sent(foreman.receive(numbered(UPDATE, 6)))).toEqual([`ERROR(${ERRORS.bad_seq}) 6`]);
    expect(sent(foreman.receive(numbered(UPDATE, 4)))).toEqual([`ERROR(${ERRORS.bad_seq}) 4`]);
    expect(asked(foreman.receive(numbered(UPDATE, 8)))).toEqual(["UPDATE 8"]);
  });

  it("below a reply that was given are ERROR(bad_seq)", () => {
    const foreman = openForeman();
    foreman.request(JOB, "job");
    foreman.receive(numbered(OK, 3));
    expect(sent(foreman.receive(numbered(UPDATE, 2)))).toEqual([`ERROR(${ERRORS.bad_seq}) 2`]);
  });

  it("go on where a worker that came again goes on", () => {
    const foreman: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "worker", original: true });
    foreman.start();
    foreman.receive(numbered(HELLO, 12));
    foreman.answer(12, OK);
    expect(sent(foreman.request(JOB, "job"))).toEqual(["JOB 15"]);
  });
});

describe("turns", () => {
  it("one request of a side is unanswered at a time", () => {
    const foreman = openForeman();
    expect(sent(foreman.request(JOB, "a"))).toEqual(["JOB 3"]);
    expect(foreman.request(JOB, "b")).toEqual([]);
    expect(foreman.unanswered).toEqual(["a", "b"]);
    const after = foreman.receive(numbered(OK, 3));
    expect(answered(after)).toEqual(["a: OK"]);
    expect(sent(after)).toEqual(["JOB 5"]);
  });

  it("what was asked is answered before anything new is asked", () => {
    const foreman = openForeman();
    foreman.receive(numbered(UPDATE, 2));
    expect(foreman.state).toBe("SV_LOOP2");
    expect(foreman.request(JOB, "job")).toEqual([]);
    expect(sent(foreman.answer(2, OK))).toEqual(["OK 2", "JOB 5"]);
  });

  it("while a reply is waited for, a lower request is answered", () => {
    const foreman = openForeman();
    foreman.request(JOB, "job");
    expect(asked(foreman.receive(numbered(UPDATE, 2)))).toEqual(["UPDATE 2"]);
    expect(sent(foreman.answer(2, OK))).toEqual(["OK 2"]);
    expect(answered(foreman.receive(numbered(OK, 3)))).toEqual(["job: OK"]);
  });

  it("while a reply is waited for, a higher request waits", () => {
    const foreman = openForeman();
    foreman.request(JOB, "job");
    expect(foreman.receive(numbered(UPDATE, 4))).toEqual([]);
    expect(kinds(foreman.receive(numbered(OK, 3)))).toEqual(["reply", "request"]);
  });

  it("STOP(at once) waits for nothing, not even for a request that is being answered", () => {
    const worker = openWorker();
    worker.request(UPDATE, "update");
    expect(asked(worker.receive(numbered(stop(STOP_AT_ONCE), 3)))).toEqual(["STOP 3"]);
    expect(sent(worker.answer(3, OK))).toEqual(["OK 3"]);
    const busy = openWorker();
    busy.receive(numbered(JOB, 3));
    expect(asked(busy.receive(numbered(stop(STOP_AT_ONCE), 5)))).toEqual(["STOP 5"]);
    const foreman = openForeman();
    foreman.request(JOB, "job");
    expect(sent(foreman.request(stop(STOP_AT_ONCE), "stop"))).toEqual(["STOP 5"]);
    expect(answered(foreman.receive(numbered(OK, 5)))).toEqual(["stop: OK"]);
  });

  it("several requests without waiting are given to the caller one by one, in order", () => {
    const foreman = openForeman();
    expect(asked(foreman.receive(numbered(UPDATE, 2)))).toEqual(["UPDATE 2"]);
    expect(foreman.receive(numbered(UPDATE, 4))).toEqual([]);
    expect(kinds(foreman.answer(2, OK))).toEqual(["send", "request"]);
  });

  it("what is for the other side, reserved or unreadable is ERROR(bad_message)", () => {
    const bad = [`ERROR(${ERRORS.bad_message}) 2`];
    expect(sent(openForeman().receive(numbered(JOB, 2)))).toEqual(bad);
    expect(sent(openForeman().receive({ type: "LIST", arg0: 0, seq: 2 }))).toEqual(bad);
    expect(sent(openForeman().receive({ type: "?", number: 4, why: "cut short", seq: 2 }))).toEqual(bad);
    expect(sent(openWorker().receive(numbered(UPDATE, 3)))).toEqual([`ERROR(${ERRORS.bad_message}) 3`]);
  });

  it("a reply to nothing is passed over", () => {
    const foreman = openForeman();
    expect(kinds(foreman.receive(numbered(OK, 17)))).toEqual(["violation"]);
    expect(sent(foreman.request(JOB, "job"))).toEqual(["JOB 19"]);
  });
});

describe("overflow", () => {
  it("of the queue is ERROR(overflow), and nothing is lost of what waits", () => {
    const worker = openWorker({ queueLimit: 2 });
    worker.request(UPDATE, "update");
    for (const seq of [3, 5]) expect(worker.receive(numbered(JOB, seq))).toEqual([]);
    expect(sent(worker.receive(numbered(JOB, 7)))).toEqual([`ERROR(${ERRORS.overflow}) 7`]);
    expect(asked(worker.receive(numbered(OK, 2)))).toEqual(["JOB 3"]);
    expect(asked(worker.answer(3, OK))).toEqual(["JOB 5"]);
    expect(asked(worker.answer(5, OK))).toEqual([]);
    expect(asked(worker.receive(numbered(JOB, 9)))).toEqual(["JOB 9"]);
  });

  it("is answered by the same request with a new number, after one good reply", () => {
    const foreman = openForeman();
    foreman.request(JOB, "job");
    expect(foreman.receive({ type: "ERROR", code: ERRORS.overflow, arg0: 0, seq: 3 })).toEqual([{ kind: "overflow" }]);
    foreman.receive(numbered(UPDATE, 4));
    expect(sent(foreman.answer(4, OK))).toEqual(["OK 4", "JOB 7"]);
    expect(answered(foreman.receive(numbered(OK, 7)))).toEqual(["job: OK"]);
  });

  it("need not be waited out where the good reply crossed it", () => {
    const foreman = openForeman();
    foreman.request(JOB, "job");
    foreman.receive(numbered(UPDATE, 2));
    foreman.answer(2, OK);
    expect(sent(foreman.receive({ type: "ERROR", code: ERRORS.overflow, arg0: 0, seq: 3 }))).toEqual(["JOB 5"]);
  });

  it("that no reply ends can be tried again", () => {
    const foreman = openForeman();
    foreman.request(JOB, "job");
    foreman.receive({ type: "ERROR", code: ERRORS.overflow, arg0: 0, seq: 3 });
    expect(sent(foreman.retry())).toEqual(["JOB 5"]);
  });

  it("of the numbers makes a RESET of the last one", () => {
    const foreman = openForeman({ maxSequence: 8 });
    expect(sent(foreman.request(JOB, "a"))).toEqual(["JOB 3"]);
    foreman.receive(numbered(OK, 3));
    expect(sent(foreman.request(JOB, "b"))).toEqual(["JOB 5"]);
    foreman.receive(numbered(OK, 5));
    expect(sent(foreman.request(JOB, "c"))).toEqual(["RESET 7"]);
    expect(kinds(foreman.receive({ type: "RESET", lastReply: 5, seq: 7 }))).toEqual(["restarted"]);
    expect(foreman.state).toBe("SV_INIT1");
    foreman.receive(numbered(HELLO, 0));
    expect(sent(foreman.answer(0, OK))).toEqual(["OK 0", "JOB 3"]);
  });

  it("of the worker's numbers leaves the foreman one for a RESET", () => {
    const foreman = openForeman({ maxSequence: 9 });
    expect(asked(foreman.receive(numbered(UPDATE, 8)))).toEqual(["UPDATE 8"]);
    expect(sent(foreman.answer(8, OK))).toEqual(["OK 8", "RESET 9"]);
  });

  it("of the foreman's numbers leaves the worker nothing to do but to close", () => {
    const worker = openWorker({ maxSequence: 9 });
    worker.receive(numbered(JOB, 9));
    expect(kinds(worker.answer(9, OK))).toEqual(["send", "broken"]);
  });
});

describe("RESET", () => {
  const reset = (seq: number): Message => ({ type: "RESET", lastReply: 0, seq });

  it("is answered by RESET with the same number, and all begins again", () => {
    const worker = openWorker();
    const effects = worker.receive(reset(3));
    expect(sent(effects)).toEqual(["RESET 3"]);
    expect(kinds(effects)).toEqual(["send", "restarted", "begin"]);
    expect(worker.state).toBe("CL_INIT0");
    expect(sent(worker.request(HELLO, "hello"))).toEqual(["HELLO 0"]);
  });

  it("names the last reply that was given", () => {
    const worker = openWorker();
    worker.receive(numbered(JOB, 3));
    worker.answer(3, OK);
    expect(worker.reset()).toEqual([{ kind: "send", message: { type: "RESET", lastReply: 3, seq: 4 } }]);
  });

  it("a) after it nothing is asked before the HELLO", () => {
    const foreman = openForeman();
    expect(sent(foreman.reset())).toEqual(["RESET 3"]);
    expect(foreman.request(JOB, "job")).toEqual([]);
    expect(foreman.idle).toBe(false);
    expect(sent(foreman.receive(reset(3)))).toEqual([]);
    foreman.receive(numbered(HELLO, 0));
    expect(sent(foreman.answer(0, OK))).toEqual(["OK 0", "JOB 3"]);
  });

  it("b) what is lower is answered first, by both sides", () => {
    const foreman = openForeman();
    foreman.request(JOB, "job");
    expect(foreman.receive(reset(4))).toEqual([]);
    expect(sent(foreman.receive(numbered(OK, 3)))).toEqual(["RESET 4"]);
    const worker = openWorker();
    worker.receive(numbered(JOB, 3));
    expect(worker.receive(reset(5))).toEqual([]);
    expect(sent(worker.answer(3, OK))).toEqual(["OK 3", "RESET 5"]);
    const issuer = openForeman();
    issuer.reset();
    expect(asked(issuer.receive(numbered(UPDATE, 2)))).toEqual(["UPDATE 2"]);
    expect(sent(issuer.answer(2, OK))).toEqual(["OK 2"]);
    expect(kinds(issuer.receive(reset(3)))).toEqual(["restarted"]);
  });

  it("b) it waits for what this side was asked and has asked", () => {
    const foreman = openForeman();
    foreman.request(JOB, "job");
    expect(foreman.reset()).toEqual([]);
    foreman.receive(numbered(UPDATE, 4));
    foreman.receive(numbered(OK, 3));
    expect(sent(foreman.answer(4, OK))).toEqual(["OK 4", "RESET 7"]);
  });

  it("c) what is higher is dropped without a reply, and asked again", () => {
    const worker = openWorker();
    expect(sent(worker.reset())).toEqual(["RESET 2"]);
    expect(worker.receive(numbered(JOB, 3))).toEqual([]);
    const foreman = openForeman();
    expect(sent(foreman.request(JOB, "job"))).toEqual(["JOB 3"]);
    const effects = foreman.receive(reset(2));
    expect(sent(effects)).toEqual(["RESET 2"]);
    expect(answered(effects)).toEqual([]);
    foreman.receive(numbered(HELLO, 0));
    expect(sent(foreman.answer(0, OK))).toEqual(["OK 0", "JOB 3"]);
    expect(answered(foreman.receive(numbered(OK, 3)))).toEqual(["job: OK"]);
  });

  it("that crosses another: the lower one counts", () => {
    const worker = openWorker();
    const foreman = openForeman();
    expect(sent(worker.reset())).toEqual(["RESET 2"]);
    expect(sent(foreman.reset())).toEqual(["RESET 3"]);
    expect(worker.receive(reset(3))).toEqual([]);
    expect(kinds(foreman.receive(reset(2)))).toEqual(["send", "restarted"]);
    expect(kinds(worker.receive(reset(2)))).toEqual(["restarted", "begin"]);
  });

  it("on a raw stream is followed by the foreman's OK(0)", () => {
    const foreman: Talk = new ProtocolStateMachine({ side: "foreman", greeting: "foreman" });
    foreman.start();
    foreman.receive(numbered(HELLO, 0));
    foreman.answer(0, OK);
    expect(sent(foreman.receive(reset(2)))).toEqual(["RESET 2", "OK 0"]);
  });

  it("with a number that is not its sender's turn is ERROR(bad_seq)", () => {
    expect(sent(openWorker().receive(reset(4)))).toEqual([`ERROR(${ERRORS.bad_seq}) 4`]);
  });

  it("an answer that it swept away is not sent", () => {
    const foreman = openForeman();
    foreman.reset();
    foreman.receive(numbered(UPDATE, 2));
    foreman.receive(reset(3));
    expect(foreman.answer(2, OK)).toEqual([]);
  });

  it("is not sent to an original program by choice, but at the end of the numbers", () => {
    expect(openForeman({ original: true }).reset()).toEqual([]);
    expect(sent(openForeman({ original: true, maxSequence: 4 }).request(JOB, "job"))).toEqual(["RESET 3"]);
  });

  it("that is refused is not waited for any longer", () => {
    const foreman = openForeman();
    foreman.reset();
    foreman.request(JOB, "job");
    expect(sent(foreman.receive({ type: "ERROR", code: ERRORS.bad_message, arg0: 0, seq: 3 }))).toEqual(["JOB 5"]);
  });
});

it("after exit nothing is asked, and what was asked is answered", () => {
  const worker = openWorker();
  worker.receive(numbered(stop(2), 3));
  worker.request(UPDATE, "update");
  worker.exit();
  expect(worker.state).toBe("CL_EXIT0");
  expect(sent(worker.answer(3, OK))).toEqual(["OK 3"]);
  const foreman = openForeman();
  foreman.exit();
  expect(foreman.state).toBe("SV_EXIT");
  const killed = openWorker();
  killed.exit(true);
  expect(killed.state).toBe("CL_EXIT1");
});
