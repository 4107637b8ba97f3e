/**
 * The broker's session of a fuq v2 worker. ProtocolStateMachine decides which side may send, ForemanTasks tracks the
 * tasks of the worker. This class sends and handles the messages.
 *
 *   greeting   waits for HELLO. An UPDATE of a known worker is recorded, and answered with a request for HELLO
 *   joined     after HELLO or counts: one JOB, CANCEL or STOP at a time; UPDATEs are recorded, then answered
 *   stopping   the worker has accepted STOP: the connection ends when the worker has no task left
 *   closed     after a disconnect or `close`: late messages are dropped
 *
 * An original worker that reconnects sends HELLO only if the reply to an UPDATE requests it; older ones never do. So a
 * worker that is silent in `greeting`, or has fewer tasks than it should have, is requested its counts: much later than
 * a HELLO would come, because the original hangs if it is asked between its HELLO and the OK.
 */
import { Timers } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
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
import { type Effect, ProtocolStateMachine, type ProtocolStateMachineOptions } from "../protocol-state-machine.js";
import {
  absentOwnerOf,
  assignedPair,
  ForemanTasks,
  type FuqTask,
  profileOf,
  recordBeforeJoin,
  type WorkerConnection,
} from "./foreman-tasks.js";

export interface FuqSessionOptions extends Omit<ProtocolStateMachineOptions, "side"> {
  readonly original: boolean;
  /** How long an original worker may be silent before it is requested its counts. */
  readonly silenceMs?: number;
  /** How long a worker may owe an answer until it counts as hung. */
  readonly answerMs?: number;
  readonly retryMs?: number;
  /** How long to wait for the UPDATE of a task that the worker no longer lists. */
  readonly missingMs?: number;
}

const TIMEOUTS = { silenceMs: 5_000, answerMs: 5_000, missingMs: 2_000, retryMs: RETRY_MS };
/** A worker that does not answer a probe is disconnected, and exits: it gets this many times `silenceMs`. */
const PROBE_FACTOR = 6;
/** How long to wait for the UPDATE of a cancelled task. */
const SETTLE_MS = 5_000;

/** What a request of the foreman was about. */
type ForemanRequestTag =
  | { readonly kind: "job"; readonly held: FuqTask }
  | { readonly kind: "cancel"; readonly held: readonly FuqTask[] }
  | { readonly kind: "stop"; readonly count: number }
  | { readonly kind: "counts" }
  | { readonly kind: "probe" };

export class FuqWorkerSession implements WorkerPort {
  readonly #connection: WorkerConnection;
  readonly #protocol: ProtocolStateMachine<ForemanRequestTag>;
  readonly #assigned: ForemanTasks;
  readonly #options: typeof TIMEOUTS & FuqSessionOptions;
  readonly #effects: Effect<ForemanRequestTag>[] = [];
  #busy = false;
  #state: "greeting" | "joined" | "stopping" | "closed" = "greeting";
  #slotsToStop: number | undefined;
  readonly #timers = new Timers();
  #silenceTimer: NodeJS.Timeout | undefined;
  /** A HELLO was requested: nothing is sent until it has come, or the time for it is over. */
  #awaitingHello = false;
  /** The worker has fewer tasks than it should have, and has not listed them. */
  #tasksUnknown = false;
  #joining: Promise<void> = Promise.resolve();
  /** UPDATEs whose result is not on disk yet. */
  readonly #unacknowledgedUpdates = new Set<number>();
  /** Set while the connection waits for their OKs before it closes. */
  #closeReason: string | undefined;

  constructor(connection: WorkerConnection, options: FuqSessionOptions) {
    this.#connection = connection;
    this.#options = { ...TIMEOUTS, ...options };
    this.#protocol = new ProtocolStateMachine({ side: "foreman", ...options });
    this.#assigned = new ForemanTasks(connection.core, this, this.#options.missingMs, () => this.#runEffects([]));
  }

  start(): void {
    this.#runEffects(this.#protocol.start());
    this.#watchSilence();
  }

  get joined(): boolean {
    return this.#assigned.joined;
  }

  onMessage(message: Message | Unreadable): void {
    if (this.#isClosed) return;
    if (!this.joined) this.#watchSilence();
    this.#runEffects(this.#protocol.receive(message));
  }

  onClose(): void {
    this.#end();
    this.#assigned.disconnected();
  }

  #end(): void {
    this.#state = "closed";
    this.#protocol.exit();
    this.#timers.clear();
    clearTimeout(this.#silenceTimer);
    this.#assigned.close();
  }

  get #isClosed(): boolean {
    return this.#state === "closed";
  }

