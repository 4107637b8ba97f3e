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
import { definedOnly } from "../../../model/input.js";
import type { Entries, Job } from "../../../model/job.js";
import type { OutputChunk } from "../../../model/store.js";
import { configFor, type MachineLoad, readSettings } from "../../../model/worker-settings.js";
import type { CloseReason, Connection } from "../connection.js";
import { type FromWorker, type Join, LINK_VERSION, RECIPES_REMEMBERED, type ToWorker } from "../messages.js";
import { workerIdOf } from "../worker-identity.js";

export interface WorkerSessionOptions {
  readonly broker: string;
  readonly heartbeatMs: number;
  /** Bytes of output that one worker may have sent without an acknowledgement. */
  readonly outputWindow: number;
  /** A task has started. */
  readonly onStarted?: () => void;
  /** The address from which the worker connects. */
  readonly address?: string;
}

/** More than this is not sent before the worker has read it. A connection with much more unread is given up. */
const MAX_UNREAD = 16 * 1024 * 1024;

export class WorkerSession implements WorkerPort {
  readonly #core: Core;
  readonly #connection: Connection<FromWorker, ToWorker>;
  readonly #options: WorkerSessionOptions;
  /** As they were sent: a job that was edited since is sent again. */
  readonly #recipesSent = new Map<JobId, Job>();
  /** Deadlines of calls are counted from this time, a moment before WELCOME. */
  readonly #openedAt = now();
  readonly #isTunnelled: boolean;
  machine: MachineLoad | undefined;
  #profile: WorkerProfile;
  #state: "joining" | "working" | "leaving" | "closed" = "joining";
  #unsubscribe: readonly (() => void)[] = [];
  #sentUrls = "";
  /** Messages that came before WELCOME was sent. */
  #queuedReceived: FromWorker[] = [];
  /** Sent after WELCOME and after the messages that have arrived: later ones show that the worker has WELCOME. */
  readonly #queuedSends: (() => void)[] = [];

  constructor(core: Core, connection: Connection<FromWorker, ToWorker>, join: Join, options: WorkerSessionOptions) {
    this.#core = core;
    this.#connection = connection;
    this.#options = options;
    this.#profile = profileOf(join, options.address);
    this.#isTunnelled = join.tunnelled === true;
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
    this.#sendQueued();
    this.#sendBrokers();
    this.onMessages(this.#queuedReceived.splice(0));
  }

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

  /** Sends the group's URLs. A drained broker closes the link only once: the worker may find no other broker. */
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
    this.#sendQueued();
  }

  /** Output that arrived together is stored together, with one CREDIT. */
  #store(chunks: readonly OutputChunk[]): void {
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.bytes.length, 0);
    this.#core.workerOutput(this.#profile.id, chunks, () => this.#send({ type: "CREDIT", bytes }));
  }

  /** A connection that this side gave up may be half open: the worker may not know yet that it must reconnect. */
  onClose(reason: CloseReason): void {
    const orderly = this.#state === "leaving";
    this.#state = "closed";
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#core.workerDisconnected(this.#profile.id, this, orderly, reason.by !== "us" && !this.#isTunnelled);
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
      case "GET_FILE":
        this.#core.files.readSent(id, message.job, message.file, message.from).then(
          (bytes) => this.#send({ type: "FILE", id: message.id, bytes }),
          (cause: unknown) => this.#refuseFile(message.id, asLaboroError(cause).message),
        );
        return;
      case "PUT_FILE": {
        const { from: offset, ...part } = message;
        const stored = (): void => this.#send({ type: "FILE", id: message.id, bytes: new Uint8Array(0) });
        if (!this.#core.workerFile(id, { ...part, stream: "stdout", offset }, stored))
          this.#refuseFile(message.id, "the task is no longer this worker's");
        return;
      }
      case "RETRACTED":
      case "CANCELLED":
        this.#core.workerRetracted(id, message.tasks);
        return;
      case "REPLY":
        this.#core.requests.replied(id, RequestId(message.id), message.body, message.error, message.details);
        return;
      case "SERVICES": {
        const { type: _, ...offered } = message;
        const { paused: __, ...profile } = this.#profile;
        this.#profile = { ...profile, ...offered };
        this.#core.workerChanged(this.#profile);
        return;
      }
      case "MACHINE": {
        const { type: _, ...machine } = message;
        this.machine = machine;
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

  #refuseFile(id: number, refused: string): void {
    this.#send({ type: "FILE", id, bytes: new Uint8Array(0), refused });
  }

  assign(job: Job, tasks: AssignedRange, entries: Entries | undefined): void {
    if (this.#mustWait) this.#queuedSends.push(() => this.#assign(job, tasks, entries));
    else this.#assign(job, tasks, entries);
  }

  #assign(job: Job, tasks: AssignedRange, entries: Entries | undefined): void {
    const { first, last, attempt, atOnce } = tasks;
    try {
      this.#sendRecipe(job);
      this.#connection.send({
        ...{ type: "TASKS", job: job.id, first, last, attempt },
        ...(entries === undefined ? {} : { entries }),
        ...(atOnce === undefined ? {} : { atOnce }),
      });
    } catch (cause) {
      if (entries === undefined || first === last) {
        this.#core.workerCannotTake(this.#profile.id, tasks, cause);
        return;
      }
      // Together, the entries are larger than a message may be.
      const half = entries.length >> 1;
      this.#assign(job, { ...tasks, last: first + half - 1 }, entries.slice(0, half));
      this.assign(job, { ...tasks, first: first + half }, entries.slice(half));
    }
  }

  #sendRecipe(job: Job): void {
    if (this.#recipesSent.get(job.id) === job) return;
    const { recipe, requirement, limits, numbers, acceptedBy, key, after } = job;
    const { timeLimitMs, timeLimitPercent, timeRequestMs, outputCap, relay } = limits;
    const taskLimits = {
      outputCap,
      ...definedOnly({ timeLimitMs, timeLimitPercent, timeRequestMs }),
      ...(relay === true ? { relay } : {}),
    };
    this.#connection.send({
      ...{ type: "RECIPE", job: job.id, recipe, needs: requirement.needs, limits: taskLimits, acceptedBy },
      ...(numbers === undefined ? {} : { numbers }),
      ...(recipe.kind === "call" && key !== undefined ? { key } : {}),
      ...(recipe.kind === "call" && after.length > 0 ? { after: after.map((one) => one.job) } : {}),
    });
    this.#recipesSent.delete(job.id);
    this.#recipesSent.set(job.id, job);
    const [oldest] = this.#recipesSent.keys();
    if (this.#recipesSent.size > RECIPES_REMEMBERED && oldest !== undefined) this.#recipesSent.delete(oldest);
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
    if (this.#mustWait) this.#queuedSends.push(() => this.#connection.send(message));
    else if (this.#state !== "closed") this.#connection.send(message);
  }

  get #mustWait(): boolean {
    return this.#state === "joining" || this.#queuedSends.length > 0 || this.#connection.bufferedBytes > MAX_UNREAD;
  }

  #sendQueued(): void {
    if (this.#queuedSends.length === 0) return;
    let sent = 0;
    while (sent < this.#queuedSends.length && this.#connection.bufferedBytes <= MAX_UNREAD)
      this.#queuedSends[sent++]?.();
    this.#queuedSends.splice(0, sent);
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
