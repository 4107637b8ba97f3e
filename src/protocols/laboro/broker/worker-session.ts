/**
 * One of laboro's own workers, at the broker.
 *
 *   joining   JOIN has come; its claims are being reconciled with the tasks that it lists
 *   working   WELCOME was sent: tasks, calls and results flow, none waits for another
 *   leaving   LEAVING has come: nothing new is assigned, its close is an orderly stop
 *   closed    the core has been informed; late messages are dropped
 */
import { now } from "../../../base/clock.js";
import { asLaboroError, badMessage } from "../../../base/errors.js";
import type { Core, WorkerPort } from "../../../broker/core.js";
import type { AssignedRange, AttemptRange, WorkerProfile } from "../../../dispatch/index.js";
import { type JobId, RequestId } from "../../../model/ids.js";
import type { Entries, Job } from "../../../model/job.js";
import type { OutputChunk } from "../../../model/store.js";
import { configFor, readSettings } from "../../../model/worker-settings.js";
import type { CloseReason, Connection } from "../connection.js";
import { type FromWorker, type Join, LINK_VERSION, RECIPES_REMEMBERED, type ToWorker } from "../messages.js";
import { workerIdOf } from "../worker-identity.js";

export interface WorkerSessionOptions {
  readonly broker: string;
  readonly heartbeatMs: number;
  /** Bytes of output under way per worker. */
  readonly outputWindow: number;
  /** A task has started. */
  readonly onStarted?: () => void;
  /** Where the worker connects from. */
  readonly address?: string;
}

export class WorkerSession implements WorkerPort {
  readonly #core: Core;
  readonly #connection: Connection<FromWorker, ToWorker>;
  readonly #options: WorkerSessionOptions;
  readonly #recipesSent = new Set<JobId>();
  /** What the deadlines of calls are counted from: a moment before WELCOME. */
  readonly #openedAt = now();
  #profile: WorkerProfile;
  #state: "joining" | "working" | "leaving" | "closed" = "joining";
  #unsubscribe: readonly (() => void)[] = [];
  #sentUrls = "";
  /** Messages that came before WELCOME was sent. */
  #queuedReceived: FromWorker[] = [];
  /** Messages to the worker that must follow WELCOME. */
  #queuedSends: ToWorker[] = [];

  constructor(core: Core, connection: Connection<FromWorker, ToWorker>, join: Join, options: WorkerSessionOptions) {
    this.#core = core;
    this.#connection = connection;
    this.#options = options;
    this.#profile = profileOf(join, options.address);
    this.#join(join).catch((cause: unknown) => this.#fail(cause));
  }

  async #join(join: Join): Promise<void> {
    const { keep, drop } = await this.#core.workerJoins(this.#profile, join.held, this);
    const older = join.store !== undefined && (await this.#core.storeAge.check(this.#profile.name, join.store));
    if (this.#state !== "joining") return;
    const config = this.#config();
    this.#connection.send({
      type: "WELCOME",
      version: LINK_VERSION,
      broker: this.#options.broker,
      keep,
      drop,
      heartbeatMs: config.heartbeatMs,
      config,
      window: this.#options.outputWindow,
      store: { identity: this.#core.storeAge.identity, epoch: this.#core.epoch, older },
    });
    this.#connection.startHeartbeat(config.heartbeatMs);
    this.#state = "working";
    this.#unsubscribe = [
      this.#core.config.onChanged(() => this.#configure()),
      this.#core.group?.onChanged?.(() => this.#sendBrokers()) ?? (() => {}),
    ];
    for (const message of this.#queuedSends.splice(0)) this.#connection.send(message);
    this.#sendBrokers();
    this.onMessages(this.#queuedReceived.splice(0));
  }

  /** The config of this worker, with its version. */
  #config(): { readonly version: number; readonly settings: object; readonly heartbeatMs: number } {
    const { version, settings } = this.#core.config.current;
    const own = configFor(settings, this.#profile);
    return { version, settings: own, heartbeatMs: readSettings(own).heartbeatMs ?? this.#options.heartbeatMs };
  }

  #configure(): void {
    const config = this.#config();
    this.#send({ type: "CONFIG", config });
    this.#connection.startHeartbeat(config.heartbeatMs);
  }

  /** Sends the URLs of the group. A broker that is drained closes the link once: the worker may find no other broker. */
  #sendBrokers(): void {
    const urls = this.#core.group?.urls?.() ?? [];
    if (urls.length > 0 && urls.join() !== this.#sentUrls) this.#send({ type: "BROKERS", urls });
    this.#sentUrls = urls.join();
    if (urls.length > 0 && this.#core.moves?.shouldRedirect(this.#profile.id) === true) {
      this.#connection.close(1001, "this broker is drained: there are others");
    }
  }

  onMessages(batch: readonly FromWorker[]): void {
    if (this.#state === "closed") return;
    if (this.#state === "joining") {
      this.#queuedReceived.push(...batch);
      return;
    }
    let output: OutputChunk[] = [];
    for (const message of batch) {
      if (message.type === "OUTPUT") output.push(message);
      else {
        if (output.length > 0) this.#store(output);
        output = [];
        this.#receive(message);
      }
    }
    if (output.length > 0) this.#store(output);
  }

  /** The output that came together is stored together: one CREDIT for all of it. */
  #store(chunks: readonly OutputChunk[]): void {
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.bytes.length, 0);
    this.#core.workerOutput(this.#profile.id, chunks, () => this.#send({ type: "CREDIT", bytes }));
  }

