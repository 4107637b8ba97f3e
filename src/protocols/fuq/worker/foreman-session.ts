/**
 * One connection of a worker to a foreman of fuq v2, without its socket: it runs the tasks of JOB and sends UPDATEs. ProtocolStateMachine
 * knows who may send when; its states are in protocol-states.ts.
 *
 * A foreman by the text and the original one want different answers to CANCEL, and the original closes on an ERROR where the text has
 * one. So who is on the other side decides: on a raw stream the text, on a WebSocket the original.
 *
 * The original foreman reads nothing while it waits for the OK to its STOP, and hangs for ever where an UPDATE has crossed that. It sends
 * STOP again after each UPDATE. So from the first STOP on, UPDATEs are sent one at a time, a moment after its last message; and where one
 * has crossed a STOP and gets no reply, a new connection is made.
 */

import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { Timers } from "../../../base/timers.js";
import { decodeMessage, encodeMessage, joinCounts } from "../codec.js";
import {
  COUNT_LIMIT,
  errorName,
  type Numbered,
  RETRY_MS,
  type Reply,
  type Request,
  refusal,
  STOP_AT_ONCE,
  type Task,
  type TaskPair,
  type Update,
} from "../messages.js";
import { type Effect, ProtocolStateMachine } from "../protocol-state-machine.js";
import type { ForemanTasks } from "./foreman-tasks.js";
import type { ProtocolSession, ProtocolSessionEvents } from "./transport.js";

interface ForemanSessionOptions {
  readonly tasks: ForemanTasks;
  readonly log: Log;
  /** The foreman has done something that it should not have done. */
  readonly onPeerError: (why: string) => void;
  readonly foremanKind: "text" | "original";
  /** Whether the original stops this worker, or is asked to: one flag for all connections of a worker, one after the other. */
  readonly stopFlag?: { stopping: boolean };
  readonly maxSequence: number | undefined;
  readonly events: ProtocolSessionEvents;
}

/** How often an UPDATE that is refused is sent, and how long after. */
const MAX_UPDATE_ATTEMPTS = 4;
const UPDATE_RETRY_MS = 500;
/** Longer than the original takes from an UPDATE to the STOP that follows it. */
const UPDATE_DELAY_MS = 200;
/** How long an UPDATE that has crossed a STOP may be without an answer. */
const CROSSED_STOP_TIMEOUT_MS = 5_000;

interface WorkerRequestTag {
  readonly update: Update | undefined;
  attempts: number;
}

export class ForemanSession implements ProtocolSession {
  readonly #options: ForemanSessionOptions;
  readonly #protocol: ProtocolStateMachine<WorkerRequestTag>;
  readonly #sentUpdates = new Set<Update>();
  readonly #timers = new Timers();
  readonly #effects: Effect<WorkerRequestTag>[] = [];
  #busy = false;
  #joined = false;
  #exit: "in order" | "at once" | undefined;
  #closed = false;
  #updateTimer: NodeJS.Timeout | undefined;
  #crossedStopTimer: NodeJS.Timeout | undefined;

