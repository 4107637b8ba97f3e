/**
 * A Scale0 worker, at the broker.
 *
 *   negotiating  CONNECT has come and CONFIG was sent; it is the PING after that which registers the worker
 *   registered   PING has come: it is known to dispatch. Each PING is a sign of life, and puts it into the LRU queue while
 *                it has fewer requests than slots. A request takes it out, and stands in the wait queue until its WORKREPLY
 *   stale        it PINGed with another config version: FORCENEGOTIATE was sent, CONNECT is awaited. What it has, it may answer
 *   forgotten    DISCONNECTERROR was sent, three heartbeats were missed, or its connection is gone; late replies are dropped
 *
 * A worker of the prototype's dialect is registered by READY and never negotiates.
 *
 * The LRU queue is dispatch's: a worker that stands in it offers one slot more than it uses, any other as many as it uses.
 */
import { randomUUID } from "node:crypto";
import { now } from "../../broker/clock.js";
import { configFor, readSettings, type Settings } from "../../broker/config/settings.js";
import type { Config } from "../../broker/config/value.js";
import type { WorkerPort } from "../../broker/core.js";
import type { WorkerProfile } from "../../dispatch/index.js";
import { figuresOf } from "../../dispatch/standing.js";
import { asLaboroError } from "../../model/errors.js";
import { type RequestId, SessionId, WorkerId } from "../../model/ids.js";
import { type Code, type Connect, type Parameters, type Ping, type Word, wordOf } from "./commands.js";
import type { Message } from "./frames.js";
import { Answered, Asked, clockFault, DEFAULT_HEARTBEAT_MS, joined, type Parts } from "./parts.js";
import type { Voice } from "./voice.js";

const MISSED = 3;
const PROTOTYPE_HEARTBEAT_MS = 1_000;

/** A request that this worker has. */
interface Work {
  /** Absent once nobody waits for it: then only the worker is still at it. */
  request: RequestId | undefined;
  readonly timeoutMs: number;
  overSince: number;
}

export class WorkerSession implements WorkerPort {
  readonly #parts: Parts;
  readonly #onForgotten: () => void;
  #voice: Voice;
  /** Where its last CONNECT or READY came from. */
  #connectedBy: Voice | undefined;
  #dialect: "scale0" | "prototype" = "scale0";
  #state: "negotiating" | "registered" | "stale" | "forgotten" = "negotiating";
  #profile: WorkerProfile;
  #connect: Connect = { configType: "JSON", services: undefined, slots: 1, word: undefined };
  /** In the wait queue, by identifier. */
  readonly #work = new Map<string, Work>();
  #inQueue = false;
  /** Known to dispatch, or about to be. */
  #joined = false;
  /** FORCENEGOTIATE was sent for its config version, and it has not had the right one since. */
  #warned = false;
  /** An operator stops it, or the broker is drained: it goes when it has nothing left. */
  #leaving: { readonly code: Code; readonly why: string } | undefined;
  #word: Word | undefined;
  /** The broker that it would rather be at. */
  #home: string | undefined;
  #ownHeartbeatMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #silenceMs = 0;
  #told: { readonly version: number; readonly settings: Settings } | undefined;

