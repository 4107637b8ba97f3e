/**
 * A worker of fuq v2, at the broker: the foreman's end of one connection. Whose turn it is the conversation knows (its states are in
 * conversation-states.ts), what the worker has the desk; here is what is said.
 *
 *   greeting   nothing but HELLO counts; an UPDATE is recorded where the worker is known, and answered with the wish for a HELLO. An
 *              original that comes back says neither while it has nothing to tell: it is asked for its numbers, which do as well
 *   joined     one JOB, CANCEL or STOP at a time; UPDATEs are recorded, then answered
 *   stopping   STOP was obeyed: the connection ends when the worker has nothing left
 *   closed     the broker knows; what comes late is dropped
 */

import { asLaboroError } from "../../../base/errors.js";
import type { WorkerPort } from "../../../broker/core.js";
import type { TasksOf } from "../../../dispatch/index.js";
import type { Job } from "../../../model/job.js";
import { splitCounts } from "../codec.js";
import { Conversation, type Effect } from "../conversation.js";
import {
  COUNTS_WANTED,
  ERRORS,
  errorName,
  type Hello,
  type Message,
  type Numbered,
  type Ok,
  type Reply,
  type Request,
  SEND_HELLO,
  STOP_AT_ONCE,
  type Unreadable,
  type Update,
} from "../messages.js";
import type { HeldTask } from "./held-tasks.js";
import type { ForemanOptions, ForemanParts } from "./parts.js";
import { Silence } from "./silence.js";
import { recordEarly } from "./task-ends.js";
import { WorkerDesk } from "./worker-desk.js";

const SETTLE_MS = 5_000;
const MISSING_MS = 2_000;
/** After so long without a reply that would let it go on, what was refused is tried again. */
const AGAIN_MS = 1_000;

/** What a request of ours was about. */
type Wish =
  | { readonly kind: "job"; readonly held: HeldTask }
  | { readonly kind: "cancel"; readonly held: readonly HeldTask[] }
  | { readonly kind: "stop"; readonly count: number }
  | { readonly kind: "counts" }
  | { readonly kind: "sign of life" };

export class ForemanSession implements WorkerPort {
  readonly #parts: ForemanParts;
  readonly #talk: Conversation<Wish>;
  readonly #desk: WorkerDesk;
  readonly #settleMs: number;
  readonly #missingMs: number;
  readonly #silence: Silence;
  readonly #effects: Effect<Wish>[] = [];
  #carrying = false;
  #state: "greeting" | "joined" | "stopping" | "closed" = "greeting";
  #toStop: number | undefined;
  readonly #timers = new Set<NodeJS.Timeout>();
  #overflowed = false;
  #joining: Promise<void> = Promise.resolve();
  /** UPDATEs that are on their way to the disk. */
  readonly #owed = new Set<number>();
  /** Why it is closed as soon as those have their OK. */
  #goodbye: string | undefined;

