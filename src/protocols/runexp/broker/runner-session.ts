/**
 * One connection of a runner to the broker: the states are in server-state-machine.ts, the runner as dispatch sees it is in runner-port.ts.
 * Here are the socket, the timers, and the results.
 */
import type { Socket } from "node:net";
import { now } from "../../../base/clock.js";
import { endSocket } from "../../../base/connection-guard.js";
import { asLaboroError, type ErrorCode } from "../../../base/errors.js";
import type { TracedConnection } from "../../../base/traced-connections.js";
import type { TcpPeer } from "../../../broker/listeners/tcp.js";
import { QUIET_MS } from "../message-reader.js";
import { displayName, fieldsOf } from "../messages.js";
import type { SentTask } from "./experiments.js";
import { IncomingResult } from "./incoming-result.js";
import type { Manager, TaskHolder } from "./manager.js";
import { RunnerPort } from "./runner-port.js";
import { type AnnouncedResult, ServerStateMachine } from "./server-state-machine.js";
import { findTaskByName, markOf, type NamedTask } from "./task-packing.js";

export interface SessionLimits {
  /** Within an exchange, between two pieces. */
  readonly exchangeTimeoutMs: number;
  /** Bytes of one result. */
  readonly maxResultBytes: number;
}

export const SESSION_LIMITS: SessionLimits = {
  exchangeTimeoutMs: 30_000,
  maxResultBytes: 1024 * 1024 * 1024,
};

export class RunnerSession implements TcpPeer {
  readonly #manager: Manager;
  readonly #socket: Socket;
  readonly #address: string;
  readonly #limits: SessionLimits;
  readonly #traced: TracedConnection;
  readonly #states: ServerStateMachine;
  readonly #greeted: () => void;
  #quietTimer: NodeJS.Timeout | undefined;
  #port: RunnerPort | undefined;
  /** What LABORO has announced. */
  #announced: SentTask | undefined;
  #incoming: IncomingResult | undefined;
  /** A whole result that is being written to disk. */
  #recording: Promise<void> = Promise.resolve();
  #timeoutActive = false;

  constructor(manager: Manager, socket: Socket, address: string, greeted: () => void, limits: SessionLimits) {
    this.#manager = manager;
    this.#socket = socket;
    this.#address = address;
    this.#greeted = greeted;
    this.#limits = limits;
    this.#traced = manager.context.connections.open("runexp", address);
    this.#states = new ServerStateMachine(manager.group, {
      write: (bytes) => void socket.write(bytes),
      received: (message, bytes) =>
        this.#traced.received(() => ({ name: message.type, fields: fieldsOf(message), bytes })),
      sent: (message, bytes) => this.#traced.sent(() => ({ name: message.type, fields: fieldsOf(message), bytes })),
      joined: (host) => this.#joined(host),
      jobRequested: () => this.#port?.petoReceived(),
      scriptSent: () => {
        if (this.#announced !== undefined) this.#port?.scriptSent(this.#announced);
        this.#announced = undefined;
      },
      resultAnnounced: (result) => this.#result(result),
      output: (bytes) => this.#output(bytes),
      outputEnded: () => {
        this.#recording = this.#record();
      },
      runnerLeft: () => this.#left(),
      protocolError: (reason) => this.#drop("LABORO_BAD_MESSAGE", reason),
      startQuietTimer: () => this.#waitForQuiet(),
    });
    socket.on("data", (bytes) => this.#received(bytes));
    socket.on("timeout", () => this.#drop("LABORO_DEADLINE", `it fell silent in ${this.#states.state.name}`));
    socket.once("close", () => this.#closed());
  }

  /** The broker stops, or the listener does. */
  shutdown(): void {
    if (this.#port === undefined) this.#socket.end();
    else this.#port.close("the listener is closing");
  }

  #received(bytes: Buffer): void {
    clearTimeout(this.#quietTimer);
    this.#quietTimer = undefined;
    this.#states.push(bytes);
    this.#updateTimeout();
  }

  #waitForQuiet(): void {
    this.#quietTimer ??= setTimeout(() => {
      this.#quietTimer = undefined;
      this.#states.quietElapsed();
      this.#updateTimeout();
    }, QUIET_MS);
  }

  /** Silence counts only in the middle of an exchange: a job may run for days. */
  #updateTimeout(): void {
    const watched = this.#states.awaitsBytes;
    if (watched === this.#timeoutActive) return;
    this.#timeoutActive = watched;
    this.#socket.setTimeout(watched ? this.#limits.exchangeTimeoutMs : 0);
  }

