/**
 * A Scale0 worker, at the broker.
 *
 *   negotiating  CONNECT has come and CONFIG was sent; it is the PING after that which registers the worker
 *   registered   PING has come: it is known to dispatch. Each PING is a heartbeat, and puts it into the LRU queue while
 *                it has fewer requests than slots. A request takes it out, and is in the wait queue until its WORKREPLY
 *   stale        it PINGed with another config version: FORCENEGOTIATE was sent, CONNECT is awaited. What it has, it may answer
 *   forgotten    DISCONNECTERROR was sent, three heartbeats were missed, or its connection is gone; late replies are dropped
 *
 * A worker of the prototype's dialect is registered by READY and never negotiates.
 *
 * The LRU queue is dispatch's: a worker in it offers one slot more than it uses, any other as many as it uses.
 */
import { now } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import type { WorkerPort } from "../../../broker/core.js";
import { callWorkerProfile } from "../../../broker/sessions/call-tasks.js";
import type { AttemptRange, WorkerProfile } from "../../../dispatch/index.js";
import type { RequestId } from "../../../model/ids.js";
import type { Entries, Job } from "../../../model/job.js";
import {
  type ConnectRequest,
  type DisconnectCode,
  type Parameters,
  type Ping,
  type WorkCommand,
  workCommandOf,
} from "../commands.js";
import type { Message } from "../frames.js";
import { AssignedWork } from "./assigned-work.js";
import { clockError, pong, type Scale0Context } from "./context.js";
import { HeartbeatTimer } from "./heartbeat-timer.js";
import type { PeerSession } from "./peer-session.js";
import { WorkerConfig } from "./worker-config.js";

const PROTOTYPE_HEARTBEAT_MS = 1_000;

export class Scale0WorkerSession implements WorkerPort {
  readonly #context: Scale0Context;
  readonly #onForgotten: (orderly: boolean) => void;
  readonly #config: WorkerConfig;
  readonly #work: AssignedWork;
  readonly #heartbeatTimer: HeartbeatTimer;
  #peerSession: PeerSession;
  /** Where its last CONNECT or READY came from. */
  #connectedBy: PeerSession | undefined;
  #dialect: "scale0" | "prototype" = "scale0";
  #state: "negotiating" | "registered" | "stale" | "forgotten" = "negotiating";
  #profile: WorkerProfile;
  #connect: ConnectRequest = { configType: "JSON", services: undefined, slots: 1, workCommand: undefined };
  #inQueue = false;
  /** Known to dispatch, or about to be. */
  #joined = false;
  /** FORCENEGOTIATE was sent for its config version, and it has not had the right one since. */
  #warned = false;
  /** An operator stops it, or the broker is drained: it goes when it has nothing left. */
  #leaving: { readonly code: DisconnectCode; readonly why: string } | undefined;
  #workCommand: WorkCommand | undefined;
  /** The broker that it prefers. */
  #preferredBroker: string | undefined;
  #requestedHeartbeatMs = 0;

