/**
 * A worker of fuq v2, at the broker: the foreman's end of one connection. ProtocolStateMachine knows whose turn it is (its states are
 * in protocol-states.ts), ForemanTasks knows what the worker has. This class sends and handles the messages.
 *
 *   greeting   nothing but HELLO counts; an UPDATE is recorded where the worker is known, and answered with the wish for a HELLO. An
 *              original that reconnects sends neither while it has nothing to report: it is asked for its counts instead
 *   joined     one JOB, CANCEL or STOP at a time; UPDATEs are recorded, then answered
 *   stopping   STOP was obeyed: the connection ends when the worker has nothing left
 *   closed     the broker has been informed; late messages are dropped
 */

import { asLaboroError } from "../../../base/errors.js";
import { Timers } from "../../../base/timers.js";
import type { WorkerPort } from "../../../broker/core.js";
import type { AttemptRange } from "../../../dispatch/index.js";
import type { Job } from "../../../model/job.js";
import { splitCounts } from "../codec.js";
import {
  COUNTS_WANTED,
  ERRORS,
  errorName,
  type Hello,
  type Message,
  type Numbered,
  type Ok,
  RETRY_MS,
  type Reply,
  type Request,
  SEND_HELLO,
  STOP_AT_ONCE,
  type Unreadable,
  type Update,
} from "../messages.js";
import { type Effect, ProtocolStateMachine } from "../protocol-state-machine.js";
import { assignedPair, ForemanTasks, type FuqTask } from "./foreman-tasks.js";
import { FUQ_WORKER, recordBeforeJoin } from "./fuq-task.js";
import type { FuqSessionContext, FuqSessionOptions } from "./session-context.js";
import { SilenceTimer } from "./silence-timer.js";

const TIMEOUTS = { missingMs: 2_000, retryMs: RETRY_MS };
/** How long the UPDATE of a cancelled task is waited for. */
const SETTLE_MS = 5_000;

/** What a request of the foreman was about. */
type ForemanRequestTag =
  | { readonly kind: "job"; readonly held: FuqTask }
  | { readonly kind: "cancel"; readonly held: readonly FuqTask[] }
  | { readonly kind: "stop"; readonly count: number }
  | { readonly kind: "counts" }
  | { readonly kind: "probe" };

export class FuqWorkerSession implements WorkerPort {
  readonly #context: FuqSessionContext;
  readonly #protocol: ProtocolStateMachine<ForemanRequestTag>;
  readonly #assigned: ForemanTasks;
  readonly #options: typeof TIMEOUTS & FuqSessionOptions;
  readonly #silenceTimer: SilenceTimer;
  readonly #effects: Effect<ForemanRequestTag>[] = [];
  #busy = false;
  #state: "greeting" | "joined" | "stopping" | "closed" = "greeting";
  #slotsToStop: number | undefined;
  readonly #timers = new Timers();
  #joining: Promise<void> = Promise.resolve();
  /** UPDATEs whose result is not on disk yet. */
  readonly #unacknowledgedUpdates = new Set<number>();
  /** Set while the connection waits for their OKs before it closes. */
  #closeReason: string | undefined;

