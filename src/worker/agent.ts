/**
 * A worker of ours on its link to a broker.
 *
 *   down      no link, or one that has not said WELCOME: tasks go on, results and output are kept
 *   joined    WELCOME has come: tasks, calls, results and output flow
 *   leaving   LEAVING was sent: stock was given back, what runs is stopped or awaited, then the link is closed
 *   ended     nothing runs, nothing is kept open
 */
import type { LaboroError } from "../base/errors.js";
import type { SessionId } from "../model/ids.js";
import type { CloseReason } from "../protocols/laboro/connection.js";
import { type Dial, dial, type LinkOf } from "../protocols/laboro/dial.js";
import { LINK_VERSION, type ToWorker, type Welcome } from "../protocols/laboro/messages.js";
import { Calls } from "./calls.js";
import { Desk, type DeskParts } from "./desk.js";
import { KnownBrokers } from "./known-brokers.js";
import { IdleWatch } from "./lifetime.js";
import type { UnacknowledgedResult } from "./spool/result-spool.js";
import { readTold } from "./told.js";

export interface AgentOptions {
  readonly urls: readonly string[];
  readonly token: string;
  readonly caFingerprint?: string;
  readonly name: string;
  readonly session: SessionId;
  readonly pool: string;
  readonly tags: readonly string[];
  readonly reserveRequests: number;
  /** How long a cancelled task has between SIGTERM and SIGKILL. */
  readonly cancelGraceMs: number;
  /** Nothing to do for so long, and `onIdle` is called. */
  readonly idleTimeoutMs?: number;
  /** It is to have so many slots, maybe more than it began with. */
  readonly onSlots?: (count: number) => void;
  readonly onIdle: () => void;
  readonly onJoined: () => void;
  readonly onRefused: (error: LaboroError) => void;
  /** No broker answers, for the n-th time in a row. */
  readonly onUnreachable: (error: LaboroError, rounds: number) => void;
  /** The broker asks the worker to stop. */
  readonly onStop: () => void;
}

export interface LeaveOptions {
  /** Let what runs end by itself. */
  readonly finish: boolean;
  readonly graceMs: number;
  /** How long to wait for the broker to take what is done. */
  readonly patienceMs: number;
}

type Link = LinkOf<"worker">;

/** How long the answer of a call that was aborted is waited for: a handler need not heed it. */
const ABORTED_MS = 1_000;

export class Agent {
  readonly #parts: DeskParts;
  readonly #options: AgentOptions;
  readonly #desk: Desk;
  readonly #calls: Calls;
  readonly #dial: Dial;
  readonly #brokers: KnownBrokers;
  readonly #idle: IdleWatch | undefined;
  /** What it was started with, whatever it is told meanwhile. */
  readonly #ownSlots: number;
  #tags: readonly string[];
  #everJoined = false;
  #link: Link | undefined;
  #leaving = false;

