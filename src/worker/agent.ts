/**
 * laboro's own worker on its link to a broker.
 *
 *   down      no link, or a link without WELCOME yet: tasks continue, results and output are kept
 *   joined    WELCOME was received: tasks, calls, results and output flow
 *   leaving   LEAVING was sent: prefetched tasks were returned, running ones stopped or awaited, then the link closes
 *   ended     nothing runs, nothing is open
 */
import { availableParallelism, freemem, loadavg, totalmem } from "node:os";
import { MAX_TIMER_MS } from "../base/clock.js";
import type { LaboroError } from "../base/errors.js";
import type { SessionId } from "../model/ids.js";
import { readConfig, readSettings, type Settings } from "../model/worker-settings.js";
import type { BrokerAddress } from "../protocols/laboro/broker-address.js";
import type { CloseReason } from "../protocols/laboro/connection.js";
import { type Dial, dial, type LinkOf } from "../protocols/laboro/dial.js";
import { LINK_VERSION, type ToWorker, type Welcome } from "../protocols/laboro/messages.js";
import { Calls } from "./calls.js";
import { HandlerMessages } from "./handler-messages.js";
import { IdleWatch } from "./lifetime.js";
import type { UnacknowledgedResult } from "./spool/result-spool.js";
import { KnownBrokers, KnownStore } from "./spool/worker-directory.js";
import { type WorkerDependencies, WorkerTasks } from "./worker-tasks.js";

interface AgentOptions {
  readonly urls: readonly BrokerAddress[];
  readonly token: string;
  readonly caFingerprint?: string;
  readonly tunnels?: string;
  readonly name: string;
  readonly session: SessionId;
  readonly pool: string;
  readonly tags: readonly string[];
  readonly reserveRequests: number;
  /** How long a cancelled task has between SIGTERM and SIGKILL. */
  readonly cancelGraceMs: number;
  /** `onIdle` is called after the worker was idle for this time. */
  readonly idleTimeoutMs?: number;
  /** The number of slots has changed. It may be more than the worker started with. */
  readonly onSlots?: (count: number) => void;
  readonly onHeartbeat?: (heartbeatMs: number) => void;
  readonly onIdle: () => void;
  readonly onJoined: () => void;
  readonly onRefused: (error: LaboroError) => void;
  /** All brokers were tried without an answer, `rounds` times in a row. */
  readonly onUnreachable: (error: LaboroError, rounds: number) => void;
  /** The broker asks the worker to stop, when its tasks have ended or now. */
  readonly onStop: (now: boolean) => void;
}

interface LeaveOptions {
  /** Let running tasks end by themselves, until they have to be stopped for all to end within the grace. */
  readonly finish: boolean;
  /** How long all of it may take; may be infinite. */
  readonly graceMs: number;
}

type Link = LinkOf<"worker">;

/** A broker that is connected has at least this long to acknowledge results: a task without one runs again. */
const MIN_DELIVERY_MS = 1_000;
/** Reports the load of the machine. The first report comes when the work of the join is done. */
const FIRST_REPORT_MS = 1_000;
const REPORT_MS = 10_000;

export class Agent {
  readonly #deps: WorkerDependencies;
  readonly #options: AgentOptions;
  readonly #tasks: WorkerTasks;
  readonly #calls: Calls;
  readonly #handlerMessages = new HandlerMessages();
  #offeredAtJoin: readonly string[] = [];
  readonly #dial: Dial;
  readonly #brokers: KnownBrokers;
  readonly #store: KnownStore;
  readonly #idle: IdleWatch | undefined;
  /** Its own number of slots, which applies if the pushed config has none. */
  readonly #initialSlots: number;
  #stoppedSlots = 0;
  #tags: readonly string[];
  #everJoined = false;
  /** When WELCOME was read. The deadlines of calls are counted from it. */
  #welcomedAt = 0;
  #link: Link | undefined;
  #left: Promise<void> | undefined;
  #ended = false;
  /** When all must have ended, once the worker leaves. */
  #endAt = Number.POSITIVE_INFINITY;
  #graceOver = false;
  readonly #leaveTimers: NodeJS.Timeout[] = [];
  #machineTimer: NodeJS.Timeout | undefined;
  /** The broker has refused the worker: no result can be delivered. */
  #refused = false;