  constructor(parts: ForemanParts, { settleMs = SETTLE_MS, missingMs = MISSING_MS, ...options }: ForemanOptions) {
    this.#parts = parts;
    this.#settleMs = settleMs;
    this.#missingMs = missingMs;
    this.#silence = new Silence({
      ...options,
      joined: () => this.joined,
      ask: () => this.#carryOut(this.#talk.request(COUNTS_WANTED, { kind: "counts" })),
    });
    this.#talk = new Conversation({ side: "foreman", ...options });
    this.#desk = new WorkerDesk({ core: parts.core, port: this, wake: () => this.#carryOut([]), missingMs });
  }

  start(): void {
    this.#carryOut(this.#talk.start());
    this.#silence.begin();
  }

  /** The worker has said who it is. */
  get joined(): boolean {
    return this.#desk.joined;
  }

  onMessage(message: Message | Unreadable): void {
    if (this.#state === "closed") return;
    if (!this.joined) this.#silence.begin();
    this.#carryOut(this.#talk.receive(message));
  }

  /** The connection is gone. */
  onClose(): void {
    this.#end();
    this.#desk.gone();
  }

  #end(): void {
    this.#state = "closed";
    this.#talk.exit();
    for (const timer of this.#timers) clearTimeout(timer);
    this.#silence.end();
    this.#desk.close();
  }

  /** In the order in which the conversation wants them, whatever comes of each; then what waits for its turn. */
  #carryOut(effects: readonly Effect<Wish>[]): void {
    this.#effects.push(...effects);
    if (this.#carrying) return;
    this.#carrying = true;
    do {
      for (let next = this.#effects.shift(); next !== undefined; next = this.#effects.shift()) {
        if (this.#state !== "closed") this.#carryOutOne(next);
      }
    } while (this.#speak());
    this.#carrying = false;
    this.#watchOverflow();
  }

  #carryOutOne(effect: Effect<Wish>): void {
    switch (effect.kind) {
      case "send":
        this.#parts.transport.send(effect.message);
        return;
      case "asked":
        this.#asked(effect.request).catch((cause: unknown) => this.#fail(cause));
        return;
      case "answered":
        this.#answered(effect.tag, effect.reply);
        return;
      case "odd":
        this.#parts.complain(effect.why);
        return;
      case "broken":
        this.#parts.complain(effect.why);
        this.#parts.transport.close(1002, effect.why);
        return;
      // After a RESET the worker says HELLO by itself.
      case "begin":
      case "restarted":
        return;
    }
  }

  /** One request, if there is something to ask for and it may be asked: what is to end before what is to begin. */
  #speak(): boolean {
    if (this.#state === "closed" || this.#silence.helloWanted || !this.#talk.idle) return false;
    const gone = this.#desk.takeCancels();
    if (gone.length > 0)
      return this.#ask({ type: "CANCEL", pairs: this.#desk.pairsOf(gone) }, { kind: "cancel", held: gone });
    if (this.#toStop !== undefined) {
      const count = this.#toStop;
      this.#toStop = undefined;
      return this.#ask({ type: "STOP", count }, { kind: "stop", count });
    }
    // One task a message: the original may take some of several and then refuse them all.
    const held = this.#desk.nextJob();
    if (held?.described === undefined) return false;
    return this.#ask({ type: "JOB", tasks: [held.described] }, { kind: "job", held });
  }

  #ask(request: Request, wish: Wish): true {
    this.#effects.push(...this.#talk.request(request, wish));
    return true;
  }

  #answer(seq: number, reply: Reply): void {
    this.#carryOut(this.#talk.answer(seq, reply));
  }

  // What the worker says

  async #asked(request: Numbered<Request>): Promise<void> {
    await this.#joining;
    if (request.type === "HELLO") await this.#onHello(request.seq, request.hello);
    else if (request.type === "UPDATE") await this.#onUpdate(request.seq, request.update);
  }

  async #onHello(seq: number, hello: Hello | undefined): Promise<void> {
    const stopping = !this.#desk.joined && (await this.#join(hello));
    if (this.#isClosed) return;
    this.#desk.reconcile(hello);
    this.#silence.helloCame();
    if (stopping) this.stop();
    // The original ends unless it hears its own numbers.
    const told = hello === undefined ? this.#desk.counts : { nproc: hello.numProcs, nrun: hello.running?.length ?? 0 };
    this.#answer(seq, { type: "OK", ...told });
  }

  /** Whether it was asked to stop before it came. */
  async #join(hello: Hello | undefined): Promise<boolean> {
    const { identify, named, profile } = this.#parts;
    const { stopping, ...who } = identify(hello);
    named(who.name);
    await this.#desk.join({ ...profile, ...who });
    if (!this.#isClosed) this.#state = "joined";
    return stopping;
  }

  async #onUpdate(seq: number, update: Update): Promise<void> {
    if (this.#desk.joined) {
      this.#silence.heard();
      this.#owed.add(seq);
      this.#desk.updated(update, () => this.#acknowledge(seq));
      return;
    }
    // The original sends what waited before it says HELLO, and does not send it again.
    const { core, known } = this.#parts;
    if (known !== undefined) await recordEarly(core, known, update);
    if (!this.#isClosed) this.#wantHello(seq);
  }

  #wantHello(seq: number): void {
    this.#silence.wantHello();
    this.#answer(seq, SEND_HELLO);
  }

  #acknowledge(seq: number): void {
    this.#owed.delete(seq);
    if (this.#isClosed) {
      this.#acknowledgeLate(seq);
      return;
    }
    if (this.#silence.unsure && this.#state === "joined") {
      this.#wantHello(seq);
      return;
    }
    const { counts } = this.#desk;
    this.#answer(seq, { type: "OK", ...counts });
    if (this.#state === "stopping" && counts.nrun === 0) this.#parts.transport.close(1000, "closing");
  }

  #acknowledgeLate(seq: number): void {
    if (this.#goodbye === undefined) return;
    for (const effect of this.#talk.answer(seq, { type: "OK", nproc: 0, nrun: 0 })) {
      if (effect.kind === "send") this.#parts.transport.send(effect.message);
    }
    if (this.#owed.size === 0) this.#parts.transport.close(1001, this.#goodbye);
  }

  // What the worker says to what it was asked

  #answered(wish: Wish, reply: Numbered<Reply>): void {
    if (wish.kind === "job") this.#onJobReply(wish.held, reply);
    else if (wish.kind === "stop") this.#onStopReply(wish.count, reply);
    else if (wish.kind === "counts") this.#onCounts(reply);
    else if (wish.kind === "sign of life") this.#silence.end();
    else {
      // Slots are not taken from this reply: the original counts in it what it has cancelled.
      for (const held of wish.held) this.#desk.settle(held, reply.type === "OK" ? this.#settleMs : this.#missingMs);
    }
  }

  #onJobReply(held: HeldTask, reply: Numbered<Reply>): void {
    const { room } = this.#desk;
    if (reply.type === "OK") {
      if (room.guessed) room.slots = reply.nproc + reply.nrun;
      room.accepted(reply.nproc);
      this.#desk.started(held);
    } else {
      this.#parts.log.info(
        { job: held.jobId, task: held.task },
        `the worker refused it: ERROR(${errorName(reply.code)})`,
      );
      const told = reply.code === ERRORS.no_procs ? splitCounts(reply.arg0) : this.#desk.counts;
      this.#desk.refused(held, told.nproc);
    }
  }

  #onCounts(reply: Numbered<Reply>): void {
    if (reply.type === "ERROR") this.#parts.transport.close(1008, "it has not said HELLO");
    else this.#joining = this.#joinByCounts(reply).catch((cause: unknown) => this.#fail(cause));
  }

  async #joinByCounts(counts: Ok): Promise<void> {
    // A HELLO that came meanwhile says more.
    if (this.joined && !this.#silence.unsure) return;
    const stopping = !this.joined && (await this.#join(undefined));
    if (this.#isClosed) return;
    if (counts.nrun > 0) this.#askForLife();
    this.#silence.unsure = !this.#desk.count(counts);
    if (stopping) this.stop();
  }

  /**
   * The original waits for ever for an OK to its UPDATE that was lost with its connection, and tells of nothing more. Below the number of
   * that UPDATE it answers what it is asked, above it does not.
   */
  #askForLife(): void {
    this.#carryOut(this.#talk.requestFromAbove(COUNTS_WANTED, { kind: "sign of life" }));
    this.#silence.awaitLife(() => {
      const { complain, hangs, transport } = this.#parts;
      complain("it waits for an answer that was lost with its connection, and must be started anew");
      hangs?.();
      this.#desk.giveUp();
      transport.close(1008, "it waits for an answer that was lost");
    });
  }

  #onStopReply(count: number, reply: Numbered<Reply>): void {
    if (reply.type === "ERROR") {
      this.#later(AGAIN_MS, () => this.stopSlots(count));
      return;
    }
    const { room } = this.#desk;
    const all = count === STOP_AT_ONCE || count === 0;
    room.slots = all ? 0 : Math.max(0, room.slots - count);
    this.#desk.offer();
    if (room.slots > 0) return;
    this.#state = "stopping";
    // It goes by itself; if it does not, this is the end of it.
    if (count === STOP_AT_ONCE || this.#desk.counts.nrun === 0) {
      this.#later(this.#missingMs, () => this.#parts.transport.close(1000, "closing"));
    }
  }

  // What the broker wants

  tasks(job: Job, tasks: TasksOf): void {
    this.#desk.take(job, tasks);
  }

  retract(tasks: readonly TasksOf[]): void {
    this.#desk.retract(tasks);
  }

  cancel(tasks: readonly TasksOf[]): void {
    this.#desk.cancel(tasks);
  }

  /** It is given nothing new; that is all that fuq has for it. */
  drain(): void {
    this.#desk.drain();
  }

  stop(): void {
    this.#desk.leave();
    const { guessed, slots } = this.#desk.room;
    // By number, because 0 is all of them by the text and one for the original; a worker that has named none goes by the text.
    this.stopSlots(guessed ? 0 : slots);
  }

  /** So many slots end as soon as they are free, or all at once. */
  stopSlots(count: number): void {
    if (this.#isClosed || this.#state === "stopping") return;
    if (count === STOP_AT_ONCE) this.#carryOut(this.#talk.request({ type: "STOP", count }, { kind: "stop", count }));
    else {
      this.#toStop = count;
      this.#carryOut([]);
    }
  }

  /** The original waits for ever for an OK that is lost with its connection, so what it has told gets its OK first. */
  close(reason: string): void {
    this.#end();
    this.#goodbye = reason;
    if (this.#owed.size === 0) this.#parts.transport.close(1001, reason);
  }

  // It offers no services, so nobody calls it.
  call(): void {}
  uncall(): void {}

  get #isClosed(): boolean {
    return this.#state === "closed";
  }

  #watchOverflow(): void {
    if (!this.#talk.overflowed || this.#overflowed) return;
    this.#overflowed = true;
    this.#later(AGAIN_MS, () => {
      this.#overflowed = false;
      this.#carryOut(this.#talk.retry());
    });
  }

  #later(ms: number, what: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      what();
    }, ms);
    this.#timers.add(timer);
  }

  #fail(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    this.#parts.complain(`${code}: ${message}`);
    this.#parts.transport.close(1011, code);
  }
}