  constructor(parts: DeskParts, options: AgentOptions, spooled: readonly UnacknowledgedResult[]) {
    this.#parts = parts;
    this.#options = options;
    this.#ownSlots = parts.room.total.slots;
    this.#tags = options.tags;
    this.#desk = new Desk(parts, options.cancelGraceMs, spooled, () => this.#idle?.look());
    this.#calls = new Calls(parts.services, () => this.#idle?.look());
    const busy = (): boolean => !this.#desk.idle || this.#calls.count > 0;
    if (options.idleTimeoutMs !== undefined) this.#idle = new IdleWatch(options.idleTimeoutMs, busy, options.onIdle);
    this.#idle?.look();
    this.#brokers = new KnownBrokers(parts.directory.brokersPath, options.urls, options);
    this.#dial = dial<"worker">({
      from: "worker",
      urls: this.#brokers.atFirst,
      token: options.token,
      ...(options.caFingerprint === undefined ? {} : { caFingerprint: options.caFingerprint }),
      log: parts.log,
      onOpen: (link) => this.#join(link),
      onMessages: (batch, link) => {
        for (const message of batch) this.#receive(message, link);
        this.#desk.pump();
        if (batch.some(({ type }) => type === "TASKS" || type === "CALL")) this.#idle?.used();
        else this.#idle?.look();
      },
      onDown: (reason) => this.#down(reason),
      onRefused: options.onRefused,
      // One that it has only heard of may be somebody else's by now.
      passOver: (url) => !this.#brokers.isGiven(url),
      onUnreachable: (error, rounds) => this.#unreachable(error, rounds),
    });
  }

  get joined(): boolean {
    return this.#link !== undefined;
  }

  /** Start what waits, should there be room for it now. */
  lookAgain(): void {
    this.#desk.pump();
  }

  /** The brokers to try from now on. */
  setUrls(urls: readonly string[]): void {
    this.#brokers.setGiven(urls);
    this.#dial.setUrls(this.#brokers.learnt, this.#brokers.lastly);
  }

  /** Tell the broker what is offered now. */
  servicesChanged(): void {
    this.#link?.send({ type: "SERVICES", services: this.#parts.services.names });
  }

  /**
   * Orderly stop: give the stock back, stop what runs or await it, deliver what is done, close. A result that cannot be
   * delivered in time stays in the spool for the next start.
   */
  async leave({ finish, graceMs, patienceMs }: LeaveOptions): Promise<void> {
    this.#leaving = true;
    this.#idle?.stop();
    this.#link?.send({ type: "LEAVING" });
    this.#desk.beginClosing();
    if (!finish) this.#desk.returnRunning(graceMs);
    // Somebody waits for each answer, so what is under way may end by itself, within the grace of an urgent stop.
    await this.#calls.whenNone(finish ? undefined : graceMs);
    this.#calls.abortAll();
    await this.#desk.until(() => this.#desk.runningCount === 0);
    await this.#calls.whenNone(Math.min(graceMs, ABORTED_MS));
    let patience = true;
    const timer = setTimeout(() => {
      patience = false;
      this.#desk.pause();
    }, patienceMs);
    await this.#desk.until(() => this.#desk.idle || this.#link === undefined || !patience);
    clearTimeout(timer);
    this.#dial.stop(1000, "the worker stops");
    this.#desk.close();
  }

  /** What `leave` lets end by itself gets no more than this. */
  hurry(graceMs: number): void {
    this.#desk.returnRunning(graceMs);
    void this.#calls.whenNone(graceMs).then(() => this.#calls.abortAll());
  }

  #join(link: Link): void {
    const { name, session, pool, reserveRequests } = this.#options;
    const { directory, services, room, lifetime } = this.#parts;
    link.send({
      type: "JOIN",
      version: LINK_VERSION,
      worker: directory.id,
      session,
      name,
      total: room.total,
      tags: this.#tags,
      pool,
      services: services.names,
      reserveRequests,
      held: this.#desk.held(),
      ...(lifetime === undefined ? {} : { lifetimeMs: lifetime.leftMs }),
    });
  }

  #welcome(welcome: Welcome, link: Link): void {
    this.#link = link;
    this.#everJoined = true;
    link.startHeartbeat(welcome.heartbeatMs);
    this.#heed(welcome.config, link);
    if (this.#leaving) link.send({ type: "LEAVING" });
    this.#desk.resume(welcome, (message) => link.send(message));
    this.#parts.log.info({ broker: welcome.broker }, "joined the broker");
    this.#options.onJoined();
  }

  /** What the operator has for this worker. Its tags and slots are announced where they are others now. */
  #heed(config: Welcome["config"], link: Link): void {
    const { room, slots, files, services, log } = this.#parts;
    try {
      const { version, heartbeatMs, settings } = readTold(config);
      const before = JSON.stringify([room.total.slots, this.#tags]);
      const count = settings.slots ?? this.#ownSlots;
      slots.grow(count);
      this.#options.onSlots?.(count);
      room.setSlots(count);
      this.#tags = [...new Set([...this.#options.tags, ...(settings.tags ?? [])])];
      files.setEnvironment(settings.environment ?? {});
      if (heartbeatMs !== undefined) link.startHeartbeat(heartbeatMs);
      const urls = (settings.brokers ?? []).flatMap(({ url }) => (url === undefined ? [] : [url]));
      this.#brokers.setConfigured(urls);
      this.#dial.setUrls(this.#brokers.learnt, this.#brokers.lastly);
      if (version > 0) log.info({ version }, "told by the broker's config");
      if (JSON.stringify([count, this.#tags]) === before) return;
      link.send({ type: "SERVICES", services: services.names, tags: this.#tags, total: room.total });
    } catch (cause) {
      log.warn({ error: String(cause) }, "the broker's config cannot be used");
    }
  }

  /** With a wrong certificate at the first try it is the join URL that is wrong; later, something passing. */
  #unreachable(error: LaboroError, rounds: number): void {
    if (error.code === "LABORO_BAD_CERTIFICATE" && !this.#everJoined) {
      this.#dial.stop();
      this.#options.onRefused(error);
    } else this.#options.onUnreachable(error, rounds);
  }

  #down(reason: CloseReason): void {
    this.#parts.log.warn({ code: reason.code }, `the link to the broker is down: ${reason.text}`);
    this.#link = undefined;
    this.#calls.forgetAll();
    this.#desk.pause();
  }

  #receive(message: ToWorker, link: Link): void {
    switch (message.type) {
      case "WELCOME":
        this.#welcome(message, link);
        break;
      case "RECIPE":
        this.#desk.learn(message);
        break;
      case "TASKS":
        this.#desk.receive(message);
        break;
      case "ACK":
        this.#desk.acknowledge(message.seq);
        break;
      case "CREDIT":
        this.#desk.credit(message.bytes);
        break;
      case "RETRACT":
        this.#desk.retract(message.tasks);
        break;
      case "CANCEL":
        this.#desk.cancel(message.tasks);
        break;
      case "CALL":
        this.#calls.answer(message, (reply) => link.send(reply));
        break;
      case "UNCALL":
        this.#calls.abort(message.id);
        break;
      case "BROKERS":
        this.#brokers.setGroup(message.urls);
        this.#dial.setUrls(this.#brokers.learnt, this.#brokers.lastly);
        break;
      case "STOP":
        this.#options.onStop();
        break;
      case "CONFIG":
        this.#heed(message.config, link);
        break;
      case "DRAIN":
      case "BEAT":
        break;
    }
  }
}
