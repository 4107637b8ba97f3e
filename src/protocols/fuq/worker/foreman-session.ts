/**
 * The worker side of a fuq v2 connection, without its socket: it runs the tasks of JOB and sends UPDATEs. The states
 * are those of ProtocolStateMachine, which decides which side may send.
 *
 * A foreman that follows the specification and the original foreman expect different replies to CANCEL, and the
 * original closes the connection at an ERROR that the specification requires. On a raw stream the foreman is expected
 * to follow the specification, on a WebSocket to be the original.
 *
 * The original reads nothing while it waits for the OK to its STOP, and hangs if an UPDATE has crossed the STOP. It
 * sends STOP again after each UPDATE. So after the first STOP, UPDATEs are sent one at a time, a moment after the
 * foreman's last message. If an UPDATE crosses a STOP and gets no reply, the worker reconnects.
 */
import { Timers } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
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
import type { ProtocolSession, ProtocolSessionEvents } from "./persistent-transport.js";
import type { RunningTasks } from "./running-tasks.js";

interface ForemanSessionOptions {
  readonly tasks: RunningTasks;
  readonly log: Log;
  readonly onPeerError: (why: string) => void;
  readonly foremanKind: "text" | "original";
  /** Whether the original foreman stops this worker, or was asked to. Shared by successive connections. */
  readonly stopFlag?: { stopping: boolean };
  readonly maxSequence: number | undefined;
  readonly events: ProtocolSessionEvents;
}

/** How often a refused UPDATE is sent, and how long after the refusal. */
const MAX_UPDATE_ATTEMPTS = 4;
const UPDATE_RETRY_MS = 500;
/** Longer than the original takes from an UPDATE to the STOP that follows it. */
const UPDATE_DELAY_MS = 200;
/** How long to wait for the reply to an UPDATE that has crossed a STOP. */
const CROSSED_STOP_TIMEOUT_MS = 5_000;

/** What a request of the worker was about. Undefined: HELLO. */
interface WorkerRequestTag {
  readonly update: Update | undefined;
  readonly attempts: number;
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
      () => events.onBroken("it has not answered an UPDATE since its STOP"),
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
    const { events, onPeerError } = this.#options;
    const { kind } = effect;
    if (kind === "send") events.send(encodeMessage(effect.message));
    else if (kind === "begin") this.#sayHello();
    else if (kind === "request") this.#onRequest(effect.request);
    else if (kind === "reply") this.#onReply(effect.tag, effect.reply);
    else if (kind === "overflow") this.#timers.after(RETRY_MS, () => this.#runEffects(this.#protocol.retry()));
    else if (kind === "restarted") this.#joined = false;
    else if (kind === "violation") onPeerError(effect.why);
    else events.onBroken(effect.why);
  }

  #sayHello(): void {
    const { nproc: numProcs, running } = this.#options.tasks;
    this.#request({ type: "HELLO", hello: { numProcs, running } }, { update: undefined, attempts: 1 });
  }

  // Replies of the foreman

  #onReply(tag: WorkerRequestTag, reply: Numbered<Reply>): void {
    const { events } = this.#options;
    if (tag.update !== undefined) this.#onUpdateReply(tag.update, tag.attempts, reply);
    else if (reply.type === "ERROR") events.onBroken(`HELLO was answered with ERROR(${errorName(reply.code)})`);
    else {
      this.#joined = true;
      events.onJoined();
      this.sendUpdates();
      this.finishIfDone();
    }
  }

  #onUpdateReply(update: Update, attempts: number, reply: Numbered<Reply>): void {
    const { tasks, log, events } = this.#options;
    if (reply.type === "ERROR" && attempts < MAX_UPDATE_ATTEMPTS) {
      const tag = { update, attempts: attempts + 1 };
      this.#timers.after(UPDATE_RETRY_MS, () => this.#request({ type: "UPDATE", update }, tag));
    } else if (reply.type === "OK" && reply.nproc === COUNT_LIMIT && reply.nrun === COUNT_LIMIT) {
      // A second HELLO on this connection would end the original.
      events.onBroken("the foreman asks for HELLO");
    } else {
      const { jobId, task } = update;
      const why = reply.type === "ERROR" ? errorName(reply.code) : undefined;
      if (why !== undefined)
        log.error({ job: jobId, task }, `the foreman refuses the result with ERROR(${why}), the result is dropped`);
      tasks.acknowledged(update);
      if (reply.type === "OK") this.sendUpdates();
      this.finishIfDone();
    }
  }

  // Requests of the foreman

  #onRequest(request: Numbered<Request>): void {
    if (request.type === "JOB") this.#reply(request, this.#onJob(request.tasks));
    else if (request.type === "CANCEL") this.#reply(request, this.#onCancel(request.pairs));
    else if (request.type === "STOP") this.#onStop(request);
    else this.#reply(request, refusal("bad_message"));
  }

  #reply({ seq }: Numbered<Request>, reply: Reply): void {
    this.#runEffects(this.#protocol.answer(seq, reply));
  }

  #onJob(given: readonly Task[]): Reply {
    const { tasks } = this.#options;
    // The specification compares with >, which would never use the last slot.
    return tasks.start(given) ? this.#counts() : refusal("no_procs", joinCounts(tasks.nproc, tasks.nrun));
  }

  /** By the specification a cancelled task has no UPDATE, and the OK has the counts without it. */
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