  constructor(context: Scale0Context, peerSession: PeerSession, onForgotten: (orderly: boolean) => void) {
    this.#context = context;
    this.#peerSession = peerSession;
    this.#onForgotten = onForgotten;
    this.#config = new WorkerConfig(context, peerSession.name);
    const { name, peer } = peerSession;
    this.#profile = callWorkerProfile("scale0", { name, pool: context.pool, address: peer.address }, [], 0);
    this.#work = new AssignedWork({
      core: context.core,
      worker: this.#profile.id,
      send: (command, parameters, body) => this.#sendWork(command, parameters, body),
      onReleased: () => this.#updateProfile(),
    });
    this.#heartbeatTimer = new HeartbeatTimer(
      (silence) => this.disconnect(408, `nothing was heard for ${silence} ms`),
      () => this.forget(false),
    );
  }

  // Messages of the worker

  connect(connect: ConnectRequest): void {
    if (this.#context.core.standingOf(this.#profile.name).standing === "banned") {
      this.disconnect(401, `${this.#profile.name} is banned here`);
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
    const fault = clockError(this.#context.core, ping.time, now());
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
    this.#peerSession.send("PONG", pong(this.#context.core, ping.time));
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
    if (this.#dialect === "scale0") return;
    this.#restartHeartbeatTimer();
    this.#enqueue();
  }

  reply(message: Message): void {
    this.#workCommand = workCommandOf(message.command);
    this.#restartHeartbeatTimer();
    this.#work.reply(message);
    this.#leaveWhenDone();
  }

  /** It fell back on this broker, and prefers another. */
  setPreferredBroker(preferred: string): void {
    this.#preferredBroker = preferred;
  }

  // Its connection

  /** It is gone; the worker may be back on another. */
  disconnected(): void {
    // An automatic identity belongs to the connection; of one that a worker gave itself nobody knows whether it is gone.
    if (this.#peerSession.peer.identity[0] === 0) {
      this.forget(false);
      return;
    }
    this.#inQueue = false;
    this.#updateProfile();
    this.#heartbeatTimer.disconnected(this.#heartbeatMs());
  }

  /** Checks that it is there while its answers are awaited: an extra PONG does no harm, and fails where it is gone. */
  probe(): void {
    if (this.#work.awaited === 0 || this.#dialect === "prototype") return;
    this.#peerSession.send("PONG", pong(this.#context.core));
  }

  reconnected(peerSession: PeerSession): void {
    this.#peerSession = peerSession;
    this.#restartHeartbeatTimer();
  }

  /** CONNECT unasked, on another connection than before: another process of this name, which has nothing of what the first had. */
  get isNewProcess(): boolean {
    return this.#connectedBy !== undefined && this.#connectedBy !== this.#peerSession && this.#state !== "stale";
  }

  #restartHeartbeatTimer(): void {
    if (this.#state !== "forgotten") this.#heartbeatTimer.received(this.#heartbeatMs());
  }

  /** Longer than the broker's where the worker wants it, never shorter. */
  #heartbeatMs(): number {
    if (this.#dialect === "prototype") return PROTOTYPE_HEARTBEAT_MS;
    return Math.max(this.#config.heartbeatMs, this.#requestedHeartbeatMs);
  }

  // Messages to the worker

  #sendWork(command: WorkCommand | undefined, more: Parameters, body: readonly Uint8Array[]): void {
    this.#inQueue = false;
    const word = this.#workCommand ?? command ?? "WORKREQUEST";
    const time = Math.round(now());
    const id = word === "TASK" ? { id: more.work_request_identifier } : {};
    const sent = this.#peerSession.send(word, { ...more, ...id, time, config_version: this.#config.version }, body);
    // Not at once: dispatch is in the middle of assigning tasks.
    if (!sent) queueMicrotask(() => this.forget(false));
  }

  sendConfig(): void {
    if (this.#dialect === "scale0") {
      this.#peerSession.send("CONFIG", ...this.#config.message(this.#connect.configType, this.#profile.services));
    }
  }

  /** It has changed: an old version is no fault yet. */
  configChanged(): void {
    this.#warned = false;
    if (this.#dialect === "scale0" && this.#connect.services === undefined) {
      this.#updateProfile(this.#config.settings.services ?? []);
    }
    this.sendConfig();
    this.#restartHeartbeatTimer();
  }

  /** The broker is to be taken down, or no longer. */
  setDraining(draining: boolean): void {
    if (!draining) {
      this.#leaving = undefined;
      return;
    }
    this.#inQueue = false;
    this.#updateProfile();
    this.#redirectIfDraining();
  }

  /** Sent to another broker, where this one is being drained and there is one; it goes when it has nothing left. */
  #redirectIfDraining(): boolean {
    const { core, brokers } = this.#context;
    if (!core.maintenance.draining) return false;
    const others = brokers.others();
    if (others.length === 0 || this.#dialect === "prototype") return false;
    const why = "this broker is to be taken down";
    if (this.#work.awaited === 0) {
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
    if (this.#leaving !== undefined && this.#work.awaited === 0) {
      this.disconnect(this.#leaving.code, this.#leaving.why);
    }
  }

  // WorkerPort

  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number, attachment?: unknown): void {
    this.#work.call(request, service, body, timeoutMs, attachment);
  }

  cancelCall(request: RequestId): void {
    this.#work.cancelCall(request);
  }

  assign(job: Job, tasks: AttemptRange, entries: Entries | undefined): void {
    this.#work.assign(job, tasks, entries);
    this.#updateProfile();
  }

  /** It has begun with all that it has. */
  retract(): void {}

  cancel(tasks: readonly AttemptRange[]): void {
    this.#work.cancel(tasks);
  }

  drain(): void {}

  stop(): void {
    this.#leaving = { code: 444, why: "the operator stops this worker" };
    this.#leaveWhenDone();
  }

  close(reason: string): void {
    const others = this.#context.brokers.others();
    this.disconnect(others.length > 0 ? 301 : 503, reason, others);
  }

  // The end

  /** DISCONNECTERROR, with other brokers CHANGEBROKER, and then it is forgotten. */
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
    this.#heartbeatTimer.stop();
    this.#work.clear();
    this.#onForgotten(orderly);
    if (this.#joined) this.#context.core.workerDisconnected(this.#profile.id, this, orderly);
  }

  // Its profile

  /** Into the LRU queue, if a slot is free. */
  #enqueue(): void {
    const hasFreeSlot = this.#work.busySlots() < this.#connect.slots;
    this.#inQueue = hasFreeSlot && this.#leaving === undefined && !this.#context.core.maintenance.draining;
    if (this.#joined) this.#updateProfile();
    else this.#join();
  }

  #join(): void {
    this.#joined = true;
    this.#profile = { ...this.#profile, total: { slots: this.#slots() } };
    const given = this.#profile;
    this.#context.core.workerJoins(given, [], this).then(
      () => {
        // It may have changed while others were asked what was left of it.
        if (this.#state !== "forgotten" && this.#profile !== given) this.#context.core.workerChanged(this.#profile);
      },
      (cause: unknown) => this.disconnect(503, asLaboroError(cause).message),
    );
  }

  /** Reports the services and slots to dispatch, where they have changed. */
  #updateProfile(services = this.#profile.services): void {
    const before = this.#profile;
    const slots = this.#slots();
    const same = services.length === before.services.length && services.every((one, i) => one === before.services[i]);
    if (same && slots === before.total.slots) return;
    this.#profile = { ...before, services, total: { slots } };
    if (!this.#joined || this.#state === "forgotten") return;
    if (same) this.#context.core.workerSlots(before.id, slots);
    else this.#context.core.workerChanged(this.#profile);
  }

  #slots(): number {
    return this.#work.awaited + (this.#inQueue ? 1 : 0);
  }
}
