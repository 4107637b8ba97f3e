/**
 * The broker's session of a Scale0 worker.
 *
 *   negotiating  CONNECT was received and CONFIG was sent; the next PING registers the worker
 *   registered   dispatch knows it. Each PING is a heartbeat, and puts it into the LRU queue while it has fewer
 *                requests than slots. A request removes it from there, and is in the wait queue until its WORKREPLY
 *   stale        it sent PING with another config version: FORCENEGOTIATE was sent. It may still answer its requests
 *   forgotten    DISCONNECTERROR was sent, three heartbeats were missed, or the connection was closed
 *
 * A worker of the prototype's dialect is registered by READY and never negotiates.
 *
 * The LRU queue is that of dispatch: a worker in it offers one slot more than it uses, any other as many as it uses.
 */
import { now } from "../../../base/clock.js";
import { asLaboroError, badInput } from "../../../base/errors.js";
import { CallWorker, callWorkerProfile, type WorkerCall } from "../../../broker/sessions/call-worker.js";
import type { AttemptRange } from "../../../dispatch/index.js";
import type { Entries, Job } from "../../../model/job.js";
import {
  type ConnectRequest,
  type DisconnectCode,
  type Ping,
  readWorkIdentifier,
  type WorkCommand,
  workCommandOf,
} from "../commands.js";
import { joined, type Message } from "../frames.js";
import { ClientRequest, clockError, PushedConfig, pong, type Scale0Context, WorkerReply } from "./context.js";
import type { PeerSession } from "./peer-session.js";
import { WaitQueue } from "./wait-queue.js";

const MISSED_HEARTBEATS = 3;
const PROTOTYPE_HEARTBEAT_MS = 1_000;

export class Scale0WorkerSession extends CallWorker {
  readonly #context: Scale0Context;
  readonly #onForgotten: (orderly: boolean) => void;
  readonly #config: PushedConfig;
  readonly #waitQueue = new WaitQueue();
  #heartbeatTimer: NodeJS.Timeout | undefined;
  /** Duration of the timer. */
  #silenceMs = 0;
  #peerSession: PeerSession;
  /** The connection of its last CONNECT or READY. */
  #connectedBy: PeerSession | undefined;
  #dialect: "scale0" | "prototype" = "scale0";
  #state: "negotiating" | "registered" | "stale" | "forgotten" = "negotiating";
  #connect: ConnectRequest = { configType: "JSON", services: undefined, slots: 1, workCommand: undefined };
  #inQueue = false;
  /** Known to dispatch, or about to be. */
  #joined = false;
  /** FORCENEGOTIATE was sent for its config version, and it has not sent the right one since. */
  #warned = false;
  /** The operator stops it, or the broker is drained: it is disconnected when all its requests are answered. */
  #leaving: { readonly code: DisconnectCode; readonly why: string } | undefined;
  #workCommand: WorkCommand | undefined;
  #preferredBroker: string | undefined;
  #requestedHeartbeatMs = 0;

  constructor(context: Scale0Context, peerSession: PeerSession, onForgotten: (orderly: boolean) => void) {
    const { name, peer } = peerSession;
    const who = { name, pool: context.pool, address: peer.address };
    super(context.core, callWorkerProfile("scale0", who, [], 0));
    this.#context = context;
    this.#peerSession = peerSession;
    this.#onForgotten = onForgotten;
    this.#config = new PushedConfig(context, name);
  }

  // Messages of the worker

