/** One connection of a runner: socket, timers, results. States: server-state-machine.ts. Worker: runner-port.ts. */
import type { Socket } from "node:net";
import { now } from "../../../base/clock.js";
import { endSocket } from "../../../base/connection-guard.js";
import { asLaboroError, type ErrorCode } from "../../../base/errors.js";
import type { TracedConnection } from "../../../base/traced-connections.js";
import type { TcpPeer } from "../../../broker/listeners/listener.js";
import { displayName, fieldsOf, QUIET_MS, type RunexpMessage } from "../messages.js";
import { IncomingResult } from "./incoming-result.js";
import type { Manager, TaskHolder } from "./listener.js";
import { RunnerPort } from "./runner-port.js";
import { findTaskByName, markOf, type NamedTask, type SentTask } from "./runner-tasks.js";
import { type AnnouncedResult, ServerStateMachine } from "./server-state-machine.js";

export interface SessionLimits {
  /** Silence within an exchange. */
  readonly exchangeTimeoutMs: number;
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
  #incoming: IncomingResult | undefined;
  /** A complete result that is being stored. */
  #recording: Promise<void> = Promise.resolve();
  #timeoutActive = false;

  constructor(manager: Manager, socket: Socket, address: string, greeted: () => void, limits: SessionLimits) {
    this.#manager = manager;
    this.#socket = socket;
    this.#address = address;
    this.#greeted = greeted;
    this.#limits = limits;
    this.#traced = manager.context.connections.open("runexp", address);
    const describe = (message: RunexpMessage, bytes: number) => ({
      name: message.type,
      fields: fieldsOf(message),
      bytes,
    });
    this.#states = new ServerStateMachine(manager.group, {
      write: (bytes) => void socket.write(bytes),
      received: (message, bytes) => this.#traced.received(() => describe(message, bytes)),
      sent: (message, bytes) => this.#traced.sent(() => describe(message, bytes)),
      joined: (host) => this.#joined(host),
      jobRequested: () => this.#port?.petoReceived(),
      scriptSent: () => this.#port?.scriptSent(),
      resultAnnounced: (result) => {
        if (this.#port !== undefined) this.#result(this.#port, result);
      },
      output: (bytes) => this.#output(bytes),
      outputEnded: () => {
        this.#recording = this.#record();
      },
      runnerLeft: () => this.#left(),
      protocolError: (reason) => this.#drop("LABORO_BAD_MESSAGE", reason),
      startQuietTimer: () => this.#waitForQuiet(),
    });
    socket.on("data", (bytes) => this.#received(bytes));
    socket.on("timeout", () =>
      this.#drop(
        "LABORO_DEADLINE",
        `no bytes for ${limits.exchangeTimeoutMs} ms in the state ${this.#states.state.name}`,
      ),
    );
    socket.once("close", () => this.#closed());
  }

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

  /** The timeout applies only within an exchange, because a job may run for days. */
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

  #result(port: RunnerPort, result: AnnouncedResult): void {
    const { name } = result;
    const own = port.tasks.sent(name)?.sent;
    if (own !== undefined) {
      this.#receive(port.id, own, result);
      return;
    }
    const { core, experiments } = this.#manager;
    const { assignment, task } = findTaskByName(name, experiments, (id) => core.job(id));
    if (!this.#manager.assignments.has(port.host, assignment) && experiments?.isDone(name) === true) {
      // An earlier manager recorded it and died before RICEVIS. It does not count again.
      this.#states.accept();
      return;
    }
    if (!this.#manager.assignments.has(port.host, assignment)) {
      this.#drop(
        "LABORO_FORBIDDEN",
        `a result of ${JSON.stringify(displayName(name))}, which was never assigned to it`,
      );
      return;
    }
    this.#receiveLate(port, task, result);
  }

  /** The task was assigned to this host over another connection. */
  #receiveLate(port: RunnerPort, named: NamedTask["task"], result: AnnouncedResult): void {
    const { core, secret, context } = this.#manager;
    const { name } = result;
    const holder: TaskHolder | undefined = named && this.#manager.findHolder(port.host, named.job, named.index, name);
    const attempt = holder?.attempt ?? (named && core.reclaim(port.id, named.job, named.index));
    if (named === undefined || attempt === undefined) {
      context.log.info(
        { worker: port.id, task: displayName(name) },
        `a late result of ${displayName(name)} is dropped: the task is done or has another worker`,
      );
      this.#states.accept();
      return;
    }
    const mark = named.experiment ? {} : { mark: markOf(secret, named.job, named.index) };
    const task: SentTask = { ...named, name, attempt, started: now(), ...mark };
    if (holder === undefined) port.tasks.adopt(task);
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

  /** Why the result is not kept, if it is too large. */
  #refusal({ name }: SentTask, size: number): string | undefined {
    const { maxResultBytes } = this.#limits;
    if (size <= maxResultBytes) return undefined;
    const text = `its result is not kept: it has ${size} bytes, ${maxResultBytes} are allowed`;
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

  async #record(): Promise<void> {
    const incoming = this.#incoming;
    const port = this.#port;
    this.#incoming = undefined;
    if (port === undefined) return;
    // As early as possible: all threads of the runner wait for RICEVIS.
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

  /** A laboro runner reconnects and delivers the result again. */
  #cannotKeep(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    this.#manager.context.log.error(
      { code },
      `a result of ${this.#port?.host} cannot be stored, its runner is disconnected: ${message}`,
    );
    this.#states.drop();
    this.#socket.destroy();
  }

  #left(): void {
    this.#port?.leave(true);
    endSocket(this.#socket);
  }

  #drop(code: ErrorCode, reason: string): void {
    const who = this.#port?.host ?? "a new connection";
    this.#manager.context.peerErrors.report("runexp", this.#address, code, `${who} is disconnected: ${reason}`);
    this.#states.drop();
    this.#socket.destroy();
  }

  #closed(): void {
    clearTimeout(this.#quietTimer);
    this.#states.drop();
    this.#incoming?.abandon();
    this.#traced.close();
    // A complete result counts even if its runner gets no RICEVIS. Until it is stored, the task stays with this runner.
    void this.#recording.then(() => this.#port?.leave(false));
  }
}