  constructor(context: FuqSessionContext, options: FuqSessionOptions) {
    this.#context = context;
    this.#options = { ...TIMEOUTS, ...options };
    this.#silenceTimer = new SilenceTimer({
      ...options,
      joined: () => this.joined,
      onSilent: () => this.#runEffects(this.#protocol.request(COUNTS_WANTED, { kind: "counts" })),
    });
    this.#protocol = new ProtocolStateMachine({ side: "foreman", ...options });
    this.#assigned = new ForemanTasks({
      core: context.core,
      port: this,
      onPending: () => this.#runEffects([]),
      missingMs: this.#options.missingMs,
    });
  }

  start(): void {
    this.#runEffects(this.#protocol.start());
    this.#silenceTimer.start();
  }

  /** The worker has identified itself. */
  get joined(): boolean {
    return this.#assigned.joined;
  }

  onMessage(message: Message | Unreadable): void {
    if (this.#state === "closed") return;
    if (!this.joined) this.#silenceTimer.start();
    this.#runEffects(this.#protocol.receive(message));
  }

  /** The connection is gone. */
  onClose(): void {
    this.#end();
    this.#assigned.disconnected();
  }

  #end(): void {
    this.#state = "closed";
    this.#protocol.exit();
    this.#timers.clear();
    this.#silenceTimer.stop();
    this.#assigned.close();
  }

  /** Runs the effects in order, also those that follow from them; then sends the requests that wait. */
  #runEffects(effects: readonly Effect<ForemanRequestTag>[]): void {
    this.#effects.push(...effects);
    if (this.#busy) return;
    this.#busy = true;
    do {
      for (let next = this.#effects.shift(); next !== undefined; next = this.#effects.shift()) {
        if (this.#state !== "closed") this.#runEffect(next);
      }
    } while (this.#sendNextRequest());
    this.#busy = false;
  }

  #runEffect(effect: Effect<ForemanRequestTag>): void {
    switch (effect.kind) {
      case "send":
        this.#context.connection.send(effect.message);
        return;
      case "request":
        this.#onRequest(effect.request).catch((cause: unknown) => this.#fail(cause));
        return;
      case "reply":
        this.#onReply(effect.tag, effect.reply);
        return;
      case "violation":
        this.#context.onPeerError(effect.why);
        return;
      case "broken":
        this.#context.onPeerError(effect.why);
        this.#context.connection.close(1002, effect.why);
        return;
      case "overflow":
        this.#timers.after(this.#options.retryMs, () => this.#runEffects(this.#protocol.retry()));
        return;
      // After a RESET the worker says HELLO by itself.
      case "begin":
      case "restarted":
        return;
    }
  }

  /** One request, if there is something to ask for and it may be asked: what is to end before what is to begin. */
  #sendNextRequest(): boolean {
    if (this.#state === "closed" || this.#silenceTimer.awaitingHello || !this.#protocol.idle) return false;
    // By the text one at a time; the original takes a list.
    const single = !this.#options.original;
    const gone = this.#assigned.takeCancels(single ? 1 : undefined);
    if (gone.length > 0) {
      const pairs = single ? gone.map(assignedPair) : this.#assigned.cancelPairs(gone);
      return this.#queueRequest({ type: "CANCEL", pairs, single }, { kind: "cancel", held: gone });
    }
    if (this.#slotsToStop !== undefined) {
      const count = this.#slotsToStop;
      this.#slotsToStop = undefined;
      return this.#queueRequest({ type: "STOP", count }, { kind: "stop", count });
    }
    // One task a message: the original may take some of several and then refuse them all.
    const held = this.#assigned.nextUnsent();
    if (held?.description === undefined) return false;
    return this.#queueRequest({ type: "JOB", tasks: [held.description] }, { kind: "job", held });
  }

  #queueRequest(request: Request, tag: ForemanRequestTag): true {
    this.#effects.push(...this.#protocol.request(request, tag));
    return true;
  }

  #answer(seq: number, reply: Reply): void {
    this.#runEffects(this.#protocol.answer(seq, reply));
  }

  // Requests of the worker

  async #onRequest(request: Numbered<Request>): Promise<void> {
    await this.#joining;
    if (request.type === "HELLO") await this.#onHello(request.seq, request.hello);
    else if (request.type === "UPDATE") await this.#onUpdate(request.seq, request.update);
  }

  async #onHello(seq: number, hello: Hello | undefined): Promise<void> {
    const stopping = !this.#assigned.joined && (await this.#join(hello));
    if (this.#isClosed) return;
    this.#assigned.reconcileHello(hello);
    this.#silenceTimer.helloReceived();
    if (stopping) this.stop();
    // The original exits unless the OK has its own counts.
    const counts =
      hello?.numProcs === undefined
        ? this.#assigned.counts
        : { nproc: hello.numProcs, nrun: hello.running?.length ?? 0 };
    this.#answer(seq, { type: "OK", ...counts });
  }

  /** Whether it was asked to stop before it came. */
  async #join(hello: Hello | undefined): Promise<boolean> {
    const { identify, onNamed, profile } = this.#context;
    const { stopping, ...who } = identify(hello);
    onNamed(who.name);
    await this.#assigned.join({ ...profile, ...who, ...FUQ_WORKER });
    if (!this.#isClosed) this.#state = "joined";
    return stopping;
  }

  async #onUpdate(seq: number, update: Update): Promise<void> {
    const { core, knownWorker, absentOwnerOf } = this.#context;
    if (this.#assigned.joined) {
      this.#silenceTimer.messageReceived();
      this.#unacknowledgedUpdates.add(seq);
      const owner = absentOwnerOf?.(update);
      if (owner === undefined) this.#assigned.updated(update, () => this.#acknowledge(seq));
      else await recordBeforeJoin(core, owner, update).then(() => this.#acknowledge(seq));
      return;
    }
    // The original sends what waited before it says HELLO, and does not send it again.
    if (knownWorker !== undefined) await recordBeforeJoin(core, knownWorker, update);
    if (!this.#isClosed) this.#requestHello(seq);
  }

  #requestHello(seq: number): void {
    this.#silenceTimer.expectHello();
    this.#answer(seq, SEND_HELLO);
  }

  #acknowledge(seq: number): void {
    this.#unacknowledgedUpdates.delete(seq);
    if (this.#isClosed) {
      this.#acknowledgeLate(seq);
      return;
    }
    if (this.#silenceTimer.tasksUnknown && this.#state === "joined") {
      this.#requestHello(seq);
      return;
    }
    const { counts } = this.#assigned;
    this.#answer(seq, { type: "OK", ...counts });
    if (this.#state === "stopping" && counts.nrun === 0) this.#context.connection.close(1000, "closing");
  }

  #acknowledgeLate(seq: number): void {
    if (this.#closeReason === undefined) return;
    for (const effect of this.#protocol.answer(seq, { type: "OK", nproc: 0, nrun: 0 })) {
      if (effect.kind === "send") this.#context.connection.send(effect.message);
    }
    if (this.#unacknowledgedUpdates.size === 0) this.#context.connection.close(1001, this.#closeReason);
  }

  // Replies of the worker

  #onReply(tag: ForemanRequestTag, reply: Numbered<Reply>): void {
    if (tag.kind === "job") this.#onJobReply(tag.held, reply);
    else if (tag.kind === "stop") this.#onStopReply(tag.count, reply);
    else if (tag.kind === "counts") this.#onCounts(reply);
    else if (tag.kind === "probe") this.#silenceTimer.stop();
    else for (const held of tag.held) this.#onCancelReply(held, reply);
  }

  /** Slots are not taken from this reply: the original counts in it what it has cancelled, and its UPDATE follows. */
  #onCancelReply(held: FuqTask, reply: Numbered<Reply>): void {
    if (reply.type === "ERROR") this.#assigned.settleAfter(held, this.#options.missingMs);
    else if (this.#options.original) this.#assigned.settleAfter(held, SETTLE_MS);
    else this.#assigned.settle(held, true);
  }

  #onJobReply(held: FuqTask, reply: Numbered<Reply>): void {
    const { capacity } = this.#assigned;
    if (reply.type === "OK") {
      if (capacity.guessed) capacity.slots = reply.nproc + reply.nrun;
      capacity.accepted(reply.nproc);
      this.#assigned.started(held);
      this.#assigned.publishSlots();
    } else {
      this.#context.log.info(
        { job: held.job, task: held.task },
        `the worker refused it: ERROR(${errorName(reply.code)})`,
      );
      const counts = reply.code === ERRORS.no_procs ? splitCounts(reply.arg0) : this.#assigned.counts;
      this.#assigned.refused(held, counts.nproc);
    }
  }

  #onCounts(reply: Numbered<Reply>): void {
    if (reply.type === "ERROR") this.#context.connection.close(1008, "it has not said HELLO");
    else this.#joining = this.#joinByCounts(reply).catch((cause: unknown) => this.#fail(cause));
  }

  async #joinByCounts(counts: Ok): Promise<void> {
    // A HELLO that came meanwhile says more.
    if (this.joined && !this.#silenceTimer.tasksUnknown) return;
    const stopping = !this.joined && (await this.#join(undefined));
    if (this.#isClosed) return;
    if (counts.nrun > 0) this.#probe();
    this.#silenceTimer.tasksUnknown = !this.#assigned.reconcileCounts(counts);
    if (stopping) this.stop();
  }

  /**
   * The original waits for ever for an OK to its UPDATE that was lost with its connection, and sends no further UPDATE. It answers
   * requests with numbers below that of the UPDATE, and none above.
   */
  #probe(): void {
    this.#runEffects(this.#protocol.requestWithSkippedNumbers(COUNTS_WANTED, { kind: "probe" }));
    this.#silenceTimer.awaitProbe(() => {
      const { onPeerError, onStuck, connection } = this.#context;
      onPeerError("it waits for an answer that was lost with its connection, and must be restarted");
      onStuck?.();
      this.#assigned.giveBackAll();
      connection.close(1008, "it waits for an answer that was lost");
    });
  }

  #onStopReply(count: number, reply: Numbered<Reply>): void {
    if (reply.type === "ERROR") {
      this.#timers.after(this.#options.retryMs, () =>
        count === STOP_AT_ONCE ? this.stopSlots("now") : this.#sendStop(count),
      );
      return;
    }
    const { capacity } = this.#assigned;
    const all = count === STOP_AT_ONCE || count === 0;
    capacity.slots = all ? 0 : Math.max(0, capacity.slots - count);
    this.#assigned.publishSlots();
    if (capacity.slots > 0) return;
    this.#state = "stopping";
    // It goes by itself; if it does not, this is the end of it.
    if (count === STOP_AT_ONCE || this.#assigned.counts.nrun === 0) {
      this.#timers.after(this.#options.missingMs, () => this.#context.connection.close(1000, "closing"));
    }
  }

  // Calls of the core

  readonly assign = (job: Job, tasks: AttemptRange): void => this.#assigned.assign(job, tasks);
  readonly retract = (tasks: readonly AttemptRange[]): void => this.#assigned.retract(tasks);
  readonly cancel = (tasks: readonly AttemptRange[]): void => this.#assigned.cancel(tasks);
  /** It gets nothing new; fuq has no message for it. */
  readonly drain = (): void => this.#assigned.drain();

  stop(): void {
    this.#assigned.markLeaving();
    const { guessed, slots } = this.#assigned.capacity;
    // By number, because 0 is all of them by the text and one for the original; a worker that has named none goes by the text.
    this.#sendStop(guessed ? 0 : slots);
  }

  stopSlots(slots: number | "now"): void {
    if (slots === "now") {
      this.#assigned.markLeaving(true);
      const stop = { type: "STOP", count: STOP_AT_ONCE } as const;
      this.#runEffects(this.#protocol.request(stop, { kind: "stop", count: STOP_AT_ONCE }));
    } else if (slots >= this.#assigned.capacity.slots) this.stop();
    else this.#sendStop((this.#slotsToStop ?? 0) + slots);
  }

  #sendStop(count: number): void {
    if (this.#state === "stopping") return;
    this.#slotsToStop = count;
    this.#runEffects([]);
  }

  /** The original waits for ever for an OK that is lost with its connection, so its UPDATEs get their OK first. */
  close(reason: string): void {
    this.#end();
    this.#closeReason = reason;
    if (this.#unacknowledgedUpdates.size === 0) this.#context.connection.close(1001, reason);
  }

  // It offers no services.
  call(): void {}
  cancelCall(): void {}

  get #isClosed(): boolean {
    return this.#state === "closed";
  }

  #fail(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    this.#context.onPeerError(`${code}: ${message}`);
    this.#context.connection.close(1011, code);
  }
}
