/**
 * One connection of a worker to a foreman of fuq v2, without its socket: what is asked is done, what has ended is told. The rules of who
 * may speak when are the conversation's; its states are in conversation-states.ts.
 *
 * A foreman by the text and the original one want different answers to CANCEL, and the original closes on an ERROR where the text has
 * one. So who is on the other side decides: on a raw stream the text, on a WebSocket the original.
 *
 * The original foreman hears nothing while it waits for the OK to its STOP, and hangs for ever where an UPDATE has crossed that. It says
 * STOP again after each UPDATE. So from the first sign of an end UPDATEs go out one at a time, a moment after its last word; and where one
 * has crossed a STOP and stays without an answer, a new connection is made.
 */

import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { decodeMessage, encodeMessage, joinCounts } from "../codec.js";
import { Conversation, type Effect } from "../conversation.js";
import {
  COUNT_LIMIT,
  errorName,
  type Numbered,
  type Reply,
  type Request,
  refusal,
  STOP_AT_ONCE,
  type Task,
  type TaskPair,
  type Update,
} from "../messages.js";
import type { Tasks } from "./tasks.js";
import type { Speaker, SpeakerEvents } from "./way.js";

export type Peer = "text" | "original";

/** Whether the foreman stops this worker, or is asked to. */
export interface Ending {
  begun: boolean;
}

export interface ShiftParts {
  readonly tasks: Tasks;
  readonly log: Log;
  /** The foreman has done something that it should not have done. */
  readonly complain: (why: string) => void;
  readonly peer: Peer;
  /** For all connections of a worker, one after the other; absent where the foreman is not the original. */
  readonly ending?: Ending;
  /** The greatest sequence number; tests set one that they can reach. */
  readonly maxSequence?: number;
  readonly events: SpeakerEvents;
}

/** How often an UPDATE is told that is refused, and how long after. */
const TELLINGS = 4;
const TELL_AGAIN_MS = 500;
/** Longer than the original takes from an UPDATE to the STOP that follows it. */
const MOMENT_MS = 200;
/** How long an UPDATE that has crossed a STOP may be without an answer. */
const CROSSED_MS = 5_000;

interface Telling {
  readonly update: Update | undefined;
  count: number;
}

export class Shift implements Speaker {
  readonly #parts: ShiftParts;
  readonly #conversation: Conversation<Telling>;
  readonly #told = new Set<Update>();
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #effects: Effect<Telling>[] = [];
  #busy = false;
  #joined = false;
  #over: "in order" | "at once" | undefined;
  #closed = false;
  #moment: NodeJS.Timeout | undefined;
  #crossed: NodeJS.Timeout | undefined;