  constructor(options: ForemanSessionOptions) {
    const { foremanKind, maxSequence } = options;
    this.#options = options;
    this.#protocol = new ProtocolStateMachine<WorkerRequestTag>({
      side: "worker",
      greeting: foremanKind === "text" ? "foreman" : "worker",
      original: foremanKind === "original",
      maxSequence,
    });
  }

  start(): void {
    this.#runEffects(this.#protocol.start());
  }

  onMessage(bytes: Buffer): void {
    if (this.#closed) return;
    try {
      const message = decodeMessage(bytes);
      if (message.type === "STOP") this.#onStopSeen();
      this.#runEffects(this.#protocol.receive(message));
    } catch (cause) {
      this.#options.events.onBroken(asLaboroError(cause).message);
    }
  }

  sendUpdates(): void {
    if (!this.#joined || this.#closed) return;
    const unsent = this.#options.tasks.updates.filter((update) => !this.#sentUpdates.has(update));
    if (this.#options.stopFlag?.stopping) this.#scheduleUpdate(unsent);
    else for (const update of unsent) this.#sendUpdate(update);
  }

  #scheduleUpdate([first]: readonly Update[]): void {
    clearTimeout(this.#updateTimer);
    if (first === undefined || this.#protocol.unanswered.length > 0) return;
    this.#updateTimer = setTimeout(() => this.#sendUpdate(first), UPDATE_DELAY_MS);
  }

  #sendUpdate(update: Update): void {
    this.#sentUpdates.add(update);
    this.#request({ type: "UPDATE", update }, { update, attempts: 1 });
  }

  #onStopSeen(): void {
    const { stopFlag, events } = this.#options;
    if (stopFlag === undefined) return;
    stopFlag.stopping = true;
    if (this.#protocol.unanswered.length === 0) return;
    clearTimeout(this.#crossedStopTimer);
    this.#crossedStopTimer = setTimeout(
      () => events.onBroken("it has not answered since it said STOP"),
      CROSSED_STOP_TIMEOUT_MS,
    );
  }

  finishIfDone(): void {
    if (!this.#options.tasks.finished || !this.#joined) return;
    this.#exit ??= "in order";
    this.#runEffects([]);
  }

  close(): void {
    this.#closed = true;
    this.#timers.clear();
    clearTimeout(this.#updateTimer);
    clearTimeout(this.#crossedStopTimer);
  }

  #request(request: Request, tag: WorkerRequestTag): void {
    this.#runEffects(this.#protocol.request(request, tag));
  }

  /** Runs the effects in order, also those that follow from them. */
  #runEffects(effects: readonly Effect<WorkerRequestTag>[]): void {
    this.#effects.push(...effects);
    if (this.#busy) return;
    this.#busy = true;
    for (let next = this.#effects.shift(); next !== undefined; next = this.#effects.shift()) {
      if (!this.#closed) this.#runEffect(next);
    }
    this.#busy = false;
    // Only now have all messages been sent.
    if (this.#exit === undefined || this.#closed) return;
    this.#protocol.exit(this.#exit === "at once");
    this.#options.events.onFinished();
  }

  #runEffect(effect: Effect<WorkerRequestTag>): void {
    switch (effect.kind) {
      case "send":
        this.#options.events.send(encodeMessage(effect.message));
        break;
      case "begin":
        this.#sayHello();
        break;
      case "request":
        this.#onRequest(effect.request);
        break;
      case "reply":
        this.#onReply(effect.tag, effect.reply);
        break;
      case "overflow":
        this.#timers.after(RETRY_MS, () => this.#runEffects(this.#protocol.retry()));
        break;
      case "restarted":
        this.#joined = false;
        break;
      case "violation":
        this.#options.onPeerError(effect.why);
        break;
      case "broken":
        this.#options.events.onBroken(effect.why);
        break;
    }
  }

  #sayHello(): void {
    const { nproc: numProcs, running } = this.#options.tasks;
    this.#request({ type: "HELLO", hello: { numProcs, running } }, { update: undefined, attempts: 1 });
  }

  // Replies of the foreman

  #onReply(tag: WorkerRequestTag, reply: Numbered<Reply>): void {
    if (tag.update !== undefined) this.#onUpdateReply(tag.update, tag, reply);
    else if (reply.type === "ERROR")
      this.#options.events.onBroken(`HELLO was answered with ERROR(${errorName(reply.code)})`);
    else this.#join();
  }

  #join(): void {
    this.#joined = true;
    this.#options.events.onJoined();
    this.sendUpdates();
    this.finishIfDone();
  }

  #onUpdateReply(update: Update, tag: WorkerRequestTag, reply: Numbered<Reply>): void {
    const { tasks, log } = this.#options;
    if (reply.type === "OK") {
      if (reply.nproc === COUNT_LIMIT && reply.nrun === COUNT_LIMIT) {
        // It has no HELLO of this worker. A second one on this connection would end the original.
        this.#options.events.onBroken("the foreman asks for HELLO");
        return;
      }
      tasks.acknowledged(update);
      this.sendUpdates();
      this.finishIfDone();
    } else if (tag.attempts < MAX_UPDATE_ATTEMPTS) {
      const attempts = tag.attempts + 1;
      this.#timers.after(UPDATE_RETRY_MS, () => this.#request({ type: "UPDATE", update }, { update, attempts }));
    } else {
      const { jobId, task } = update;
      log.error({ job: jobId, task }, `the foreman refuses the result with ERROR(${errorName(reply.code)}): given up`);
      tasks.acknowledged(update);
      this.finishIfDone();
    }
  }

  // Requests of the foreman

  #onRequest(request: Numbered<Request>): void {
    switch (request.type) {
      case "JOB":
        this.#reply(request, this.#onJob(request.tasks));
        break;
      case "CANCEL":
        this.#reply(request, this.#onCancel(request.pairs));
        break;
      case "STOP":
        this.#onStop(request);
        break;
      default:
        this.#reply(request, refusal("bad_message"));
    }
  }

  #reply({ seq }: Numbered<Request>, reply: Reply): void {
    this.#runEffects(this.#protocol.answer(seq, reply));
  }

  #onJob(given: readonly Task[]): Reply {
    const { tasks } = this.#options;
    // The text compares with >, which would leave the last slot unused for ever.
    return tasks.start(given) ? this.#counts() : refusal("no_procs", joinCounts(tasks.nproc, tasks.nrun));
  }

  /** By the text a cancelled task has no UPDATE, and the OK has the counts without it. */
  #onCancel(pairs: readonly TaskPair[]): Reply {
    const { tasks, foremanKind } = this.#options;
    const original = foremanKind === "original";
    const count = pairs.reduce((sum, pair) => sum + tasks.cancel(pair, !original), 0);
    if (original) return { type: "OK", nproc: count, nrun: 0 };
    return count === 0 ? refusal("no_such_job") : this.#counts();
  }

  #onStop(request: Numbered<Extract<Request, { type: "STOP" }>>): void {
    clearTimeout(this.#crossedStopTimer);
    this.#options.tasks.stop(request.count);
    this.#reply(request, this.#counts());
    if (request.count === STOP_AT_ONCE) this.#exit = "at once";
    else {
      this.sendUpdates();
      this.finishIfDone();
    }
  }

  #counts(): Reply {
    const { nproc, nrun } = this.#options.tasks;
    return { type: "OK", nproc, nrun };
  }
}