  connect(connect: ConnectRequest): void {
    const { name } = this.profile;
    if (this.core.standingOf(name).standing === "banned") {
      this.disconnect(401, `${name} is banned here`);
      return;
    }
    this.#dialect = "scale0";
    this.#connectedBy = this.#peerSession;
    this.#connect = connect;
    this.#workCommand = connect.workCommand ?? this.#workCommand;
    this.#state = "negotiating";
    this.#inQueue = false;
    this.#updateProfile(connect.services ?? this.#config.settings.services ?? []);
    this.#restartHeartbeatTimer();
    if (!this.#redirectIfDraining()) this.sendConfig();
  }

  ping(ping: Ping): void {
    const fault = clockError(this.core, ping.time);
    if (fault !== undefined) {
      this.disconnect(409, fault);
      return;
    }
    this.#requestedHeartbeatMs = ping.heartbeatMs ?? 0;
    this.#restartHeartbeatTimer();
    const { version } = this.#config;
    if (ping.configVersion !== undefined && ping.configVersion !== String(version)) {
      this.#renegotiate(ping.configVersion, version);
      return;
    }
    this.#warned = false;
    this.#state = "registered";
    this.#peerSession.send("PONG", pong(this.core, ping.time));
    if (!this.#redirectIfDraining() && !this.#redirectToPreferred()) this.#enqueue();
  }

  #renegotiate(given: string, version: number): void {
    if (this.#warned && this.#state === "negotiating") {
      this.disconnect(426, `${given} after CONNECT, ${version} was sent`);
      return;
    }
    this.#warned = true;
    this.#state = "stale";
    this.#inQueue = false;
    this.#updateProfile();
    const reason = `config version ${given}, the current one is ${version}`;
    this.#peerSession.send("FORCENEGOTIATE", { reason, config_version: version });
  }

  /** READY of the prototype. */
  ready(services: readonly string[]): void {
    this.#dialect = "prototype";
    this.#connectedBy = this.#peerSession;
    this.#state = "registered";
    this.#updateProfile(services);
    this.heartbeat();
  }

  /** PING, PONG and HEARTBEAT of the prototype. */
  heartbeat(): void {
    if (this.#dialect === "scale0") throw badInput("the parameters are not a JSON object");
    this.#restartHeartbeatTimer();
    this.#enqueue();
  }

  /** WORKREPLY or TASKREPLY. Dropped if no client waits for it. */
  reply({ command, parameters, body }: Message): void {
    this.#workCommand = workCommandOf(command);
    this.#restartHeartbeatTimer();
    const call = this.#waitQueue.take(String(Object.values(readWorkIdentifier(parameters))[0]));
    // First, so that the freed slot is not used before the worker has PINGed.
    this.#updateProfile();
    const error: unknown = parameters.error ?? undefined;
    const failed = error === undefined ? undefined : "LABORO_SERVICE_FAILED";
    call?.done(joined(body), failed, new WorkerReply(body, error));
    this.#leaveWhenDone();
  }

  /** It prefers another broker and fell back on this one. */
  setPreferredBroker(preferred: string): void {
    this.#preferredBroker = preferred;
  }

  // Its connection

  /** The worker may reconnect, unless its identity was automatic. */
  disconnected(): void {
    if (this.#peerSession.peer.identity[0] === 0) {
      this.forget(false);
      return;
    }
    this.#inQueue = false;
    this.#updateProfile();
    this.#startTimer(this.#heartbeatMs(), () => this.forget(false));
    this.#silenceMs = 0;
  }

  reconnected(peerSession: PeerSession): void {
    this.#peerSession = peerSession;
    this.#restartHeartbeatTimer();
  }

  /** An unrequested CONNECT on a new connection: another process, without the requests of the first. */
  get isNewProcess(): boolean {
    return this.#connectedBy !== undefined && this.#connectedBy !== this.#peerSession && this.#state !== "stale";
  }

  #restartHeartbeatTimer(): void {
    if (this.#state === "forgotten") return;
    const silenceMs = MISSED_HEARTBEATS * this.#heartbeatMs();
    if (silenceMs === this.#silenceMs) {
      this.#heartbeatTimer?.refresh();
      return;
    }
    this.#silenceMs = silenceMs;
    this.#startTimer(silenceMs, () => this.disconnect(408, `nothing was heard for ${silenceMs} ms`));
  }

  #startTimer(ms: number, then: () => void): void {
    clearTimeout(this.#heartbeatTimer);
    this.#heartbeatTimer = setTimeout(then, ms);
  }

  /** A worker may request a longer interval than the broker's, not a shorter one. */
  #heartbeatMs(): number {
    if (this.#dialect === "prototype") return PROTOTYPE_HEARTBEAT_MS;
    return Math.max(this.#config.heartbeatMs, this.#requestedHeartbeatMs);
  }

  // Messages to the worker

  protected sendCall(call: WorkerCall): void {
    const { name, service, attempt, attachment } = call;
    const from = attachment instanceof ClientRequest ? attachment : undefined;
    const [messageId = ""] = Object.values(from?.messageId ?? {});
    const identifier =
      attempt === undefined ? `${from?.client ?? "laboro"}/${messageId}/${name}` : `laboro/${name}/${attempt}`;
    this.#waitQueue.add(identifier, call);
    this.#inQueue = false;
    const word = this.#workCommand ?? from?.workCommand ?? "WORKREQUEST";
    // The identifier in both spellings of the specification.
    const named = { work_request_identifier: identifier, work_request_indentifier: identifier };
    const parameters: Record<string, unknown> = { ...from?.parameters, service, ...named };
    if (word === "TASK") parameters.id = identifier;
    parameters.time = Math.round(now());
    parameters.config_version = this.#config.version;
    // Not at once: dispatch is in the middle of assigning tasks.
    if (!this.#peerSession.send(word, parameters, from?.body ?? [call.body])) queueMicrotask(() => this.forget(false));
  }

  /** The protocol has no message for it: the worker stays busy with the call. */
  protected abandonCall(name: string, then: (call: WorkerCall) => void): void {
    const call = this.#waitQueue.abandon(name);
    this.#updateProfile();
    if (call !== undefined) then(call);
  }

  sendConfig(): void {
    if (this.#dialect === "scale0") {
      this.#peerSession.send("CONFIG", ...this.#config.message(this.#connect.configType, this.profile.services));
    }
  }

  /** The config has changed: an old version is not an error yet. */
  configChanged(): void {
    this.#warned = false;
    if (this.#dialect === "scale0" && this.#connect.services === undefined) {
      this.#updateProfile(this.#config.settings.services ?? []);
    }
    this.sendConfig();
    this.#restartHeartbeatTimer();
  }

  setDraining(draining: boolean): void {
    if (!draining) {
      this.#leaving = undefined;
      return;
    }
    this.#inQueue = false;
    this.#updateProfile();
    this.#redirectIfDraining();
  }

  /** While this broker is drained and there is another, the worker is sent there once its requests are answered. */
  #redirectIfDraining(): boolean {
    if (!this.core.maintenance.draining) return false;
    const others = this.#context.brokers.others();
    if (others.length === 0 || this.#dialect === "prototype") return false;
    const why = "this broker is to be taken down";
    if (this.#waitQueue.awaited === 0) {
      this.disconnect(301, why, others);
    } else if (this.#leaving === undefined) {
      this.#leaving = { code: 301, why };
      this.#peerSession.send("CHANGEBROKER", { brokers: others });
    }
    return true;
  }

  #redirectToPreferred(): boolean {
    const { brokers } = this.#context;
    if (this.#preferredBroker === undefined || this.#config.settings.switchBack !== true) return false;
    const preferred =
      this.#preferredBroker === brokers.self.identity ? undefined : brokers.alive(this.#preferredBroker);
    if (preferred === undefined) return false;
    this.#preferredBroker = undefined;
    const others = brokers.list().filter(({ identity }) => identity !== preferred.identity);
    this.#peerSession.send("CHANGEBROKER", { brokers: [preferred, ...others] });
    return true;
  }

  #leaveWhenDone(): void {
    if (this.#leaving !== undefined && this.#waitQueue.awaited === 0) {
      this.disconnect(this.#leaving.code, this.#leaving.why);
    }
  }

  // WorkerPort

  override assign(job: Job, tasks: AttemptRange, entries: Entries | undefined): void {
    super.assign(job, tasks, entries);
    this.#updateProfile();
  }

  stop(): void {
    this.#leaving = { code: 444, why: "the operator stops this worker" };
    this.#leaveWhenDone();
  }

  close(reason: string): void {
    const others = this.#context.brokers.others();
    this.disconnect(others.length > 0 ? 301 : 503, reason, others);
  }

  // The end

  /** DISCONNECTERROR, and CHANGEBROKER if there are other brokers. Then the worker is forgotten. */
  disconnect(code: DisconnectCode, why: string, brokers: readonly object[] = []): void {
    if (this.#state === "forgotten") return;
    if (this.#dialect === "scale0") {
      this.#peerSession.sendDisconnectError(code, why);
      if (brokers.length > 0) this.#peerSession.send("CHANGEBROKER", { brokers });
    }
    this.forget(code === 301 || code === 444);
  }

  forget(orderly: boolean): void {
    if (this.#state === "forgotten") return;
    this.#state = "forgotten";
    clearTimeout(this.#heartbeatTimer);
    this.#waitQueue.clear();
    this.clearTasks();
    this.#onForgotten(orderly);
    if (this.#joined) this.core.workerDisconnected(this.profile.id, this, orderly);
  }

  // Its profile

  /** Puts it into the LRU queue, if a slot is free. */
  #enqueue(): void {
    const hasFreeSlot = this.#waitQueue.busySlots() < this.#connect.slots;
    this.#inQueue = hasFreeSlot && this.#leaving === undefined && !this.core.maintenance.draining;
    if (this.#joined) this.#updateProfile();
    else this.#join();
  }

  #join(): void {
    this.#joined = true;
    this.profile = { ...this.profile, total: { slots: this.#slots() } };
    const given = this.profile;
    this.core.workerJoins(given, [], this).then(
      () => {
        // It may have changed while the store was read.
        if (this.#state !== "forgotten" && this.profile !== given) this.core.workerChanged(this.profile);
      },
      (cause: unknown) => this.disconnect(503, asLaboroError(cause).message),
    );
  }

  /** Reports changed services and slots to dispatch. */
  #updateProfile(services = this.profile.services): void {
    const before = this.profile;
    const slots = this.#slots();
    const same = services.length === before.services.length && services.every((one, i) => one === before.services[i]);
    if (same && slots === before.total.slots) return;
    this.profile = { ...before, services, total: { slots } };
    if (!this.#joined || this.#state === "forgotten") return;
    if (same) this.core.workerSlots(before.id, slots);
    else this.core.workerChanged(this.profile);
  }

  #slots(): number {
    return this.#waitQueue.awaited + (this.#inQueue ? 1 : 0);
  }
}
