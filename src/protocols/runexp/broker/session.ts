/**
 * One connection of a runner to the broker: the states are in server-states.ts, what dispatch makes of the runner is in runner-port.ts. Here
 * are the socket, the clocks, and the results.
 */
import type { Socket } from "node:net";
import { now } from "../../../base/clock.js";
import type { Conversation } from "../../../base/conversations.js";
import { asLaboroError, type ErrorCode } from "../../../base/errors.js";
import type { TcpPeer } from "../../../broker/listeners/tcp.js";
import { fieldsOf, shownName } from "../messages.js";
import { QUIET_MS } from "../reader.js";
import type { SentTask } from "./experiments.js";
import { Incoming } from "./incoming.js";
import type { Holder, Manager } from "./manager.js";
import { RunnerPort } from "./runner-port.js";
import { type Result, ServerSide } from "./server-states.js";
import { markOf, taskNamed } from "./shipping.js";

export interface SessionLimits {
  /** From the connection to JES. */
  readonly hailMs: number;
  /** Within an exchange, between two pieces. */
  readonly silenceMs: number;
  /** Bytes of one result. */
  readonly largestResult: number;
}

export const SESSION_LIMITS: SessionLimits = {
  hailMs: 10_000,
  silenceMs: 30_000,
  largestResult: 1024 * 1024 * 1024,
};

export class Session implements TcpPeer {
  readonly #manager: Manager;
  readonly #socket: Socket;
  readonly #address: string;
  readonly #limits: SessionLimits;
  readonly #conversation: Conversation;
  readonly #side: ServerSide;
  readonly #hail: NodeJS.Timeout;
  #quiet: NodeJS.Timeout | undefined;
  #port: RunnerPort | undefined;
  /** What LABORO has announced. */
  #announced: SentTask | undefined;
  #incoming: Incoming | undefined;
  /** A result that is all here and on its way to the disk. */
  #recording: Promise<void> = Promise.resolve();
  #watched = false;

  constructor(manager: Manager, socket: Socket, address: string, limits: SessionLimits) {
    this.#manager = manager;
    this.#socket = socket;
    this.#address = address;
    this.#limits = limits;
    this.#conversation = manager.context.conversations.begin("runexp", address);
    this.#side = new ServerSide(manager.group, {
      write: (bytes) => void socket.write(bytes),
      heard: (message, bytes) =>
        this.#conversation.heard(() => ({ name: message.type, fields: fieldsOf(message), bytes })),
      said: (message, bytes) =>
        this.#conversation.said(() => ({ name: message.type, fields: fieldsOf(message), bytes })),
      joined: (host) => this.#joined(host),
      asked: () => this.#port?.asked(),
      handed: () => {
        if (this.#announced !== undefined) this.#port?.handed(this.#announced);
        this.#announced = undefined;
      },
      result: (result) => this.#result(result),
      returned: (name) => this.#port?.returned(name),
      output: (bytes) => this.#output(bytes),
      outputEnded: () => {
        this.#recording = this.#record();
      },
      left: () => this.#left(),
      wrong: (reason) => this.#drop("LABORO_BAD_MESSAGE", reason),
      wantsQuiet: () => this.#waitForQuiet(),
    });
    this.#hail = setTimeout(() => this.#drop("LABORO_DEADLINE", "it has not said who it is"), limits.hailMs);
    socket.on("data", (bytes) => this.#heard(bytes));
    socket.on("timeout", () => this.#drop("LABORO_DEADLINE", `it fell silent in ${this.#side.state.name}`));
    socket.once("close", () => this.#closed());
  }

  /** The broker stops, or the door does. */
  bye(): void {
    if (this.#port === undefined) this.#socket.end();
    else this.#port.close("the door is closing");
  }

  #heard(bytes: Buffer): void {
    clearTimeout(this.#quiet);
    this.#quiet = undefined;
    this.#side.push(bytes);
    this.#watch();
  }

  #waitForQuiet(): void {
    this.#quiet ??= setTimeout(() => {
      this.#quiet = undefined;
      this.#side.quiet();
      this.#watch();
    }, QUIET_MS);
  }

  /** Silence counts only in the middle of an exchange: a job may run for days. */
  #watch(): void {
    const watched = this.#side.expectsSoon;
    if (watched === this.#watched) return;
    this.#watched = watched;
    this.#socket.setTimeout(watched ? this.#limits.silenceMs : 0);
  }

