/**
 * Two ends that speak with each other, in any order that a network and two busy programs can bring about: no request is lost, none
 * is answered twice, nobody waits for ever, and after a RESET both begin at zero with HELLO.
 */
import fc from "fast-check";
import { expect, it } from "vitest";
import type { Message, Numbered, Request } from "../../../src/protocols/fuq/messages.js";
import { type Effect, ProtocolStateMachine } from "../../../src/protocols/fuq/protocol-state-machine.js";
import type { Side } from "../../../src/protocols/fuq/sequence-numbers.js";
import { scaled } from "../../support/scale.js";

const STEPS = ["arrive at foreman", "arrive at worker", "foreman answers", "worker answers"] as const;
const WISHES = ["foreman asks", "worker asks", "foreman resets", "worker resets"] as const;
type Step = (typeof STEPS)[number] | (typeof WISHES)[number];

class End {
  readonly talk: ProtocolStateMachine<number>;
  /** On its way to this end. */
  readonly inbox: Message[] = [];
  /** What this end's program has in hand. */
  readonly inHand: Numbered<Request>[] = [];
  readonly wanted: number[] = [];
  readonly done: number[] = [];
  /** What the other end's requests were, as they were given to this program. */
  readonly given: number[] = [];
  /** Everything that this end has sent since the last RESET. */
  said: Message[] = [];
  restarts = 0;
  overflows = 0;
  other: End | undefined;

  constructor(
    readonly side: Side,
    greeting: Side,
    maxSequence: number,
    queueLimit: number,
  ) {
    this.talk = new ProtocolStateMachine({ side, greeting, maxSequence, queueLimit });
  }

  carryOut(effects: readonly Effect<number>[]): void {
    for (const effect of effects) {
      if (effect.kind === "send") {
        this.said.push(effect.message);
        this.other?.inbox.push(effect.message);
      } else if (effect.kind === "request") {
        this.inHand.push(effect.request);
        if (effect.request.type !== "HELLO") this.given.push(idOf(effect.request));
      } else if (effect.kind === "reply") {
        if (effect.request.type !== "HELLO") this.done.push(effect.tag);
      } else if (effect.kind === "restarted") {
        this.restarts++;
        this.said = [];
        expect(this.inHand).toEqual([]);
      } else if (effect.kind === "begin") {
        this.carryOut(this.talk.request({ type: "HELLO", hello: { numProcs: 1, running: null } }, -1));
      } else if (effect.kind !== "overflow") {
        // Neither breaks a rule; only a queue can be full.
        expect(effect.why).toMatch(/requests at a time/);
        this.overflows++;
      }
    }
  }

  arrive(): boolean {
    const message = this.inbox.shift();
    if (message !== undefined) this.carryOut(this.talk.receive(message));
    return message !== undefined;
  }

  answer(): boolean {
    const request = this.inHand.shift();
    if (request !== undefined) this.carryOut(this.talk.answer(request.seq, { type: "OK", nproc: 1, nrun: 0 }));
    return request !== undefined;
  }

  ask(id: number): void {
    this.wanted.push(id);
    const request: Request =
      this.side === "foreman"
        ? { type: "CANCEL", pairs: [{ jobId: id, task: -1 }] }
        : { type: "UPDATE", update: { jobId: id, task: 1, success: true, status: "", newJob: null } };
    this.carryOut(this.talk.request(request, id));
  }

  /** After a RESET the first request is the worker's HELLO, numbered 0; on a raw stream the foreman's OK(0) is before it. */
  expectFreshStart(greeting: Side): void {
    const [first] = this.said;
    if (this.restarts === 0 || first === undefined) return;
    const expected = this.side === "worker" ? "HELLO" : "OK";
    expect(`${first.type} ${first.seq}`).toBe(`${expected} 0`);
    if (this.side === "foreman" && greeting === "foreman") expect(first).toMatchObject({ nproc: 0, nrun: 0 });
  }
}

const idOf = (request: Request): number => {
  if (request.type === "CANCEL") return request.pairs[0]?.jobId ?? -1;
  return request.type === "UPDATE" ? request.update.jobId : -1;
};

const sorted = (numbers: readonly number[]): number[] => [...numbers].sort((a, b) => a - b);

it("no interleaving of two ends loses, doubles or stops anything", () => {
  let restarts = 0;
  let overflows = 0;
  const history = fc.array(
    fc.oneof({ weight: 6, arbitrary: fc.constantFrom<Step>(...STEPS) }, fc.constantFrom<Step>(...WISHES)),
    { minLength: 20, maxLength: 150 },
  );
  fc.assert(
    fc.property(
      history,
      fc.integer({ min: 8, max: 60 }),
      fc.integer({ min: 0, max: 2 }),
      fc.constantFrom<Side>("foreman", "worker"),
      (steps, maxSequence, queueLimit, greeting) => {
        const foreman = new End("foreman", greeting, maxSequence, queueLimit);
        const worker = new End("worker", greeting, maxSequence, queueLimit);
        foreman.other = worker;
        worker.other = foreman;
        let ids = 0;
        foreman.carryOut(foreman.talk.start());
        worker.carryOut(worker.talk.start());
        const take = (step: Step): boolean => {
          if (step === "arrive at foreman") return foreman.arrive();
          if (step === "arrive at worker") return worker.arrive();
          if (step === "foreman answers") return foreman.answer();
          if (step === "worker answers") return worker.answer();
          if (step === "foreman asks") foreman.ask(++ids);
          else if (step === "worker asks") worker.ask(++ids);
          else if (step === "foreman resets") foreman.carryOut(foreman.talk.reset());
          else worker.carryOut(worker.talk.reset());
          return true;
        };
        for (const step of steps) {
          take(step);
          for (const end of [foreman, worker]) end.expectFreshStart(greeting);
        }
        // Everything arrives in the end and every program answers: then nothing may be left.
        let patience = 10_000;
        while (STEPS.some(take)) if (--patience < 0) throw new Error("they go on for ever");
        for (const end of [foreman, worker]) {
          expect(sorted(end.done)).toEqual(sorted(end.wanted));
          expect(sorted(end.other?.given ?? [])).toEqual(sorted(end.wanted));
          expect(end.talk.unanswered).toEqual([]);
          expect(end.talk.idle).toBe(true);
          end.expectFreshStart(greeting);
        }
        expect(foreman.restarts).toBe(worker.restarts);
        restarts += foreman.restarts;
        overflows += foreman.overflows + worker.overflows;
      },
    ),
    { numRuns: scaled(3_000) },
  );
  expect(restarts).toBeGreaterThan(scaled(150));
  expect(overflows).toBeGreaterThan(scaled(30));
});