  constructor(parts: Parts, voice: Voice, onForgotten: () => void) {
    this.#parts = parts;
    this.#voice = voice;
    this.#onForgotten = onForgotten;
    this.#profile = {
      id: WorkerId(`scale0:${voice.name}`),
      session: SessionId(randomUUID()),
      name: voice.name,
      protocol: "scale0",
      pool: parts.pool,
      tags: [],
      services: [],
      total: { slots: 0 },
      reserveRequests: 0,
      resumable: false,
      stocks: false,
      runs: [],
      address: voice.peer.address,
    };
  }

  // What it says

  connect(connect: Connect): void {
    if (figuresOf(this.#parts.core.state, this.#profile.name).standing === "banned") {
      this.#end(401, `${this.#profile.name} is banned here`);
      return;
    }
    this.#dialect = "scale0";
    this.#connectedBy = this.#voice;
    this.#connect = connect;
    this.#word = connect.word ?? this.#word;
    this.#state = "negotiating";
    this.#inQueue = false;
    this.#offer(connect.services ?? this.#settings().services ?? []);
    this.#alive();
    if (!this.#movedOn()) this.tellConfig();
  }

  ping(ping: Ping): void {
    const { core } = this.#parts;
    const fault = clockFault(core, ping.time, now());
    if (fault !== undefined) {
      this.#end(409, fault);
      return;
    }
    this.#ownHeartbeatMs = ping.heartbeatMs ?? 0;
    this.#alive();
    const version = String(core.config.current.version);
    if (ping.configVersion !== undefined && ping.configVersion !== version) {
      this.#renegotiate(ping.configVersion, version);
      return;
    }
    this.#warned = false;
    this.#state = "registered";
    this.#voice.say("PONG", {
      ...(ping.time === undefined ? {} : { time: ping.time }),
      broker_time: Math.round(now()),
      config_version: core.config.current.version,
    });
    if (!this.#movedOn() && !this.#sentHome()) this.#enqueue();
  }

  #renegotiate(given: string, version: string): void {
    if (this.#warned && this.#state === "negotiating") {
      this.#end(426, `${given} after CONNECT, ${version} was sent`);
      return;
    }
    this.#warned = true;
    this.#state = "stale";
    this.#inQueue = false;
    this.#offer();
    this.#voice.say("FORCENEGOTIATE", {
      reason: `config version ${given}, the current one is ${version}`,
      config_version: Number(version),
    });
  }

  /** READY of the prototype. */
  ready(services: readonly string[]): void {
    this.#dialect = "prototype";
    this.#connectedBy = this.#voice;
    this.#state = "registered";
    this.#offer(services);
    this.signOfLife();
  }

  /** PING and HEARTBEAT of the prototype. */
  signOfLife(): void {
    if (this.#dialect === "scale0") return;
    this.#alive();
    this.#enqueue();
  }

  reply({ command, parameters, body }: Message): void {
    this.#word = wordOf(command);
    this.#alive();
    const identifier = String(parameters.work_request_identifier);
    const work = this.#work.get(identifier);
    if (work === undefined) return;
    this.#work.delete(identifier);
    const { request } = work;
    if (request !== undefined) {
      // First: or its slot would go to the next request before the worker has PINGed.
      this.#offer();
      const { error } = parameters;
      const failed = error === undefined || error === null ? undefined : "LABORO_SERVICE_FAILED";
      this.#parts.core.workerReplied(this.#profile.id, request, joined(body), failed, new Answered(body, error));
    }
    this.#leaveWhenDone();
  }

  /** It fell back on this broker, and would rather be elsewhere. */
  rather(home: string): void {
    this.#home = home;
  }

  // Its connection

  /** It is gone; the worker may be back on another. */
  cut(): void {
    // An automatic identity belongs to the connection; of another's owner it is not known whether he is gone.
    if (this.#voice.peer.identity[0] === 0) {
      this.forget(false);
      return;
    }
    this.#inQueue = false;
    this.#offer();
    clearTimeout(this.#timer);
    this.#silenceMs = 0;
    this.#timer = setTimeout(() => this.forget(false), this.#heartbeatMs());
  }

  back(voice: Voice): void {
    this.#voice = voice;
    this.#alive();
  }

  /** CONNECT unasked, on another connection than before: another process of this name, which has nothing of what the first had. */
  get reborn(): boolean {
    return this.#connectedBy !== undefined && this.#connectedBy !== this.#voice && this.#state !== "stale";
  }

  // What the broker has for it

  tellConfig(): void {
    if (this.#dialect === "prototype" || this.#state === "forgotten") return;
    const { core, formats } = this.#parts;
    const { version } = core.config.current;
    const { configType } = this.#connect;
    const text = formats[configType].write(this.#content(), version);
    this.#voice.say("CONFIG", { config_type: configType, config_version: version, config: text }, [Buffer.from(text)]);
    this.#alive();
  }

  /** It has changed: an old version is no fault yet. */
  configChanged(): void {
    this.#warned = false;
    if (this.#connect.services === undefined && this.#dialect === "scale0")
      this.#offer(this.#settings().services ?? []);
    this.tellConfig();
  }

  #content(): Config {
    const { core, brokers, pool } = this.#parts;
    const [preferred = brokers.self, ...others] = brokers.list();
    const named = (entry: typeof preferred): Config => ({ ...entry });
    return {
      ...configFor(core.config.current.settings, { name: this.#profile.name, pool }),
      identity: this.#profile.name,
      services: this.#profile.services,
      heartbeat_interval: this.#settings().heartbeatMs ?? DEFAULT_HEARTBEAT_MS,
      preferred_broker: named(preferred),
      brokers: [preferred, ...others].map(named),
    };
  }

  /** The broker is to be taken down, or no longer. */
  draining(draining: boolean): void {
    if (!draining) {
      this.#leaving = undefined;
      return;
    }
    this.#inQueue = false;
    this.#offer();
    this.#movedOn();
  }

  /** Sends it to another broker where this one is being drained and there is one; it goes when it has nothing left. */
  #movedOn(): boolean {
    const { core, brokers } = this.#parts;
    if (!core.maintenance.draining) return false;
    const others = brokers.others();
    if (others.length === 0 || this.#dialect === "prototype") return true;
    if (this.#requests() === 0) {
      this.#end(301, "this broker is to be taken down", () => this.#voice.say("CHANGEBROKER", { brokers: others }));
    } else if (this.#leaving === undefined) {
      this.#leaving = { code: 301, why: "this broker is to be taken down" };
      this.#voice.say("CHANGEBROKER", { brokers: others });
    }
    return true;
  }

  #sentHome(): boolean {
    const { core, brokers } = this.#parts;
    const home =
      this.#home === undefined || this.#home === brokers.self.identity ? undefined : brokers.alive(this.#home);
    if (home === undefined || readSettings(core.config.current.settings).switchBack !== true) return false;
    this.#home = undefined;
    this.#voice.say("CHANGEBROKER", {
      brokers: [home, ...brokers.list().filter((one) => one.identity !== home.identity)],
    });
    return true;
  }

  #leaveWhenDone(): void {
    if (this.#leaving !== undefined && this.#requests() === 0) this.#end(this.#leaving.code, this.#leaving.why);
  }

  // WorkerPort

  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number, attachment?: unknown): void {
    const asked = attachment instanceof Asked ? attachment : undefined;
    const identifier = `${asked?.client ?? "laboro"}/${asked?.messageId ?? ""}/${request}`;
    this.#work.set(identifier, { request, timeoutMs, overSince: 0 });
    this.#inQueue = false;
    const parameters: Parameters = {
      ...asked?.parameters,
      service,
      time: Math.round(now()),
      config_version: this.#parts.core.config.current.version,
      work_request_identifier: identifier,
    };
    const sent = this.#voice.say(this.#word ?? asked?.word ?? "WORKREQUEST", parameters, asked?.body ?? [body]);
    // Not here and now: dispatch is in the middle of handing things out.
    if (!sent) queueMicrotask(() => this.forget(false));
  }

  /** Nobody waits for it; the worker cannot be told, and is busy with it all the same. */
  uncall(request: RequestId): void {
    for (const work of this.#work.values()) {
      if (work.request !== request) continue;
      work.request = undefined;
      work.overSince = now();
      this.#offer();
      this.#parts.core.workerReplied(this.#profile.id, request, new Uint8Array(0), undefined);
    }
  }

  tasks(): void {
    throw new Error("a Scale0 worker runs no tasks, and says so");
  }

  retract(): void {}

  cancel(): void {}

  drain(): void {}

  stop(): void {
    this.#leaving = { code: 444, why: "the operator stops this worker" };
    this.#leaveWhenDone();
  }

  close(reason: string): void {
    if (this.#state === "forgotten") return;
    const others = this.#parts.brokers.others();
    this.#end(others.length > 0 ? 301 : 503, reason, () => {
      if (others.length > 0) this.#voice.say("CHANGEBROKER", { brokers: others });
    });
  }

  // Inside

  /** DISCONNECTERROR, and then it is forgotten. */
  #end(code: Code, why: string, andThen: () => void = () => {}): void {
    if (this.#dialect === "scale0") {
      this.#voice.refuse(code, why);
      andThen();
    }
    this.forget(code === 301 || code === 444);
  }

  /** As #end, for what is wrong with something that it said. */
  disconnect(code: Code, why: string): void {
    this.#end(code, why);
  }

  forget(orderly: boolean): void {
    if (this.#state === "forgotten") return;
    this.#state = "forgotten";
    clearTimeout(this.#timer);
    this.#work.clear();
    this.#onForgotten();
    if (this.#joined) this.#parts.core.workerGone(this.#profile.id, this, orderly);
  }

  /** Into the LRU queue, if there is room for a request. */
  #enqueue(): void {
    this.#forgetOver();
    this.#inQueue = this.#work.size < this.#connect.slots && this.#leaving === undefined;
    if (this.#joined) this.#offer();
    else this.#join();
  }

  /** A worker that PINGs on and on without an answer has none: it gets its slot back after as long again as the client waited. */
  #forgetOver(): void {
    for (const [identifier, { request, timeoutMs, overSince }] of this.#work) {
      if (request === undefined && now() - overSince > timeoutMs) this.#work.delete(identifier);
    }
  }

  #join(): void {
    this.#joined = true;
    this.#profile = { ...this.#profile, total: { slots: this.#slots() } };
    const given = this.#profile;
    this.#parts.core.workerJoins(given, [], this).then(
      () => {
        // It may have changed while others were asked what was left of it.
        if (this.#state !== "forgotten" && this.#profile !== given) this.#parts.core.workerChanged(this.#profile);
      },
      (cause: unknown) => this.#end(503, asLaboroError(cause).message),
    );
  }

  /** Tells dispatch what there is to be had here. */
  #offer(services = this.#profile.services): void {
    const slots = this.#slots();
    const before = this.#profile;
    const same = services.length === before.services.length && services.every((one, i) => one === before.services[i]);
    if (same && slots === before.total.slots) return;
    this.#profile = { ...before, services, total: { slots } };
    if (this.#joined) this.#parts.core.workerChanged(this.#profile);
  }

  #slots(): number {
    return this.#requests() + (this.#inQueue ? 1 : 0);
  }

  /** For which somebody waits. */
  #requests(): number {
    let count = 0;
    for (const { request } of this.#work.values()) if (request !== undefined) count++;
    return count;
  }

  #settings(): Settings {
    const { core, pool } = this.#parts;
    const { version, settings } = core.config.current;
    if (this.#told?.version !== version) {
      this.#told = { version, settings: readSettings(configFor(settings, { name: this.#profile.name, pool })) };
    }
    return this.#told.settings;
  }

  /** Longer than the broker's where the worker wants it, never shorter. */
  #heartbeatMs(): number {
    if (this.#dialect === "prototype") return PROTOTYPE_HEARTBEAT_MS;
    return Math.max(this.#settings().heartbeatMs ?? DEFAULT_HEARTBEAT_MS, this.#ownHeartbeatMs);
  }

  #alive(): void {
    if (this.#state === "forgotten") return;
    const silence = MISSED * this.#heartbeatMs();
    if (this.#timer !== undefined && this.#silenceMs === silence) {
      this.#timer.refresh();
      return;
    }
    clearTimeout(this.#timer);
    this.#silenceMs = silence;
    this.#timer = setTimeout(() => this.#end(408, `nothing was heard for ${silence} ms`), silence);
  }
}