  #fail(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    this.#connection.onPeerError(`${code}: ${message}`);
    this.#connection.close(1011, code);
  }

  /** Runs the effects in order, also those that follow from them; then sends the requests that wait. */
  #runEffects(effects: readonly Effect<ForemanRequestTag>[]): void {
    this.#effects.push(...effects);
    if (this.#busy) return;
    this.#busy = true;
    do {
      for (let next = this.#effects.shift(); next !== undefined; next = this.#effects.shift()) {
        if (!this.#isClosed) this.#runEffect(next);
      }
    } while (this.#sendNextRequest());
    this.#busy = false;
    if (this.#protocol.idle) this.#assigned.answered();
    else if (!this.#isClosed) this.#assigned.awaitAnswer(this.#options.answerMs);
  }

  #runEffect(effect: Effect<ForemanRequestTag>): void {
    const { kind } = effect;
    if (kind === "reply" || kind === "overflow") this.#assigned.answered();
    if (kind === "send") this.#connection.send(effect.message);
    else if (kind === "request") this.#onRequest(effect.request).catch((cause: unknown) => this.#fail(cause));
    else if (kind === "reply") this.#onReply(effect.tag, effect.reply);
    else if (kind === "overflow")
      this.#timers.after(this.#options.retryMs, () => this.#runEffects(this.#protocol.retry()));
    else if (kind === "violation" || kind === "broken") this.#connection.onPeerError(effect.why);
    if (kind === "broken") this.#connection.close(1002, effect.why);
  }

  /** Sends one request if there is one and it may be sent: CANCEL before STOP before JOB. */
  #sendNextRequest(): boolean {
    if (this.#isClosed || this.#awaitingHello || !this.#protocol.idle) return false;
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
    // One task per message: the original may start some of several and then refuse them all.
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

  #watchSilence(): void {
    clearTimeout(this.#silenceTimer);
    if (!this.#options.original) return;
    this.#silenceTimer = setTimeout(() => {
      if (this.joined && !this.#tasksUnknown && !this.#awaitingHello) return;
      this.#awaitingHello = false;
      this.#runEffects(this.#protocol.request(COUNTS_WANTED, { kind: "counts" }));
    }, this.#options.silenceMs);
  }

  // Requests of the worker

  async #onRequest(request: Numbered<Request>): Promise<void> {
    await this.#joining;
    if (request.type === "HELLO") await this.#onHello(request.seq, request.hello);
    else if (request.type === "UPDATE") await this.#onUpdate(request.seq, request.update);
  }

  async #onHello(seq: number, hello: Hello | undefined): Promise<void> {
    const stopRequested = await this.#join(hello);
    if (this.#isClosed) return;
    this.#assigned.reconcileHello(hello);
    this.#awaitingHello = false;
    this.#tasksUnknown = false;
    clearTimeout(this.#silenceTimer);
    if (stopRequested) this.stop();
    // The original exits unless the OK has its own counts.
    const own = hello?.numProcs === undefined ? undefined : { nproc: hello.numProcs, nrun: hello.running?.length ?? 0 };
    this.#answer(seq, { type: "OK", ...(own ?? this.#assigned.counts) });
  }

  /** Once per connection. Returns true if the worker was to be stopped while it was disconnected. */
  async #join(hello: Hello | undefined): Promise<boolean> {
    if (this.joined) return false;
    const stopRequested = this.#connection.node?.stopping === true;
    const profile = profileOf(this.#connection, hello);
    this.#connection.onNamed(profile.name);
    await this.#assigned.join(profile);
    if (!this.#isClosed) this.#state = "joined";
    return stopRequested;
  }

  async #onUpdate(seq: number, update: Update): Promise<void> {
    const { core, id, node } = this.#connection;
    if (this.joined) {
      // A HELLO that was requested is still expected.
      if (!this.#awaitingHello) clearTimeout(this.#silenceTimer);
      this.#unacknowledgedUpdates.add(seq);
      const owner = node === undefined ? absentOwnerOf(core, id, [update]) : undefined;
      if (owner === undefined) this.#assigned.updated(update, () => this.#acknowledge(seq));
      else await recordBeforeJoin(core, owner, update).then(() => this.#acknowledge(seq));
      return;
    }
    // The original sends the UPDATEs that waited before its HELLO, and does not repeat them.
    if (node !== undefined) await recordBeforeJoin(core, node.id, update);
    if (!this.#isClosed) this.#requestHello(seq);
  }

  #requestHello(seq: number): void {
    this.#awaitingHello = true;
    this.#watchSilence();
    this.#answer(seq, SEND_HELLO);
  }

  #acknowledge(seq: number): void {
    this.#unacknowledgedUpdates.delete(seq);
    if (this.#isClosed) this.#acknowledgeLate(seq);
    else if (this.#tasksUnknown && this.#state === "joined") this.#requestHello(seq);
    else {
      const { counts } = this.#assigned;
      this.#answer(seq, { type: "OK", ...counts });
      if (this.#state === "stopping" && counts.nrun === 0) this.#connection.close(1000, "closing");
    }
  }

  #acknowledgeLate(seq: number): void {
    if (this.#closeReason === undefined) return;
    for (const effect of this.#protocol.answer(seq, { type: "OK", nproc: 0, nrun: 0 })) {
      if (effect.kind === "send") this.#connection.send(effect.message);
    }
    if (this.#unacknowledgedUpdates.size === 0) this.#connection.close(1001, this.#closeReason);
  }

  // Replies of the worker

  #onReply(tag: ForemanRequestTag, reply: Numbered<Reply>): void {
    if (tag.kind === "job") this.#onJobReply(tag.held, reply);
    else if (tag.kind === "stop") this.#onStopReply(tag.count, reply);
    else if (tag.kind === "counts") this.#onCounts(reply);
    else if (tag.kind === "probe") clearTimeout(this.#silenceTimer);
    else for (const held of tag.held) this.#onCancelReply(held, reply);
  }

  /** The slots in this reply are ignored: the original still counts the cancelled task, whose UPDATE follows. */
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
      return;
    }
    const { job, task } = held;
    const why = `the worker refused the task with ERROR(${errorName(reply.code)}): it returns to the queue`;
    this.#connection.log.info({ job, task }, why);
    const { nproc } = reply.code === ERRORS.no_procs ? splitCounts(reply.arg0) : this.#assigned.counts;
    this.#assigned.refused(held, nproc);
  }

  #onCounts(reply: Numbered<Reply>): void {
    if (reply.type === "ERROR") this.#connection.close(1008, "it has not said HELLO");
    else this.#joining = this.#joinByCounts(reply).catch((cause: unknown) => this.#fail(cause));
  }

  async #joinByCounts(counts: Ok): Promise<void> {
    // A HELLO that arrived meanwhile is more precise.
    if (this.joined && !this.#tasksUnknown) return;
    const stopRequested = await this.#join(undefined);
    if (this.#isClosed) return;
    if (counts.nrun > 0) this.#probe();
    this.#tasksUnknown = !this.#assigned.reconcileCounts(counts);
    if (stopRequested) this.stop();
  }

  /**
   * An original worker whose OK to an UPDATE was lost with the connection waits for it forever. It answers requests
   * with numbers below that of the UPDATE, and none above. Any request of the worker shows that it is not in this
   * state.
   */
  #probe(): void {
    this.#runEffects(this.#protocol.request(COUNTS_WANTED, { kind: "probe" }, true));
    clearTimeout(this.#silenceTimer);
    this.#silenceTimer = setTimeout(() => {
      const { node } = this.#connection;
      this.#connection.onPeerError("it waits for an answer that was lost with its connection, and must be restarted");
      if (node !== undefined) node.stuck = true;
      this.#assigned.giveBackAll();
      this.#connection.close(1008, "it waits for an answer that was lost");
    }, PROBE_FACTOR * this.#options.silenceMs);
  }

  #onStopReply(count: number, reply: Numbered<Reply>): void {
    if (reply.type === "ERROR") {
      const repeat = (): void => (count === STOP_AT_ONCE ? this.stopSlots("now") : this.#sendStop(count));
      this.#timers.after(this.#options.retryMs, repeat);
      return;
    }
    const { capacity } = this.#assigned;
    capacity.slots = count === 0 ? 0 : Math.max(0, capacity.slots - count);
    this.#assigned.publishSlots();
    if (capacity.slots > 0) return;
    this.#state = "stopping";
    // The worker disconnects by itself. If it does not, the broker does.
    if (count === STOP_AT_ONCE || this.#assigned.counts.nrun === 0) {
      this.#timers.after(this.#options.missingMs, () => this.#connection.close(1000, "closing"));
    }
  }

  // Calls of the core

  readonly assign = (job: Job, tasks: AttemptRange): void => this.#assigned.assign(job, tasks);
  readonly retract = (tasks: readonly AttemptRange[]): void => this.#assigned.retract(tasks);
  readonly cancel = (tasks: readonly AttemptRange[]): void => this.#assigned.cancel(tasks);
  readonly drain = (): void => this.#assigned.drain();

  stop(): void {
    this.#assigned.markLeaving();
    const { guessed, slots } = this.#assigned.capacity;
    // STOP by number: 0 means all slots in the specification and one slot in the original. A worker that has reported
    // no slots follows the specification.
    this.#sendStop(guessed ? 0 : slots);
  }

  stopSlots(slots: number | "now"): void {
    if (slots === "now") {
      this.#assigned.markLeaving(true);
      const count = STOP_AT_ONCE;
      this.#runEffects(this.#protocol.request({ type: "STOP", count }, { kind: "stop", count }));
      this.#timers.after(this.#options.answerMs, () => this.#connection.close(1000, "closing"));
    } else if (slots >= this.#assigned.capacity.slots) this.stop();
    else this.#sendStop((this.#slotsToStop ?? 0) + slots);
  }

  #sendStop(count: number): void {
    if (this.#state === "stopping") return;
    this.#slotsToStop = count;
    this.#runEffects([]);
  }

  /** UPDATEs get their OK first, because the original waits forever for one that is lost with its connection. */
  close(reason: string): void {
    this.#end();
    this.#closeReason = reason;
    if (this.#unacknowledgedUpdates.size === 0) this.#connection.close(1001, reason);
  }

  // It offers no services.
  call(): void {}
  cancelCall(): void {}
}