  constructor(parts: ShiftParts) {
    const { peer, maxSequence } = parts;
    this.#parts = parts;
    this.#conversation = new Conversation<Telling>({
      side: "worker",
      greeting: peer === "text" ? "foreman" : "worker",
      original: peer === "original",
      ...(maxSequence === undefined ? {} : { maxSequence }),
    });
  }

  begin(): void {
    this.#carryOut(this.#conversation.start());
  }

  received(bytes: Buffer): void {
    if (this.#closed) return;
    try {
      const message = decodeMessage(bytes);
      if (message.type === "STOP") this.#seeStop();
      this.#carryOut(this.#conversation.receive(message));
    } catch (cause) {
      this.#parts.events.onBroken(asLaboroError(cause).message);
    }
  }

  tell(): void {
    if (!this.#joined || this.#closed) return;
    const untold = this.#parts.tasks.updates.filter((update) => !this.#told.has(update));
    if (this.#parts.ending?.begun) this.#tellLater(untold);
    else for (const update of untold) this.#tell(update);
  }

  #tellLater([first]: readonly Update[]): void {
    clearTimeout(this.#moment);
    if (first === undefined || this.#conversation.unanswered.length > 0) return;
    this.#moment = setTimeout(() => this.#tell(first), MOMENT_MS);
  }

  #tell(update: Update): void {
    this.#told.add(update);
    this.#ask({ type: "UPDATE", update }, { update, count: 1 });
  }

  #seeStop(): void {
    const { ending, events } = this.#parts;
    if (ending === undefined) return;
    ending.begun = true;
    if (this.#conversation.unanswered.length === 0) return;
    clearTimeout(this.#crossed);
    this.#crossed = setTimeout(() => events.onBroken("it has not answered since it said STOP"), CROSSED_MS);
  }

  lookWhetherOver(): void {
    if (!this.#parts.tasks.over || !this.#joined) return;
    this.#over ??= "in order";
    this.#carryOut([]);
  }

  close(): void {
    this.#closed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    clearTimeout(this.#moment);
    clearTimeout(this.#crossed);
  }

  #ask(request: Request, telling: Telling): void {
    this.#carryOut(this.#conversation.request(request, telling));
  }

  /** In the order in which the conversation wants them, whatever comes of each. */
  #carryOut(effects: readonly Effect<Telling>[]): void {
    this.#effects.push(...effects);
    if (this.#busy) return;
    this.#busy = true;
    for (let next = this.#effects.shift(); next !== undefined; next = this.#effects.shift()) {
      if (!this.#closed) this.#carryOutOne(next);
    }
    this.#busy = false;
    // Only now has all been said that was to be said.
    if (this.#over === undefined || this.#closed) return;
    this.#conversation.exit(this.#over === "at once");
    this.#parts.events.onOver();
  }

  #carryOutOne(effect: Effect<Telling>): void {
    switch (effect.kind) {
      case "send":
        this.#parts.events.send(encodeMessage(effect.message));
        break;
      case "begin":
        this.#sayHello();
        break;
      case "asked":
        this.#answer(effect.request);
        break;
      case "answered":
        this.#answered(effect.tag, effect.reply);
        break;
      case "restarted":
        this.#joined = false;
        break;
      case "odd":
        this.#parts.complain(effect.why);
        break;
      case "broken":
        this.#parts.events.onBroken(effect.why);
        break;
    }
  }

  #sayHello(): void {
    const { nproc: numProcs, held: running } = this.#parts.tasks;
    this.#ask({ type: "HELLO", hello: { numProcs, running } }, { update: undefined, count: 1 });
  }

  // What the foreman says to what it was told

  #answered(telling: Telling, reply: Numbered<Reply>): void {
    if (telling.update !== undefined) this.#updated(telling.update, telling, reply);
    else if (reply.type === "ERROR")
      this.#parts.events.onBroken(`HELLO was answered with ERROR(${errorName(reply.code)})`);
    else this.#join();
  }

  #join(): void {
    this.#joined = true;
    this.#parts.events.onJoined();
    this.tell();
    this.lookWhetherOver();
  }

  #updated(update: Update, telling: Telling, reply: Numbered<Reply>): void {
    const { tasks, log } = this.#parts;
    if (reply.type === "OK") {
      if (reply.nproc === COUNT_LIMIT && reply.nrun === COUNT_LIMIT) {
        // It has not heard our HELLO. A second one on this connection would end the original.
        this.#parts.events.onBroken("the foreman asks for HELLO");
        return;
      }
      tasks.acknowledged(update);
      this.tell();
      this.lookWhetherOver();
    } else if (telling.count < TELLINGS) {
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        this.#ask({ type: "UPDATE", update }, { update, count: telling.count + 1 });
      }, TELL_AGAIN_MS);
      this.#timers.add(timer);
    } else {
      const { jobId, task } = update;
      log.error({ job: jobId, task }, `the foreman refuses the result with ERROR(${errorName(reply.code)}): given up`);
      tasks.acknowledged(update);
      this.lookWhetherOver();
    }
  }

  // What the foreman asks for

  #answer(request: Numbered<Request>): void {
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
    this.#carryOut(this.#conversation.answer(seq, reply));
  }

  #onJob(given: readonly Task[]): Reply {
    const { tasks } = this.#parts;
    // The text compares with >, which would leave the last slot unused for ever.
    return tasks.start(given) ? this.#counts() : refusal("no_procs", joinCounts(tasks.nproc, tasks.nrun));
  }

  #onCancel(pairs: readonly TaskPair[]): Reply {
    const { tasks, peer } = this.#parts;
    const count = pairs.reduce((sum, pair) => sum + tasks.cancel(pair), 0);
    if (peer === "original") return { type: "OK", nproc: Math.min(count, COUNT_LIMIT), nrun: 0 };
    return count === 0 ? refusal("no_such_job") : this.#counts();
  }

  #onStop(request: Numbered<Extract<Request, { type: "STOP" }>>): void {
    clearTimeout(this.#crossed);
    this.#parts.tasks.stop(request.count);
    this.#reply(request, this.#counts());
    if (request.count === STOP_AT_ONCE) this.#over = "at once";
    else {
      this.tell();
      this.lookWhetherOver();
    }
  }

  #counts(): Reply {
    const { nproc, nrun } = this.#parts.tasks;
    return { type: "OK", nproc: Math.min(nproc, COUNT_LIMIT), nrun: Math.min(nrun, COUNT_LIMIT) };
  }
}