  #joined(host: string): void {
    clearTimeout(this.#hail);
    this.#conversation.named(host);
    const port = new RunnerPort(this.#manager, host, this.#address, {
      hand: (name, kind, content) => {
        this.#announced = port.sent(name);
        this.#side.hand(name, kind, content);
        this.#watch();
      },
      hold: () => this.#side.hold(),
      ban: () => this.#side.ban(),
      finish: () => this.#side.finish(),
      close: () => void this.#socket.end(),
    });
    this.#port = port;
    port.join().catch((cause: unknown) => {
      const { code, message } = asLaboroError(cause);
      this.#drop(code, message);
    });
  }

  #result(result: Result): void {
    const { name, status, size } = result;
    const port = this.#port;
    const { largestResult } = this.#limits;
    if (port === undefined) return;
    if (size > largestResult) {
      this.#drop("LABORO_BODY_TOO_LARGE", `a result of ${size} bytes, ${largestResult} are the most`);
      return;
    }
    const own = port.sent(name);
    if (own !== undefined) {
      this.#receive(port.id, own, status);
      return;
    }
    const named = taskNamed(name, this.#manager.experiments);
    if (named === undefined || !this.#manager.wasHanded(port.host, named.job, named.index)) {
      this.#drop("LABORO_FORBIDDEN", `a result of ${JSON.stringify(shownName(name))}, which it was never handed`);
      return;
    }
    this.#late(port, name, named, status);
  }

  /** It was handed the task once, over another connection. */
  #late(
    port: RunnerPort,
    name: string,
    named: Pick<SentTask, "job" | "index" | "experiment">,
    status: Result["status"],
  ): void {
    const { core, secret, context } = this.#manager;
    const { job, index } = named;
    const holder: Holder | undefined = this.#manager.holderAt(port.host, job, index, name);
    const attempt = holder?.attempt ?? core.reclaim(port.id, job, index);
    if (attempt === undefined) {
      context.log.info({ worker: port.id, task: shownName(name) }, "a late result: the task is done or another's");
      this.#side.accept();
      return;
    }
    const mark = named.experiment ? {} : { mark: markOf(secret, job, index) };
    const task: SentTask = { ...named, name, attempt, started: now(), ...mark };
    if (holder === undefined) port.adopt(task);
    this.#receive(holder?.worker ?? port.id, task, status);
  }

  #receive(worker: RunnerPort["id"], task: SentTask, status: Result["status"]): void {
    const { core, experiments } = this.#manager;
    const file = task.experiment ? experiments?.openResult(task.name) : undefined;
    this.#incoming = new Incoming(core, worker, task, status, file, {
      flow: (flowing) => void (flowing ? this.#socket.resume() : this.#socket.pause()),
    });
    this.#side.accept();
    this.#watch();
    file?.prepare();
  }

  #output(bytes: Buffer): void {
    try {
      this.#incoming?.push(bytes);
    } catch (cause) {
      this.#cannotKeep(cause);
    }
  }

  /** All of the output is here. */
  async #record(): Promise<void> {
    const incoming = this.#incoming;
    const port = this.#port;
    this.#incoming = undefined;
    if (port === undefined) return;
    // Said as early as it is true: the runner's whole connection waits for it.
    const received = (): void => this.#side.recorded();
    if (incoming === undefined) {
      received();
    } else {
      const { name, experiment } = incoming.task;
      try {
        const counts = await incoming.record((done) => port.settle(name, done, incoming.worker), received);
        if (counts && experiment) this.#manager.experiments?.ended(port.host, name, incoming.status);
      } catch (cause) {
        incoming.abandon();
        this.#cannotKeep(cause);
        return;
      }
    }
    port.settled();
    this.#watch();
    this.#manager.lookAgain();
  }

  /** It is not the runner's fault. It comes again, if it is one of ours. */
  #cannotKeep(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    this.#manager.context.log.error({ code }, `a result cannot be kept: ${message}`);
    this.#side.drop();
    this.#socket.destroy();
  }

  #left(): void {
    this.#port?.leave(true);
    this.#socket.end();
  }

  #drop(code: ErrorCode, reason: string): void {
    const who = this.#port?.host ?? "somebody";
    this.#manager.context.complaints.about("runexp", this.#address, code, `${who} is sent away: ${reason}`);
    this.#side.drop();
    this.#socket.destroy();
  }

  #closed(): void {
    clearTimeout(this.#hail);
    clearTimeout(this.#quiet);
    this.#side.drop();
    this.#incoming?.abandon();
    this.#conversation.end();
    // All of it came: it counts, although its runner will not hear so. Until then the task is not another's.
    void this.#recording.then(() => this.#port?.leave(false));
  }
}