  #joined(host: string): void {
    this.#greeted();
    this.#traced.setPeer(host);
    const port = new RunnerPort(this.#manager, host, this.#address, {
      sendJob: (name, kind, content) => {
        this.#announced = port.sent(name);
        this.#states.sendJob(name, kind, content);
        this.#updateTimeout();
      },
      noJob: (answer) => this.#states.noJob(answer),
      close: () => endSocket(this.#socket),
    });
    this.#port = port;
    port.join().catch((cause: unknown) => {
      const { code, message } = asLaboroError(cause);
      this.#drop(code, message);
    });
  }

  #result(result: AnnouncedResult): void {
    const { name } = result;
    const port = this.#port;
    if (port === undefined) return;
    const own = port.sent(name);
    if (own !== undefined) {
      this.#receive(port.id, own, result);
      return;
    }
    const { core, experiments } = this.#manager;
    const { assignment, task } = findTaskByName(name, experiments, (id) => core.job(id));
    if (!this.#manager.wasAssigned(port.host, assignment)) {
      this.#drop("LABORO_FORBIDDEN", `a result of ${JSON.stringify(displayName(name))}, which it was never assigned`);
      return;
    }
    this.#receiveLate(port, task, result);
  }

  /** The task was assigned to it once, over another connection. */
  #receiveLate(port: RunnerPort, named: NamedTask["task"], result: AnnouncedResult): void {
    const { core, secret, context } = this.#manager;
    const { name } = result;
    const holder: TaskHolder | undefined = named && this.#manager.findHolder(port.host, named.job, named.index, name);
    const attempt = holder?.attempt ?? (named && core.reclaim(port.id, named.job, named.index));
    if (named === undefined || attempt === undefined) {
      context.log.info({ worker: port.id, task: displayName(name) }, "a late result: the task is done or another's");
      this.#states.accept();
      return;
    }
    const mark = named.experiment ? {} : { mark: markOf(secret, named.job, named.index) };
    const task: SentTask = { ...named, name, attempt, started: now(), ...mark };
    if (holder === undefined) port.adopt(task);
    this.#receive(holder?.worker ?? port.id, task, result);
  }

  #receive(worker: RunnerPort["id"], task: SentTask, { status, size }: AnnouncedResult): void {
    const { core, experiments } = this.#manager;
    const file = task.experiment ? experiments?.openResult(task.name) : undefined;
    const setFlowing = (flowing: boolean): void => void (flowing ? this.#socket.resume() : this.#socket.pause());
    this.#incoming = new IncomingResult(core, worker, task, status, file, this.#refusal(task, size), setFlowing);
    this.#states.accept();
    this.#updateTimeout();
  }

  /** Why a result of this size is not kept. */
  #refusal({ name }: SentTask, size: number): string | undefined {
    const { maxResultBytes } = this.#limits;
    if (size <= maxResultBytes) return undefined;
    const text = `its result is not kept: it has ${size} bytes, ${maxResultBytes} are the most`;
    this.#manager.context.log.warn({ code: "LABORO_BODY_TOO_LARGE" }, `${displayName(name)} has failed: ${text}`);
    return text;
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
    // As early as possible: the runner's whole connection waits for it.
    const received = (): void => this.#states.recorded();
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
    port.resultAcknowledged();
    this.#updateTimeout();
    this.#manager.answerOpenPetos();
  }

  /** It is not the runner's fault. A laboro runner delivers it again. */
  #cannotKeep(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    this.#manager.context.log.error({ code }, `a result cannot be kept: ${message}`);
    this.#states.drop();
    this.#socket.destroy();
  }

  #left(): void {
    this.#port?.leave(true);
    endSocket(this.#socket);
  }

  #drop(code: ErrorCode, reason: string): void {
    const who = this.#port?.host ?? "somebody";
    this.#manager.context.peerErrors.report("runexp", this.#address, code, `${who} is disconnected: ${reason}`);
    this.#states.drop();
    this.#socket.destroy();
  }

  #closed(): void {
    clearTimeout(this.#quietTimer);
    this.#states.drop();
    this.#incoming?.abandon();
    this.#traced.close();
    // All of it came: it counts, although its runner gets no RICEVIS. Until it is recorded the task stays this runner's.
    void this.#recording.then(() => this.#port?.leave(false));
  }
}