  constructor(deps: WorkerDependencies, options: AgentOptions, spooled: readonly UnacknowledgedResult[]) {
    this.#deps = deps;
    this.#options = options;
    this.#initialSlots = deps.capacity.total.slots;
    this.#tags = options.tags;
    this.#tasks = new WorkerTasks(deps, this.#handlerMessages, options.cancelGraceMs, spooled, () =>
      this.#idle?.check(),
    );
    this.#calls = new Calls(deps.services, options.cancelGraceMs, deps.log, () => this.#idle?.check());
    const busy = (): boolean => !this.#tasks.idle || this.#calls.count > 0;
    if (options.idleTimeoutMs !== undefined) this.#idle = new IdleWatch(options.idleTimeoutMs, busy, options.onIdle);
    this.#idle?.check();
    this.#brokers = new KnownBrokers(deps.directory.brokersPath, options.urls, options);
    this.#store = new KnownStore(deps.directory.storePath, deps.log);
    for (const spooledTasks of this.#tasks.held()) this.#store.addJob(spooledTasks);
    this.#dial = dial<"worker">({
      from: "worker",
      urls: this.#brokers.initialUrls,
      token: options.token,
      ...(options.caFingerprint === undefined ? {} : { caFingerprint: options.caFingerprint }),
      ...(options.tunnels === undefined ? {} : { tunnels: options.tunnels }),
      log: deps.log,
      onOpen: (link) => this.#join(link),
      onMessages: (batch, link) => {
        for (const message of batch) this.#receive(message, link);
        this.#tasks.pump();
        if (batch.some(({ type }) => type === "TASKS" || type === "CALL")) this.#idle?.restart();
        else this.#idle?.check();
      },
      onDisconnected: (reason) => this.#down(reason),
      onRefused: (error) => this.#refuse(error),
      // A broker known only from the group's list may have another owner now.
      ignoreRefusal: (url) => !this.#brokers.isExplicit(url),
      onUnreachable: (error, rounds) => this.#unreachable(error, rounds),
    });
  }

  get joined(): boolean {
    return this.#link !== undefined;
  }

  /** Starts prefetched tasks if they fit now. */
  startPending(): void {
    this.#tasks.pump();
  }

  /** The brokers to try from now on. */
  setUrls(urls: readonly string[]): void {
    this.#brokers.setExplicit(urls);
    this.#dial.setUrls(this.#brokers.currentUrls, this.#brokers.fallbackUrls);
  }

  /** Tells the broker what the worker offers. */
  announce(): void {
    const { services, capacity, memory } = this.#deps;
    const { total } = capacity;
    const paused = memory?.shortage;
    this.#link?.send({
      ...{ type: "SERVICES", services: services.names, tags: this.#tags, total },
      ...(paused === undefined ? {} : { paused }),
    });
  }

  /**
   * Orderly stop: returns prefetched tasks, awaits or stops running tasks, delivers results, closes. A result that
   * cannot be delivered in time stays in the spool for the next start. A later call can only shorten the time.
   */
  leave({ finish, graceMs }: LeaveOptions): Promise<void> {
    if (this.#ended && this.#left !== undefined) return this.#left;
    this.#endAt = Math.min(this.#endAt, this.#deps.now() + graceMs);
    const finishMs = graceMs - Math.min(this.#options.cancelGraceMs, graceMs / 2);
    this.#left ??= this.#leave();
    // Tasks that are stopped have the rest of the grace.
    const restMs = (): number => Math.min(this.leaveGraceMs, MAX_TIMER_MS);
    const stopTasks = (): void => this.#tasks.returnRunning(restMs());
    if (finish) this.#whileLeaving(finishMs, stopTasks);
    else stopTasks();
    // A client waits for each answer, so calls may continue even if tasks may not.
    this.#whileLeaving(finishMs, () => this.#calls.abortAll(restMs()));
    this.#whileLeaving(graceMs, () => (this.#graceOver = true));
    return this.#left;
  }

  async #leave(): Promise<void> {
    this.#idle?.stop();
    this.#link?.send({ type: "LEAVING" });
    this.#tasks.beginClosing();
    await Promise.all([this.#calls.whenIdle(), this.#tasks.waitUntil(() => this.#tasks.runningCount === 0)]);
    let minimumOver = false;
    this.#whileLeaving(MIN_DELIVERY_MS, () => (minimumOver = true));
    await this.#tasks.waitUntil(() => {
      const timeOver = this.#graceOver && (minimumOver || this.#link === undefined);
      return this.#tasks.allDelivered || this.#refused || timeOver;
    });
    for (const timer of this.#leaveTimers) clearTimeout(timer);
    this.#ended = true;
    clearTimeout(this.#machineTimer);
    this.#dial.stop(1000, "the worker stops");
    this.#handlerMessages.close();
    await this.#tasks.close();
  }

  /** The time that is left of the grace. */
  get leaveGraceMs(): number {
    return Math.max(0, this.#endAt - this.#deps.now());
  }

  #whileLeaving(ms: number, act: () => void): void {
    const timer = (): void => {
      act();
      this.#tasks.notifyWatchers();
    };
    if (ms <= MAX_TIMER_MS) this.#leaveTimers.push(setTimeout(timer, ms));
  }

  #join(link: Link): void {
    const { name, session, pool, reserveRequests } = this.#options;
    const { directory, services, capacity, lifetime } = this.#deps;
    this.#offeredAtJoin = services.names;
    link.send({
      type: "JOIN",
      version: LINK_VERSION,
      secret: directory.secret,
      session,
      name,
      total: capacity.total,
      tags: this.#tags,
      pool,
      services: services.names,
      reserveRequests,
      held: this.#tasks.held(),
      ...(lifetime === undefined ? {} : { lifetimeMs: lifetime.remainingMs }),
      ...(this.#options.tunnels === undefined ? {} : { tunnelled: true as const }),
      store: this.#store.remembered,
    });
  }

  #welcome(welcome: Welcome, link: Link): void {
    this.#link = link;
    this.#everJoined = true;
    this.#store.joined(welcome.store);
    this.#welcomedAt = this.#deps.now();
    link.startHeartbeat(welcome.heartbeatMs);
    this.#options.onHeartbeat?.(welcome.heartbeatMs);
    this.#applyConfig(welcome.config, link);
    // The broker does not know services that were added after JOIN was sent.
    const offersMore = this.#deps.services.names.length > this.#offeredAtJoin.length;
    if (offersMore || this.#deps.memory?.shortage !== undefined) this.announce();
    if (this.#left !== undefined) link.send({ type: "LEAVING" });
    this.#handlerMessages.resume((message) => link.send(message));
    this.#tasks.resume(welcome, (message) => link.send(message));
    this.#reportMachine(FIRST_REPORT_MS);
    this.#deps.log.info({ broker: welcome.broker }, "joined the broker");
    this.#options.onJoined();
  }

  #reportMachine(afterMs: number): void {
    clearTimeout(this.#machineTimer);
    this.#machineTimer = setTimeout(() => {
      const [load = 0] = loadavg();
      const memory = { memory: totalmem(), freeMemory: freemem() };
      this.#link?.send({ type: "MACHINE", cpus: availableParallelism(), load, ...memory });
      this.#reportMachine(REPORT_MS);
    }, afterMs).unref();
  }

  /** Applies the config that the broker pushes. Tags and slots are announced if they have changed. */
  #applyConfig(config: Welcome["config"], link: Link): void {
    const { capacity, slots, files, log } = this.#deps;
    try {
      const { version, heartbeatMs, settings } = readPushedConfig(config);
      const before = JSON.stringify([capacity.total.slots, this.#tags]);
      const count = Math.max(1, (settings.slots ?? this.#initialSlots) - this.#stoppedSlots);
      slots.grow(count);
      this.#options.onSlots?.(count);
      capacity.setSlots(count);
      this.#tags = [...new Set([...this.#options.tags, ...(settings.tags ?? [])])];
      files.setEnvironment(settings.environment ?? {});
      if (heartbeatMs !== undefined) link.startHeartbeat(heartbeatMs);
      const urls = (settings.brokers ?? []).flatMap(({ url }) => (url === undefined ? [] : [url]));
      this.#brokers.setConfigured(urls);
      this.#dial.setUrls(this.#brokers.currentUrls, this.#brokers.fallbackUrls);
      if (version > 0) log.info({ version }, "config applied");
      if (JSON.stringify([count, this.#tags]) === before) return;
      this.announce();
    } catch (cause) {
      log.warn({ error: String(cause) }, "the broker's config cannot be used");
    }
  }

  /** A worker that would have no slot left stops as a whole. */
  #stop(slots: number | "now" | undefined): void {
    const { capacity } = this.#deps;
    const before = capacity.total.slots;
    if (typeof slots === "number" && slots < before) {
      this.#stoppedSlots += slots;
      capacity.setSlots(before - slots);
      this.announce();
    } else this.#options.onStop(slots === "now");
  }

  /** A wrong certificate before the first join means a wrong join URL. Later it is treated as temporary. */
  #unreachable(error: LaboroError, rounds: number): void {
    if (error.code === "LABORO_BAD_CERTIFICATE" && !this.#everJoined) {
      this.#dial.stop();
      this.#refuse(error);
    } else this.#options.onUnreachable(error, rounds);
  }

  #refuse(error: LaboroError): void {
    this.#refused = true;
    this.#tasks.notifyWatchers();
    this.#options.onRefused(error);
  }

  #down(reason: CloseReason): void {
    this.#deps.log.warn({ code: reason.code }, `the link to the broker is down: ${reason.text}`);
    this.#link = undefined;
    clearTimeout(this.#machineTimer);
    this.#calls.forgetAll();
    this.#handlerMessages.pause();
    this.#tasks.pause();
  }

  #receive(message: ToWorker, link: Link): void {
    switch (message.type) {
      case "WELCOME":
        this.#welcome(message, link);
        break;
      case "RECIPE":
        this.#store.addJob(message);
        this.#tasks.addRecipe(message);
        break;
      case "TASKS":
        this.#tasks.receive(message);
        break;
      case "ACK":
        this.#tasks.acknowledge(message.seq);
        break;
      case "CREDIT":
        this.#tasks.credit(message.bytes);
        break;
      case "RELAYED":
        this.#tasks.relayed(message);
        break;
      case "RETRACT":
        this.#tasks.retract(message.tasks);
        break;
      case "CANCEL":
        this.#tasks.cancel(message.tasks);
        break;
      case "CALL":
        this.#calls.handle(message, this.#deps.now() - this.#welcomedAt, (reply) => link.send(reply));
        break;
      case "CANCEL_CALL":
        this.#calls.abort(message.id);
        break;
      case "RESULTS":
      case "FILE":
        this.#handlerMessages.answered(message);
        break;
      case "BROKERS":
        this.#brokers.setGroup(message.urls);
        this.#dial.setUrls(this.#brokers.currentUrls, this.#brokers.fallbackUrls);
        break;
      case "STOP":
        this.#stop(message.slots);
        break;
      case "CONFIG":
        this.#applyConfig(message.config, link);
        break;
      case "DRAIN":
      case "HEARTBEAT":
        break;
    }
  }
}

/** The operator's config for this worker. The broker pushes it; it is added to the worker's own options. */
interface PushedConfig {
  readonly version: number;
  readonly heartbeatMs?: number;
  readonly settings: Settings;
}

/** Throws LABORO_BAD_INPUT for a config that laboro's broker does not send. Absent fields are allowed. */
function readPushedConfig({ version, settings, heartbeatMs }: Readonly<Record<string, unknown>>): PushedConfig {
  return {
    version: typeof version === "number" ? version : 0,
    ...(typeof heartbeatMs === "number" && heartbeatMs >= 1 ? { heartbeatMs } : {}),
    settings: readSettings(readConfig(settings ?? {})),
  };
}