  /** A connection that this side gave up may be half open: the worker may not know yet that it has to come back. */
  onClose(reason: CloseReason): void {
    const orderly = this.#state === "leaving";
    this.#state = "closed";
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#core.workerDisconnected(this.#profile.id, this, orderly, reason.by !== "us");
  }

  #receive(message: Exclude<FromWorker, { readonly type: "OUTPUT" }>): void {
    const { id } = this.#profile;
    switch (message.type) {
      case "STARTED":
        this.#core.workerStarted(id, message.tasks);
        this.#options.onStarted?.();
        return;
      case "DONE":
        this.#core.workerDone(id, message.tasks, () => this.#send({ type: "ACK", seq: message.seq }));
        return;
      case "RELAY": {
        const { job, index, attempt } = message;
        this.#core.workerRelay(id, message, (end) => this.#send({ type: "RELAYED", job, index, attempt, end }));
        return;
      }
      case "TASK_PROGRESS":
        this.#core.handlerMessages.progressed(id, message.tasks);
        return;
      case "GET_RESULTS":
        this.#core.handlerMessages.results(id, message).then(
          (page) => this.#send({ type: "RESULTS", id: message.id, ...page }),
          (cause: unknown) =>
            this.#send({ type: "RESULTS", id: message.id, tasks: [], refused: asLaboroError(cause).message }),
        );
        return;
      case "RETRACTED":
      case "CANCELLED":
        this.#core.workerRetracted(id, message.tasks);
        return;
      case "REPLY":
        this.#core.requests.replied(id, RequestId(message.id), message.body, message.error);
        return;
      case "SERVICES": {
        const { type: _, ...offered } = message;
        const { paused: __, ...profile } = this.#profile;
        this.#profile = { ...profile, ...offered };
        this.#core.workerChanged(this.#profile);
        return;
      }
      case "LEAVING":
        this.#state = "leaving";
        this.#core.workerDrains(id);
        return;
      case "HEARTBEAT":
        return;
      case "JOIN":
        throw badMessage("a second JOIN on one connection");
    }
  }

  assign(job: Job, tasks: AssignedRange, entries: Entries | undefined): void {
    if (!this.#recipesSent.has(job.id)) {
      this.#recipesSent.add(job.id);
      const [oldest] = this.#recipesSent;
      if (this.#recipesSent.size > RECIPES_REMEMBERED && oldest !== undefined) this.#recipesSent.delete(oldest);
      const { recipe, requirement, limits, numbers, acceptedBy, key, after } = job;
      const { timeLimitMs, outputCap, relay } = limits;
      const taskLimits = {
        outputCap,
        ...(timeLimitMs === undefined ? {} : { timeLimitMs }),
        ...(relay === true ? { relay } : {}),
      };
      this.#send({
        ...{ type: "RECIPE", job: job.id, recipe, needs: requirement.needs, limits: taskLimits, acceptedBy },
        ...(numbers === undefined ? {} : { numbers }),
        ...(recipe.kind === "call" && key !== undefined ? { key } : {}),
        ...(recipe.kind === "call" && after.length > 0 ? { after: after.map((one) => one.job) } : {}),
      });
    }
    const { first, last, attempt, atOnce } = tasks;
    this.#send({
      ...{ type: "TASKS", job: job.id, first, last, attempt },
      ...(entries === undefined ? {} : { entries }),
      ...(atOnce === undefined ? {} : { atOnce }),
    });
  }

  retract(tasks: readonly AttemptRange[]): void {
    this.#send({ type: "RETRACT", tasks });
  }

  cancel(tasks: readonly AttemptRange[]): void {
    this.#send({ type: "CANCEL", tasks });
  }

  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number): void {
    this.#send({ type: "CALL", id: request, service, body, deadline: now() - this.#openedAt + timeoutMs });
  }

  cancelCall(request: RequestId): void {
    this.#send({ type: "CANCEL_CALL", id: request });
  }

  drain(): void {
    this.#send({ type: "DRAIN" });
  }

  stop(): void {
    this.#send({ type: "STOP" });
  }

  stopSlots(slots: number | "now"): void {
    this.#send({ type: "STOP", slots });
  }

  close(reason: string): void {
    this.#connection.close(1001, reason);
  }

  #send(message: ToWorker): void {
    if (this.#state === "joining") this.#queuedSends.push(message);
    else if (this.#state !== "closed") this.#connection.send(message);
  }

  #fail(cause: unknown): void {
    const { code, message } = asLaboroError(cause);
    this.#connection.close(1008, `${code}: ${message}`);
  }
}

function profileOf(join: Join, address: string | undefined): WorkerProfile {
  const { secret, session, name, total, tags, pool, services, reserveRequests, lifetimeMs } = join;
  return {
    id: workerIdOf(secret),
    session,
    name,
    protocol: "laboro",
    pool,
    tags,
    services,
    total,
    reserveRequests,
    resumable: true,
    canPrefetch: true,
    ...(address === undefined ? {} : { address }),
    ...(lifetimeMs === undefined ? {} : { leavesAt: now() + lifetimeMs }),
  };
}
